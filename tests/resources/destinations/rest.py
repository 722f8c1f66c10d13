"""A real REST catalogue for tests: the reference server of Iceberg's own project, from its jars (`make lakes`)."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import pyspark
import pytest

from resources.java import find_java
from tests.faults.proxy import Proxy

MAIN = "org.apache.iceberg.rest.RESTCatalogServer"


def jars() -> list[str] | None:
    """The server's jars, and Hadoop's from Spark, with which it writes files."""
    folder = Path(sys.prefix) / "share" / "iceberg-rest"
    spark = Path(pyspark.__file__).parent / "jars"
    return [f"{folder}/*", *map(str, spark.glob("hadoop-client-*.jar"))] if folder.is_dir() else None


class RestServer:
    """One server, and a proxy before it. A context manager; it ends with this process."""

    def __init__(self) -> None:
        found = jars()
        if found is None:
            pytest.skip("no REST catalogue -> make lakes")
        self.jars, self.folder = found, Path(tempfile.mkdtemp(prefix="kpipe-rest-"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.proxy = Proxy(self.port)

    def __getstate__(self) -> dict[str, Any]:
        """Where it is: what another process needs."""
        return {"port": self.port, "uri_": self.uri}

    @property
    def uri(self) -> str:
        """Through the proxy."""
        return str(self.__dict__.get("uri_") or f"http://{self.proxy.address}")

    @property
    def direct(self) -> str:
        """Around it."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> RestServer:
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(find_java().executable), "-Xmx256m", "-cp", ":".join(self.jars), MAIN],
                env={
                    "PATH": os.environ["PATH"],
                    "CATALOG_REST_PORT": str(self.port),
                    "CATALOG_WAREHOUSE": f"file://{self.folder}/warehouse",
                    "CATALOG_URI": f"jdbc:sqlite:file:{self.folder}/catalog.db",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.proxy.__enter__()
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"{self.direct}/v1/config", timeout=5):
                    return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    said = (self.folder / "log").read_text()
                    self.__exit__(None, None, None)
                    raise AssertionError(said) from None
                time.sleep(0.1)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.proxy.__exit__(kind, error, trace)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
