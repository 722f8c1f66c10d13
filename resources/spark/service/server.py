"""Run the batches of other processes on this process's SparkContext (`kpipe serve`).

Each connection is one run, and has a thread and a pool of Spark of its own. Its tasks are cancelled when the other side closes
the connection. The operating system closes the connection of a process that was killed.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.batch.host_stats import Work
from kpipe.errors import KpipeError, WorkerLost
from resources.home import Home
from resources.spark.driver.batch_runner import BatchRunner
from resources.spark.jvm.scratch_folders import sockets, sweep
from resources.spark.service import address_file, protocol
from resources.spark.service.protocol import Answer, Environment, Request

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["SparkServer"]

_SOCKET = "runs"
# How soon a closed connection cancels its tasks, and how often that is repeated until they have ended.
_LOOK_S = 0.25
# How often the socket and the file with its path are checked.
_CHECK_S = 1.0
_GREETING_S, _SEND_S = 10.0, 60
# Each has a thread, and at most one job at a time.
_MOST_RUNS = 64


class SparkServer:
    """Accepts runs of other processes of this home and user.

    Args:
        home: KPIPE_HOME.
        context: returns the SparkContext, started if necessary.
        has_ended: returns whether that context has ended.
        report: prints a line.
    """

    def __init__(
        self,
        home: Home,
        context: Callable[[], SparkContext],
        has_ended: Callable[[], bool],
        report: Callable[[str], None],
    ) -> None:
        self._home, self._context, self._has_ended, self.report = home, context, has_ended, report
        self._ended = threading.Event()
        self._runs: dict[int, _Run] = {}
        # The thread of `_accept` opens the socket again where that is necessary.
        self._opening = threading.Lock()
        self._listening: socket.socket | None = None
        self._address: Path | None = None
        self._next_check, self._trouble = 0.0, ""

    def start(self) -> None:
        """Open the socket, and accept runs in a thread.

        The socket is in a folder that only this user can enter. Pipelines do not need it: a failure is reported, and the
        thread tries again.
        """
        sweep(self._home.path)
        self._check()
        threading.Thread(target=self._accept, name="runs of other processes", daemon=True).start()

    def busy(self) -> int:
        """Return how many batches are at work."""
        return sum(run.runner is not None for run in list(self._runs.values()))

    def close(self) -> None:
        """Accept no more runs and no more batches. Those at work continue."""
        self._ended.set()
        with self._opening:
            if self._address is not None:
                address_file.withdraw(self._home.state, self._address)
            self._close_socket()
        for run in list(self._runs.values()):
            run.end()

    def _accept(self) -> None:
        """Accept connections, and cancel the jobs of those that were closed, until the process ends."""
        while True:
            listening = self._listening
            try:
                if listening is None:
                    time.sleep(_LOOK_S)
                else:
                    self._begin(listening.accept()[0])
            except TimeoutError:
                pass
            except OSError:  # `close` was called, or this process has too many files
                time.sleep(_LOOK_S)
            for run in list(self._runs.values()):
                run.look()
            if time.monotonic() >= self._next_check:
                self._check()

    def _check(self) -> None:
        """Open the socket and write the file with its path, where they are missing or another's."""
        self._next_check = time.monotonic() + _CHECK_S
        with self._opening:
            if self._ended.is_set():
                return
            try:
                self._restore()
                self._trouble = ""
            except OSError as error:
                if str(error) != self._trouble:
                    self.report(f"runs with KPIPE_SPARK=service cannot use this service: {error}")
                self._trouble = str(error)

    def _restore(self) -> None:
        address = sockets(self._home.path) / _SOCKET
        if self._listening is None or not address.is_socket():
            self._close_socket()
            self._listening = _listen(address)
            if self._address is not None:
                self.report(f"{address} was removed: it was opened again")
        try:
            found = address_file.published(self._home.state)
        except KpipeError:  # damaged
            found = None
        if found != address:
            address_file.publish(self._home.state, address)
            if self._address is not None:
                self.report(f"{address_file.path(self._home.state)} was changed or removed: it was written again")
        self._address = address

    def _close_socket(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def _begin(self, connection: socket.socket) -> None:
        slot = next((slot for slot in range(_MOST_RUNS) if slot not in self._runs), None)
        if slot is None:
            with connection, suppress(OSError):
                protocol.send_line(connection, protocol.refused(_full()))
            return
        self._runs[slot] = run = _Run(self, slot, connection)
        run.start()

    def accept(self, connection: socket.socket) -> BatchRunner | None:
        """Check a new run, and start Spark for it. Return None if it was refused."""
        from resources.spark.driver.context_runner import ContextRunner

        connection.settimeout(_GREETING_S)
        theirs = protocol.greeted(protocol.receive_line(connection))
        connection.settimeout(None)
        runner: BatchRunner | None = None
        refusal: KpipeError | None = theirs.differs(Environment.own(self._home.path))
        if refusal is None:
            try:
                runner = ContextRunner(self._context(), self._home.logs / "spark.log")
            except KpipeError as error:
                refusal = error
            else:
                refusal = _died("KPIPE_SPARK=service") if self._has_ended() else None
        protocol.send_line(connection, protocol.refused(refusal) if refusal is not None else {})
        return runner if refusal is None else None

    def answer(self, runner: BatchRunner, request: Request, pool: str) -> Answer:
        """Run a batch. Errors become part of the answer."""
        from resources.spark.task.task_spec import Failure

        where = f"batch {request.batch.id}"
        try:
            reports = runner.run(request.batch, request.job, pool)
            return Answer(tuple(reports), runner.work())
        except Exception as error:
            trace = traceback.format_exc()
            if self._has_ended():
                failure = Failure.of(_died(where), trace)
            elif isinstance(error, KpipeError):
                failure = Failure.of(error, trace)
            else:  # a defect, which must not end the thread without an answer
                stack = "".join(traceback.format_tb(error.__traceback__))  # the answer has its text, which may quote a record
                self.report(f"a run of another process: unexpected {type(error).__name__}:\n{stack}")
                failure = Failure("KpipeError", f"{where}: unexpected {type(error).__name__} in kpipe serve", "", trace)
            return Answer((), Work(), failure)

    def has_ended(self) -> bool:
        """Return whether `close` was called."""
        return self._ended.is_set()

    def forget(self, slot: int) -> None:
        """Let another run have the slot."""
        self._runs.pop(slot, None)


class _Run(threading.Thread):
    """The connection of one run.

    Attributes:
        runner: runs a batch now, or has run one whose answer is being sent; else None.
    """

    def __init__(self, server: SparkServer, slot: int, connection: socket.socket) -> None:
        super().__init__(name=f"run {slot} of another process", daemon=True)
        self._server, self._slot, self._connection = server, slot, connection
        self.runner: BatchRunner | None = None

    def run(self) -> None:
        """Answer requests until the connection is closed, or the server ends."""
        server, connection = self._server, self._connection
        pool = f"run {self._slot}"  # Spark never removes a pool: names of pools are used again
        runner: BatchRunner | None = None
        try:
            # A process that is suspended must not keep the service from ending.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_S, 0))
            with connection, suppress(EOFError, OSError):  # the run has ended
                runner = server.accept(connection)
                while runner is not None and not server.has_ended():
                    request = protocol.receive(connection)
                    self.runner = runner
                    protocol.send(connection, server.answer(runner, request, pool))
                    self.runner = None
        except Exception as error:  # not a run of this kpipe, or a defect: neither must end the service
            server.report(f"a connection to the service's Spark: unexpected {type(error).__name__}: {error}")
        finally:
            self.runner = None
            if runner is not None:
                runner.release()
            server.forget(self._slot)

    def look(self) -> None:
        """Cancel the batch at work if the other side has closed the connection."""
        runner = self.runner
        if runner is not None and protocol.has_closed(self._connection):
            with suppress(Exception):  # the JVM has ended
                runner.cancel()

    def end(self) -> None:
        """Close the connection, unless a batch is at work: its answer is still sent."""
        if self.runner is None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)


def _listen(address: Path) -> socket.socket:
    """Open a socket in a folder that only this user can enter."""
    folder = address.parent
    with suppress(FileExistsError):  # it was removed, as programs that clean /tmp do
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone")
    address.unlink(missing_ok=True)
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.bind(str(address))
        opened.listen(_MOST_RUNS)
    except BaseException:
        opened.close()
        raise
    opened.settimeout(_LOOK_S)
    return opened


def _full() -> KpipeError:
    return WorkerLost(
        f"KPIPE_SPARK=service: {_MOST_RUNS} runs use the Spark of kpipe serve already (pid {os.getpid()})",
        "run it again when one of them has ended, or unset KPIPE_SPARK",
    )


def _died(doing: str) -> WorkerLost:
    return WorkerLost(
        f"{doing}: the Spark of kpipe serve has ended",
        "the service starts it again; logs/spark.log in KPIPE_HOME may contain the reason",
    )
