"""Run batches on the Spark of `kpipe serve`, from a process that has none."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kpipe.batch.batch import Batch, RangeReport
from kpipe.batch.host_stats import Work
from kpipe.errors import KpipeError, WorkerLost
from resources.home import Home
from resources.spark.driver.batch_runner import BatchRunner
from resources.spark.service import address_file, protocol
from resources.spark.service.protocol import Answer, Environment, Request

if TYPE_CHECKING:
    from resources.spark.task.task_spec import JobSpec

__all__ = ["ServiceSpark"]

# A service process that died is started again within a second the first time, and opens its socket a second later.
_PATIENCE_S = 30.0
# A running service restores a damaged file within a second (`SparkServer`).
_RESTORE_S = 5.0
_LOOK_S = 0.1


class ServiceSpark(BatchRunner):
    """The Spark of a running `kpipe serve`, as one run uses it.

    Its tasks end when this object closes the connection, and when this process ends in whatever way.

    Args:
        home: KPIPE_HOME.
        service: returns a name for the running service; empty if none runs.
        patience_s: how long to wait for a service that is starting.
        restore_s: how long to wait for a service that restores the file with its address.
    """

    def __init__(
        self, home: Home, service: Callable[[], str], patience_s: float = _PATIENCE_S, restore_s: float = _RESTORE_S
    ) -> None:
        self._home, self._service, self._patience_s, self._restore_s = home, service, patience_s, restore_s
        self._name = ""
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._running = False
        self._work = Work()

    def connect(self) -> None:
        """Connect, unless that is done. The service starts its Spark if that does not run yet.

        Raises:
            KpipeError: no service runs, its Spark does not start, or the file with its address stays unusable.
            NotAvailable: its versions differ from those of this process.
            WorkerLost: it accepts no connection, or ends.
        """
        with self._lock:
            self._connected()

    def run(self, batch: Batch, job: JobSpec, pool: str) -> list[RangeReport]:
        """See `BatchRunner`. The service chooses the pool.

        Raises:
            KpipeError: see `connect`; or a task failed.
            WorkerLost: the service ended meanwhile.
        """
        from resources.spark.driver.remote_workers import stored

        with self._lock:
            connection = self._connected()
        self._running = True
        try:
            protocol.send(connection, Request(batch, stored(job)))
            answer: Answer = protocol.receive(connection)
        except (EOFError, OSError) as error:
            self._close()
            raise self._lost(f"batch {batch.id}: {self._name} ended while it ran the tasks") from error
        except BaseException:  # an interrupt: the service cancels the tasks
            self._close()
            raise
        finally:
            self._running = False
        if answer.failure is not None:
            raise answer.failure.error()
        self._work = answer.work
        return list(answer.reports)

    def cancel(self) -> None:
        """See `BatchRunner`."""
        connection = self._connection
        if self._running and connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def work(self) -> Work:
        """See `BatchRunner`."""
        return self._work

    def close(self) -> None:
        """Close the connection, unless another thread is still opening it."""
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()

    def _connected(self) -> socket.socket:
        if self._connection is not None and protocol.has_closed(self._connection):
            self._close()  # the service was restarted between two batches
        if self._connection is None:
            self._connection = self._opened()
        return self._connection

    def _opened(self) -> socket.socket:
        """Connect to the service, and wait for it while it is starting."""
        began = usable = time.monotonic()
        while True:
            self._name = self._service()
            if not self._name:
                raise KpipeError(
                    f"KPIPE_SPARK=service: no kpipe serve runs on {self._home.path}",
                    "start `kpipe serve` with the same KPIPE_HOME, or unset KPIPE_SPARK",
                )
            try:
                connection = self._tried()
                usable = time.monotonic()
            except KpipeError as error:
                connection = None
                if time.monotonic() - usable > self._restore_s:
                    raise self._unusable(error) from error
            if connection is not None:
                return self._accepted(connection)
            if time.monotonic() - began > self._patience_s:
                missing = f"{address_file.path(self._home.state)} is missing"
                raise self._lost(
                    f"KPIPE_SPARK=service: {self._name} has accepted no connection for {self._patience_s:g} s: {missing}"
                )
            time.sleep(_LOOK_S)

    def _tried(self) -> socket.socket | None:
        """Return a connection; None if the service is starting.

        Raises:
            KpipeError: the file with the address is damaged, or stale.
        """
        address = address_file.published(self._home.state)
        if address is None:
            return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(address))
        except (OSError, ValueError) as error:  # ValueError: a zero byte
            connection.close()
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            file = address_file.path(self._home.state)
            raise KpipeError(f"{file} is stale: nothing accepts connections at {str(address)!r}: {reason}") from error
        return connection

    def _accepted(self, connection: socket.socket) -> socket.socket:
        try:
            with suppress(BrokenPipeError):  # it has refused the run already, and its reason can be received
                protocol.send_line(connection, protocol.greeting(Environment.own(self._home.path)))
            fields: dict[str, Any] = protocol.receive_line(connection)  # comes when Spark has started
        except (EOFError, OSError, ValueError) as error:
            connection.close()
            raise self._lost(f"KPIPE_SPARK=service: {self._name} ended while it started Spark") from error
        except BaseException:
            connection.close()
            raise
        refusal = protocol.refusal(fields)
        if refusal is not None:
            connection.close()
            raise refusal
        return connection

    def _unusable(self, error: KpipeError) -> KpipeError:
        return KpipeError(
            f"KPIPE_SPARK=service: {error.what}",
            f"{self._name} writes this file each second unless it fails: see what it prints, restart it, or unset KPIPE_SPARK",
        )

    def _lost(self, what: str) -> WorkerLost:
        return WorkerLost(what, "see what kpipe serve prints, and logs/spark.log in KPIPE_HOME; run it again when it runs")

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):  # the service has closed it; if not, another thread may be reading from it
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
