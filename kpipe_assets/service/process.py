"""The process that runs the pipelines; started by `Supervisor`.

Usage: `python -m kpipe_assets.service.process LOCK SOCKET [json]`. LOCK and SOCKET are file descriptors that it inherits: of
the home's lock, which it keeps until it ends, and of the HTTP server's listening socket, or -1. With `json` it writes a line
for each batch to stdout. Standard input begins with a line of `HttpSettings`, if there is a socket. When it closes, the
supervisor was killed, and this process ends at once.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING

from kpipe.batch.batch import Committed
from kpipe.errors import KpipeError
from kpipe.process_isolation import deny_tracing
from kpipe_assets.runs.foreground import batch_line
from kpipe_assets.service.http_settings import HttpSettings
from kpipe_assets.service.service import PipelineService
from kpipe_assets.telemetry.run_log import shown
from kpipe_assets.telemetry.sender import finish_all
from kpipe_assets.terminal import check_logs, emit, log, report, unexpected
from resources.home import Home

if TYPE_CHECKING:
    from kpipe_assets.service.http_server import HttpServer

__all__ = ["main"]


def main() -> int:
    """See the module."""
    lock, listening = map(int, sys.argv[1:3])
    sys.excepthook = unexpected
    faulthandler.register(signal.SIGUSR1)  # prints the stack of every thread to stderr
    deny_tracing()
    check_logs()
    for handle in (lock, listening):
        if handle >= 0:
            os.set_inheritable(handle, False)  # not by Spark, which may outlive this process for a moment
    home = Home.from_env()
    service = PipelineService(home, report, committed=_emit if "json" in sys.argv[3:] else _quiet)
    servers: list[HttpServer] = []

    def stop(_: int, __: FrameType | None) -> None:
        service.stop()
        for server in servers:
            server.ending()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    if listening >= 0:
        servers += _http(home, service, listening)
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    try:
        status = service.run()
    except KpipeError as error:
        log(f"kpipe: {shown(error)}", "error")
        status = error.exit_status
    except Exception as error:  # a defect: the supervisor starts the process again
        unexpected(type(error), error, error.__traceback__)
        status = 1
    for server in servers:
        server.stop()
    finish_all()
    sys.stderr.flush()
    # Not through Python's end, which would wait for threads that hang. Nothing is left to be written.
    os._exit(status)


def _http(home: Home, service: PipelineService, listening: int) -> list[HttpServer]:
    """Start the HTTP server, by the settings that standard input begins with. Pipelines run without it if it does not start."""
    from kpipe_assets.service.http_server import HttpServer  # the extra `serve`

    line = b""
    while not line.endswith(b"\n"):
        read = os.read(0, 1)
        if not read:
            os._exit(1)
        line += read
    try:
        server = HttpServer(home, HttpSettings.read(line.decode()), listening, service.pipelines, report)
    except OSError as error:  # a certificate that was replaced since the supervisor has checked it; ssl's errors belong to it
        report(f"no HTTP server: the certificate cannot be used: {error}")
        return []
    server.start()
    return [server]


_emitting = threading.Lock()


def _emit(name: str, committed: Committed) -> None:
    with _emitting:  # lines of several threads must not mix
        emit({"pipeline": name, **batch_line(committed)})


def _quiet(_: str, __: Committed) -> None: ...


def _end_with_supervisor() -> None:
    """End this process when its supervisor was killed. The batches at work are discarded, as after a kill."""
    while os.read(0, 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
