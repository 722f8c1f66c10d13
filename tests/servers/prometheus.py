"""A real Prometheus for tests: Debian's, in a folder of its own, on a port of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ports import free_port

__all__ = ["PrometheusServer", "promtool"]


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} -> make prometheus")
    return found


def promtool(*words: str, stdin: str = "") -> str:
    """Run promtool; it must succeed."""
    done = subprocess.run([_program("promtool"), *words], input=stdin, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class PrometheusServer:
    """One server. A context manager.

    Args:
        folder: for its data, its configuration and the rules.
        configuration: of prometheus.yml.
    """

    def __init__(self, folder: Path, configuration: dict[str, Any]) -> None:
        self._binary, self.folder, self.port = _program("prometheus"), folder, free_port()
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))

    def __enter__(self) -> PrometheusServer:
        with (self.folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "setpriv", "--pdeathsig", "KILL", self._binary, f"--config.file={self.folder}/prometheus.yml",
                    f"--storage.tsdb.path={self.folder}/data", f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.terminate()
            try:
                self._process.wait(300)
            finally:
                self._process.kill()

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its API; wait until it listens."""
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        until = time.monotonic() + 300
        while time.monotonic() < until:
            assert self._process.poll() is None, (self.folder / "prometheus.log").read_text()
            try:
                with direct.open(address, timeout=30) as answer:
                    return json.load(answer)["data"]
            except urllib.error.HTTPError as error:
                if error.code != 503:  # else it replays its log
                    raise AssertionError(f"{parameters}: {error.read().decode()}") from error
            except OSError:
                pass
            time.sleep(0.1)
        raise AssertionError("Prometheus does not answer")

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression now."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found
