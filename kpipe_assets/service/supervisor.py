"""Start the process that runs the pipelines, start it again when it dies, and pass signals on.

Java and Python workers belong to the session of that process. The supervisor ends all of them, also after their parent was
killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import psutil

from kpipe_assets.dagster_server.session_processes import of_session
from kpipe_assets.runs.backoff import Backoff
from kpipe_assets.service.http_settings import HttpSettings
from resources.home import Home
from resources.spark.service import address_file

__all__ = ["Supervisor"]

_POLL_S = 0.1
_BACKOFF = Backoff(first_s=1, longest_s=60)
# A process that ends with one of these would end so again: invalid usage, or an operator must decide.
_FINAL = (2, 3)


class Supervisor:
    """The supervisor of one service process.

    Args:
        home: KPIPE_HOME.
        lock: file descriptor of the home's lock.
        listening: file descriptor of the HTTP server's socket; -1 for none.
        report: prints a line.
        as_json: whether the process writes a JSON line for each batch.
        http: settings of the HTTP server; None if there is no socket.
    """

    def __init__(
        self,
        home: Home,
        lock: int,
        listening: int,
        report: Callable[[str], None],
        as_json: bool = False,
        http: HttpSettings | None = None,
    ) -> None:
        self._home, self._report, self._http = home, report, http
        self._handles = [handle for handle in (lock, listening) if handle >= 0]
        self._command = [sys.executable, "-m", "kpipe_assets.service.process", str(lock), str(listening)]
        self._command += ["json"] if as_json else []
        self._signals = 0

    def run(self) -> int:
        """Run until a signal, and return the exit status of the process."""
        before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        failures = 0
        try:
            while True:
                began = time.monotonic()
                status = self._one()
                if self._signals:
                    return 0 if status == 0 else 130
                if status in _FINAL:
                    return status
                failures = 1 if time.monotonic() - began > _BACKOFF.longest_s else failures + 1
                wait = _BACKOFF.wait_s(failures)
                how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
                self._report(f"the service process has ended {how}: it starts again in {wait:g} s")
                if not self._sleep(wait):
                    return 0
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _one(self) -> int:
        """Start the process, and wait until it has ended. Return its exit status; negative: the signal that killed it."""
        # With many threads, each with an arena of its own, glibc would keep several times the memory in use.
        self._forget_address()  # of a service that was killed
        environ = {"MALLOC_ARENA_MAX": "2", **os.environ, "KPIPE_HOME": str(self._home.path)}
        child = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, pass_fds=self._handles, env=environ, start_new_session=True
        )
        passed = 0
        try:
            self._configure(child)
            while child.poll() is None:
                if self._signals > passed:
                    passed += 1
                    if passed > 1:
                        self._report("stopping now: the current batches are discarded")
                        break
                    child.send_signal(signal.SIGTERM)
                time.sleep(_POLL_S)
        finally:
            _kill_session(child.pid)
            self._forget_address()
        return child.wait()

    def _forget_address(self) -> None:
        """Remove the address of a process that has ended, so that runs wait for the next one."""
        with suppress(OSError):  # the service reports that it cannot write the file
            address_file.remove(self._home.state)

    def _configure(self, child: subprocess.Popen[bytes]) -> None:
        """Send the settings through standard input, which stays open: arguments and variables can be read by others."""
        if self._http is not None and child.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended already
                child.stdin.write(self._http.line().encode())
                child.stdin.flush()

    def _sleep(self, seconds: float) -> bool:
        """Sleep. Return whether no signal has arrived."""
        until = time.monotonic() + seconds
        while not self._signals and time.monotonic() < until:
            time.sleep(_POLL_S)
        return not self._signals

    def _handle(self, number: int, _: FrameType | None) -> None:
        self._signals += 1


def _kill_session(session: int) -> None:
    """Kill all processes of a session, until there are none left."""
    while processes := of_session(session):
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(processes, timeout=5)
