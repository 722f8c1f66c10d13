"""What the servers of object stores have in common: a process on a port of its own, behind a proxy."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar

import pytest

from resources.object_store.clients import client
from resources.object_store.config import StoreAccess
from resources.object_store.store import Store
from resources.secrets import Secret
from tests.faults.proxy import Proxy
from tests.ports import free_port

__all__ = ["StoreServer"]


class StoreServer(ABC):
    """One server, and a proxy before it that clients go through. A context manager; it ends with this process.

    Attributes:
        kind: of the store.
        base: name of the bucket, without a slash at its end.
        extra: that installs the client.
        needs: module of the client.
        target: of make, which installs the server.
        put: the first bytes of every put.
        conditional: bytes of a put on a condition, and of nothing else.
        copy: bytes of a copy inside of the store, and of nothing else.
    """

    kind: ClassVar[str]
    base: ClassVar[str]
    needs: ClassVar[str]
    target: ClassVar[str]
    put: ClassVar[bytes]
    conditional: ClassVar[bytes]
    copy: ClassVar[bytes]

    def __init__(self) -> None:
        found = self.program()
        if found is None:
            pytest.skip(f"no server of an object store -> make {self.target}")
        pytest.importorskip(self.needs)
        self.command, self.folder = found, Path(tempfile.mkdtemp(prefix=f"kpipe-{self.kind}-"))
        self.port = free_port()
        self.proxy = Proxy(self.port)

    @staticmethod
    @abstractmethod
    def program() -> list[str] | None:
        """The program's first words; None: it is not installed."""

    @abstractmethod
    def options(self) -> list[str]:
        """Its other words."""

    @abstractmethod
    def variables(self) -> Mapping[str, str]:
        """Its environment, beside PATH."""

    @abstractmethod
    def began(self) -> None:
        """Make the bucket, when the server answers."""

    @abstractmethod
    def secrets(self) -> dict[str, Secret]:
        """What clients have to say, by the names in `into.credentials`."""

    @property
    @abstractmethod
    def environment(self) -> dict[str, str]:
        """What a process finds in its environment to get at it."""

    def url(self, address: str) -> str:
        """The endpoint by an address."""
        return f"http://{address}"

    @property
    def endpoint(self) -> str:
        """Through the proxy."""
        return self.url(self.proxy.address)

    def access(self, direct: bool = False) -> StoreAccess:
        """What makes a client: through the proxy, or around it."""
        endpoint = self.url(f"127.0.0.1:{self.port}") if direct else self.endpoint
        return StoreAccess(endpoint, "us-east-1", tuple(sorted(self.secrets().items())), self.kind)

    def direct(self) -> Store:
        """A client that goes around the proxy."""
        return client(self.access(direct=True))

    def __enter__(self) -> StoreServer:
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.command, *self.options()],
                env={"PATH": os.environ["PATH"], **self.variables()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
        self.proxy.__enter__()
        deadline = time.monotonic() + 300
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    self.began()
                    return self
            assert self.process.poll() is None and time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.05)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.proxy.__exit__(kind, error, trace)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
