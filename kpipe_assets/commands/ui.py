"""`kpipe ui`: Dagster's web UI and daemon on this home, until Ctrl-C."""

from __future__ import annotations

import errno
import fcntl
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import click

from kpipe.errors import KpipeError
from kpipe_assets.guard import LOCATION
from resources.home import Home

__all__ = ["ui"]

_MODULE = "kpipe_assets.definitions"
_LOOPBACK = ("localhost", "::1")
_LOG_BYTES = 20_000_000
_PORTS = 50
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LOCATIONS = """{workspaceOrError {... on Workspace {locationEntries {
  locationOrLoadError {__typename ... on PythonError {message}}}}}}"""
_RELOAD = "mutation M($name: String!) {reloadRepositoryLocation(repositoryLocationName: $name) {__typename}}"
# What Dagster's daemon warns of whenever a home is new.
_HARMLESS = ("No cursor for event type",)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on. There is no authentication.")
@click.option("--port", type=click.IntRange(1, 65535), default=3000, show_default=True, help="Port; the next free one if taken.")
def ui(host: str, port: int) -> int:
    """Dagster's web UI and daemon on this home.

    Shows every pipeline of KPIPE_HOME/pipelines: topics, tables, their metadata and checks. Switch the sensor
    NAME_ingest on for continuous ingest. What is added to the folder, or changed, appears by itself. Ctrl-C stops it
    with everything that it has started; an interrupted batch writes nothing, and the next run begins there.

    \b
    Examples:
      kpipe ui
      kpipe ui --port 3001
    """
    from kpipe_assets.instance import make_storage, prepare

    home = Home.from_env()
    environ = prepare(home)
    with _only_one(home) as note:
        port = _free(host, port)
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        note(address)
        _advise(home, host)
        make_storage(environ)
        return _Ui(home, host, port, address, environ).run()


class _Ui:
    """The processes of one `kpipe ui`, as the terminal sees them."""

    def __init__(self, home: Home, host: str, port: int, address: str, environ: dict[str, str]) -> None:
        self._home, self._host, self._port, self._address, self._environ = home, host, port, address, environ
        self._log = home.logs / "dagster.log"
        self._asked = threading.Event()
        self._shown = 0

    def run(self) -> int:
        """Start, say where, wait, stop."""
        if self._log.exists() and self._log.stat().st_size > _LOG_BYTES:
            self._log.replace(self._log.with_suffix(".log.1"))
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            with self._log.open("ab") as log:
                self._shown = log.tell()
                folder = tempfile.mkdtemp(prefix="kpipe-ui-")  # of a short path, since a socket's is limited
                guard = subprocess.Popen(
                    [sys.executable, "-m", "kpipe_assets.guard", folder, self._host, str(self._port), _MODULE],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=self._environ,
                    start_new_session=True,
                )
            try:
                return self._watch(guard)
            finally:
                guard.communicate()  # closes its stdin, upon which it ends everything, and waits
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _watch(self, guard: subprocess.Popen[bytes]) -> int:
        click.echo("starting Dagster ...")
        while not self._asked.is_set() and not self._answers():
            if guard.poll() is not None:
                raise self._failed()
            self._asked.wait(0.1)
        if not self._asked.is_set():
            click.echo(f"Dagster's UI: {self._address}\nlog: {self._log}\nCtrl-C stops it")
        seen = _definitions(self._home)
        while not self._asked.wait(1):
            self._tell()
            if guard.poll() is not None:
                raise self._failed()
            now = _definitions(self._home)
            if now != seen:
                seen = now
                self._reload()
        click.echo("stopping ...", err=True)
        return 0

    def _stop(self, *_: object) -> None:
        self._asked.set()

    def _answers(self) -> bool:
        """Whether a browser would see the definitions, or what is wrong with them."""
        try:
            found = _graphql(_reachable(self._address), _LOCATIONS, {})
        except (OSError, ValueError):
            return False
        known = [entry["locationOrLoadError"] or {} for entry in found["data"]["workspaceOrError"].get("locationEntries", ())]
        return any(item and "UserCodeUnreachable" not in item.get("message", "") for item in known)

    def _tell(self) -> None:
        """Warnings and errors of the log since the last time."""
        with self._log.open("rb") as log:
            log.seek(self._shown)
            lines = log.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._shown += sum(len(line) for line in whole)
        for line in whole:
            text = _COLOURS.sub("", line.decode("utf-8", "replace")).rstrip()
            if re.search(r" - (WARNING|ERROR|CRITICAL) - ", text) and not any(known in text for known in _HARMLESS):
                click.echo(text, err=True)

    def _reload(self) -> None:
        """Show the definitions as they are now. What is wrong with one of them comes with the log."""
        try:
            _graphql(_reachable(self._address), _RELOAD, {"name": LOCATION})
            click.echo(f"definitions read again: {', '.join(self._home.names()) or 'none'}")
        except (OSError, ValueError) as error:
            click.echo(f"definitions could not be read again: {error} -> Reload in the UI", err=True)

    def _failed(self) -> KpipeError:
        end = self._log.read_bytes()[self._shown :].decode("utf-8", "replace").strip().splitlines()
        return KpipeError(f"Dagster ended by itself: {end[-1] if end else 'no message'}", f"see {self._log}")


@contextmanager
def _only_one(home: Home) -> Iterator[Any]:
    """Two daemons on one home would start every run twice."""
    with (home.state / "ui.lock").open("a+", encoding="utf-8") as file:
        if not _taken(file):
            file.seek(0)
            where = file.read().strip()
            raise KpipeError(f"the UI of {home.path} is running already{where and ' on ' + where}", "open it, or stop it")

        def note(address: str) -> None:
            file.truncate(0)
            file.write(address)
            file.flush()

        yield note
        file.truncate(0)


def _taken(file: IO[str]) -> bool:
    """Lock it. Who only looks (kpipe_assets/marks.py) holds it for a moment, and is waited for."""
    for _ in range(20):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
    return False


def _free(host: str, wanted: int) -> int:
    """The port, or the next one that is free.

    Raises:
        KpipeError: none is, or the host is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in range(wanted, min(wanted + _PORTS, 65536)):
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except PermissionError as error:
                raise KpipeError(f"port {port} is reserved", "choose one of 1024 or more") from error
            except socket.gaierror as error:
                raise KpipeError(f"--host {host}: {error.strerror}", "give an address of this machine") from error
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    raise KpipeError(f"{host} is not an address of this machine", "give one, or none for 127.0.0.1") from error
                continue
            return port
    raise KpipeError(f"no free port from {wanted} on", "choose another with --port")


def _advise(home: Home, host: str) -> None:
    """What a person should know before the UI is there."""
    from resources.local.broker import LocalBroker

    if not (host.startswith("127.") or host in _LOOPBACK):
        click.echo(
            f"warning: anybody who reaches {host} can start runs and read metadata; Dagster has no authentication", err=True
        )
    if home.broker.is_dir() and not LocalBroker(home.broker).status().running:
        click.echo("the local Kafka of this home is not running: `kpipe broker start` starts it")
    if not home.names():
        click.echo(f"no pipelines yet: `kpipe demo` makes one, or write {home.pipelines}/NAME.yaml; it appears by itself")


def _reachable(address: str) -> str:
    """From here: 0.0.0.0 is no address to connect to."""
    return address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _definitions(home: Home) -> dict[str, int]:
    """Files of definitions with the times of their last change."""
    found = {}
    for file in home.pipelines.glob("*.yaml"):
        with suppress(FileNotFoundError):
            found[file.name] = file.stat().st_mtime_ns
    return found


def _graphql(address: str, query: str, variables: dict[str, Any]) -> Any:
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{address}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)
