"""`kpipe ui`: run Dagster's web UI and daemon on KPIPE_HOME until Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from kpipe.errors import KpipeError
from kpipe_assets.dagster_server.access_rules import Rules, is_loopback
from kpipe_assets.dagster_server.listening import listen, url
from kpipe_assets.dagster_server.supervisor import LOCATION, READY, RULES
from kpipe_assets.runs.service_lock import take
from kpipe_assets.terminal import echo
from resources.extras import require
from resources.home import Home

__all__ = ["ui"]

_MODULE = "kpipe_assets.definitions"
_TOKEN_BYTES = 32
_LOG_BYTES = 20_000_000
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LOCATIONS = """{workspaceOrError {... on Workspace {locationEntries {
  locationOrLoadError {__typename ... on PythonError {message}}}}}}"""
_RELOAD = "mutation M($name: String!) {reloadRepositoryLocation(repositoryLocationName: $name) {__typename}}"
# Warnings of Dagster's daemon in every new home.
_HARMLESS = ("No cursor for event type",)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on, without encryption.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=3000, show_default=True, help="Port. If it is in use, the next free one."
)
@click.option("--allow-host", "names", multiple=True, metavar="NAME", help="Accept requests for this host name, too. Repeatable.")
@click.option("--no-token", is_flag=True, help="Require no token: a proxy authenticates users.")
def ui(host: str, port: int, names: tuple[str, ...], no_token: bool) -> int:
    """Start Dagster's web UI and daemon for the pipelines of KPIPE_HOME.

    The UI shows topics, tables, their metadata and asset checks. For continuous ingest, start the sensor NAME_ingest.
    Changes in KPIPE_HOME/pipelines are loaded automatically. Ctrl-C stops the UI and all its runs. An interrupted batch
    writes no rows, and the next run repeats it.

    A process with a Spark waits for the next run, so that the run starts faster. It uses up to 300 MB of memory; with
    KPIPE_WARM_RUNS=0 each run starts its own.

    The printed address contains a token that is new with every start. Scripts read it from KPIPE_HOME/state/ui.token.

    \b
    Examples:
      kpipe ui
      kpipe ui --port 3001
      kpipe ui --allow-host kpipe.example.com --no-token   # behind a proxy that authenticates
    """
    from kpipe_assets.dagster_server.instance import make_storage, prepare

    require("ui", "kpipe ui")
    home = Home.from_env()
    environ = prepare(home)
    with _only_one(home) as note:
        listening = listen(host, port)
        bound, port = listening.getsockname()[:2]
        # A browser may resolve `localhost` to another address first, where another user may listen.
        address = url(bound if host == "localhost" else host, port)
        note(address)
        _advise(home, host, no_token)
        make_storage(environ)
        if not is_loopback(host):
            names = (*names, socket.gethostname())
        rules = Rules(host, port, names, None if no_token else secrets.token_urlsafe(_TOKEN_BYTES))
        with listening, _token_file(home, rules.token) as file:
            return _Ui(home, rules, address, listening, file, environ).run()


class _Ui:
    """Start, monitor and stop the processes of one `kpipe ui`.

    Args:
        listening: socket of the web server. This process keeps it open, too, because it sends the token to that port: no
            other user can listen there.
    """

    def __init__(
        self, home: Home, rules: Rules, address: str, listening: socket.socket, token_file: Path, environ: dict[str, str]
    ) -> None:
        self._home, self._rules, self._address, self._environ = home, rules, address, environ
        self._listening, self._token_file = listening, token_file
        bound, port = listening.getsockname()[:2]
        self._own_address = url({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bound, bound), port)
        self._log = home.logs / "dagster.log"
        self._stopping = threading.Event()
        self._shown = 0

    def run(self) -> int:
        """Start the processes, print the address, wait for a signal, stop them."""
        if self._log.exists() and self._log.stat().st_size > _LOG_BYTES:
            self._log.replace(self._log.with_suffix(".log.1"))
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            with self._log.open("ab") as log:
                self._shown = log.tell()
                folder = tempfile.mkdtemp(prefix="kpipe-ui-")  # a short path, because that of a socket is limited
                self._rules.write(Path(folder) / RULES)
                handle = self._listening.fileno()
                where = [folder, self._rules.host, str(self._rules.port), str(handle)]
                supervisor = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "kpipe_assets.dagster_server.closed_process",
                        "kpipe_assets.dagster_server.supervisor",
                        *where,
                        _MODULE,
                    ],
                    pass_fds=(handle,),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=self._environ,
                    start_new_session=True,
                )
            try:
                return self._watch(supervisor, Path(folder) / READY)
            finally:
                supervisor.communicate()  # closes its stdin, the signal to stop all processes, and waits
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _watch(self, supervisor: subprocess.Popen[bytes], ready: Path) -> int:
        echo("starting Dagster ...")
        # The port accepts connections at once, but the web server answers them only when it is ready.
        while not self._stopping.is_set() and not (ready.exists() and self._answers()):
            if supervisor.poll() is not None:
                raise self._failed()
            self._stopping.wait(0.1)
        if not self._stopping.is_set():
            echo(f"Dagster's UI: {self._printed()}\nlog: {self._log}\nCtrl-C stops it")
        seen = _definitions(self._home)
        while not self._stopping.wait(1):
            self._print_warnings()
            if supervisor.poll() is not None:
                raise self._failed()
            now = _definitions(self._home)
            if now != seen:
                seen = now
                self._reload()
        echo("stopping ...", err=True)
        return 0

    def _printed(self) -> str:
        """Return the address with the token. If stdout is not a terminal, it may be a log: name the token's file instead."""
        if self._rules.token is None:
            return self._address
        if sys.stdout.isatty():
            return f"{self._address}/?token={self._rules.token}"
        return f"{self._address}\ntoken: in {self._token_file} (open {self._address}/?token=TOKEN)"

    def _stop(self, *_: object) -> None:
        self._stopping.set()

    def _answers(self) -> bool:
        """Return whether the UI has loaded the code location, or its load error."""
        try:
            answer = self._graphql(_LOCATIONS, {}, timeout=10)
        except (OSError, ValueError):
            return False
        locations = [
            entry["locationOrLoadError"] or {} for entry in answer["data"]["workspaceOrError"].get("locationEntries", ())
        ]
        return any(item and "UserCodeUnreachable" not in item.get("message", "") for item in locations)

    def _print_warnings(self) -> None:
        """Print new warnings and errors of the log."""
        with self._log.open("rb") as log:
            log.seek(self._shown)
            lines = log.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._shown += sum(len(line) for line in whole)
        for line in whole:
            text = _COLOURS.sub("", line.decode("utf-8", "replace")).rstrip()
            if re.search(r" - (WARNING|ERROR|CRITICAL) - ", text) and not any(harmless in text for harmless in _HARMLESS):
                echo(text, err=True)

    def _reload(self) -> None:
        """Reload the definitions in Dagster. Load errors are in the log."""
        try:
            self._graphql(_RELOAD, {"name": LOCATION}, timeout=120)
            echo(f"definitions reloaded: {', '.join(self._home.names()) or 'none'}")
        except (OSError, ValueError) as error:
            echo(f"definitions: could not be reloaded: {error} -> Reload in the UI", err=True)

    def _graphql(self, query: str, variables: dict[str, Any], timeout: float) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._rules.token}"}
        request = urllib.request.Request(f"{self._own_address}/graphql", body, headers)
        direct = urllib.request.build_opener(
            urllib.request.ProxyHandler({})
        )  # do not send the token to a proxy of the environment
        with direct.open(request, timeout=timeout) as answer:
            return json.load(answer)

    def _failed(self) -> KpipeError:
        end = self._log.read_bytes()[self._shown :].decode("utf-8", "replace").strip().splitlines()
        return KpipeError(f"Dagster stopped unexpectedly: {end[-1] if end else 'no message'}", f"see {self._log}")


@contextmanager
def _only_one(home: Home) -> Iterator[Any]:
    """Lock the home: two daemons on one home would start every run twice."""
    with (home.state / "ui.lock").open("a+", encoding="utf-8") as file:
        if not take(file):
            file.seek(0)
            address = file.read().strip()
            hint = f"open it with the token of {home.state / 'ui.token'}, or stop it"
            raise KpipeError(f"the UI of {home.path} is running already{address and ' on ' + address}", hint)

        def note(address: str) -> None:
            file.truncate(0)
            file.write(address)
            file.flush()

        yield note
        file.truncate(0)


@contextmanager
def _token_file(home: Home, token: str | None) -> Iterator[Path]:
    """Write the token to state/ui.token for scripts of this user; remove it at the end."""
    file = home.state / "ui.token"
    file.unlink(missing_ok=True)
    if token is not None:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(handle, token.encode())
        os.close(handle)
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def _advise(home: Home, host: str, no_token: bool) -> None:
    """Print warnings and hints before the UI starts."""
    from resources.dev_broker.broker import LocalBroker

    if no_token:
        echo(f"warning: --no-token: every user and program that can connect to {host} can run code as this user", err=True)
    elif not is_loopback(host):
        echo(f"warning: connections to {host} are not encrypted: others on the network can read the token", err=True)
    if home.broker.is_dir() and not LocalBroker(home.broker).status().running:
        echo("the local Kafka of this home is not running: start it with `kpipe broker start`")
    if not home.names():
        echo(f"no pipelines yet: run `kpipe demo`, or write {home.pipelines}/NAME.yaml; the UI loads it automatically")


def _definitions(home: Home) -> dict[str, int]:
    """Return the names of definition files with their modification times (ns)."""
    modified = {}
    for file in home.pipelines.glob("*.yaml"):
        with suppress(FileNotFoundError):
            modified[file.name] = file.stat().st_mtime_ns
    return modified
