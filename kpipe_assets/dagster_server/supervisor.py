"""Start Dagster's processes, and end all of them when standard input closes, also after `kpipe ui` was killed.

The supervisor leads its own session. So it can find and end all processes that a run starts (Spark, its workers), and Ctrl-C
on a terminal reaches only `kpipe ui`. It imports only the standard library and psutil.

Usage: `python -m kpipe_assets.dagster_server.supervisor FOLDER HOST PORT FD MODULE`. FOLDER is private, contains the code
servers' sockets and the web server's access rules, and is removed at the end. FD is the inherited socket that listens on HOST
and PORT.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

import kpipe_assets
from kpipe_assets.dagster_server import LOCATION
from kpipe_assets.dagster_server.session_processes import of_session

__all__ = ["LOCATION", "READY", "RULES", "main"]

#: Name of the file in FOLDER with the web server's access rules (kpipe_assets/dagster_server/access_rules.py).
RULES = "rules.json"
#: Name of the file in FOLDER that the web server creates when it is about to answer.
READY = "ready"
_PATIENCE_S = 10.0
_WORKSPACE = """\
load_from:
  - grpc_server: {{socket: {socket}, location_name: {name}}}
"""


class Supervisor:
    """Dagster's processes: first the code server, and when it answers, the web server and the daemon.

    Args:
        folder: private folder for sockets, with the access rules.
        host: host of the web server.
        port: port of the web server.
        listening: file descriptor of its socket.
        module: module with the definitions.
    """

    def __init__(self, folder: Path, host: str, port: int, listening: int, module: str) -> None:
        self._rules, self._socket, self._workspace = folder / RULES, folder / "code.sock", folder / "workspace.yaml"
        self._host, self._port, self._listening, self._module = host, port, listening, module
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = False

    def run(self) -> int:
        """Run until standard input closes (return 0) or a process ends unexpectedly (return 1)."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._stop)
        self._workspace.write_text(_WORKSPACE.format(socket=self._socket, name=LOCATION), encoding="utf-8")
        try:
            self._code_server()
            self._web()
            while not self._answers():
                if self._ended() or self._stop_requested(0.1):
                    return 1 if self._ended() else 0
            self._daemon()
            while not self._stop_requested(0.5):
                if self._ended():
                    return 1
            return 0
        finally:
            self._end_all()

    def _code_server(self) -> None:
        # A proxy that starts the real code server: "Reload" in the UI starts a new one, and runs of the old one continue.
        root = Path(str(kpipe_assets.__file__)).resolve().parent.parent  # Dagster puts it on `sys.path`
        self._start(
            "code",
            *("kpipe_assets.dagster_server.code_server", "--socket", str(self._socket), "--module-name", self._module),
            *("--working-directory", str(root), "--location-name", LOCATION, "--use-python-environment-entry-point"),
            *("--log-level", "warning"),
        )

    def _web(self) -> None:
        self._start(
            "web",
            *(
                "kpipe_assets.metrics.webserver",
                str(self._rules),
                str(self._listening),
                "--workspace",
                str(self._workspace),
            ),
            *("--host", self._host, "--port", str(self._port), "--dagster-log-level", "warning"),
            *("--uvicorn-log-level", "warning"),  # at `info`, it would log the printed address with its token
            pass_fds=(self._listening,),
        )

    def _daemon(self) -> None:
        self._start("daemon", "kpipe_assets.dagster_server.daemon", "run", "--workspace", str(self._workspace))

    def _start(self, name: str, *arguments: str, pass_fds: tuple[int, ...] = ()) -> None:
        command = [sys.executable, "-m", "kpipe_assets.dagster_server.closed_process", *arguments]
        self._children[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=pass_fds)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self._socket)) == 0

    def _ended(self) -> bool:
        return any(child.poll() is not None for child in self._children.values())

    def _stop_requested(self, seconds: float) -> bool:
        readable, _, _ = select.select([0], [], [], seconds)
        return self._stopping or bool(readable)

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _end_all(self) -> None:
        """Send SIGTERM to the processes of this session, then SIGKILL.

        Runs and the daemon get time to report their interruption. Web server and code server are killed, as they would wait
        for open pages or timeouts and have no state to lose.
        """
        began = time.monotonic()
        servers = {child.pid for name, child in self._children.items() if name != "daemon"}
        for process in of_session(os.getsid(0)):
            if not _is_server(process, servers):
                _send(process, signal.SIGTERM)
        while left := of_session(os.getsid(0)):
            for child in self._children.values():
                child.poll()  # reaps it
            waited = time.monotonic() - began
            if waited > _PATIENCE_S or all(_is_server(process, servers) for process in left):
                for process in left:
                    _send(process, signal.SIGKILL)
            if waited > 2 * _PATIENCE_S:
                break
            time.sleep(0.05)


def _is_server(process: psutil.Process, servers: set[int]) -> bool:
    """Return whether this is the web server, the code server, its proxy, or Python's helper process of it."""
    try:
        return (
            process.pid in servers
            or process.ppid() in servers
            or any("multiprocessing.resource_tracker" in word for word in process.cmdline())
        )
    except psutil.Error:
        return True


def _send(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except (OSError, psutil.Error):
        return


def main() -> int:
    """See the module."""
    folder, host, port, listening, module = sys.argv[1:6]
    try:
        return Supervisor(Path(folder), host, int(port), int(listening), module).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
