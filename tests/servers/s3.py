"""A real object store for tests: Versity's S3 gateway (Apache 2.0) on a folder of its own, on a port of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

import pytest

from resources.object_store.s3 import Store
from resources.secrets import Secret
from tests.faults.proxy import Proxy
from tests.ports import free_port

KEY, SECRET = "kpipe-test", "canary-77f0c1d2"
CREDENTIALS = {"access.key.id": Secret(KEY), "secret.access.key": Secret(SECRET)}
BUCKET = "lake"


def program() -> Path | None:
    """The gateway's program, where `make s3` puts it."""
    found = Path(sys.prefix) / "bin" / "versitygw"
    return found if found.is_file() else None


class S3Server:
    """One server, and a proxy before it that clients go through. A context manager; it ends with this process."""

    def __init__(self) -> None:
        found = program()
        if found is None:
            pytest.skip("no S3 server -> make s3")
        self.program, self.folder = found, Path(tempfile.mkdtemp(prefix="kpipe-s3-"))
        self.port = free_port()
        self.proxy = Proxy(self.port)

    def __enter__(self) -> S3Server:
        (self.folder / "data" / BUCKET).mkdir(parents=True)
        options = ["--port", f"127.0.0.1:{self.port}", "--quiet", "--health", "/up", "posix", str(self.folder / "data")]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(self.program), *options],
                env={"PATH": os.environ["PATH"], "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.proxy.__enter__()
        deadline = time.monotonic() + 300
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            assert self.process.poll() is None and time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.05)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.proxy.__exit__(kind, error, trace)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def environment(self) -> dict[str, str]:
        """What a process finds in its environment to get at it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def endpoint(self) -> str:
        """Through the proxy."""
        return f"http://{self.proxy.address}"

    def direct(self) -> Store:
        """A client that goes around the proxy."""
        return Store(CREDENTIALS, f"http://127.0.0.1:{self.port}")
