"""The process that runs the pipelines; started by `Supervisor`.

Usage: `python -m kpipe_assets.service.process LOCK SOCKET [json]`. LOCK and SOCKET are file descriptors that it inherits: of
the home's lock, which it keeps until it ends, and of the HTTP server's listening socket, or -1. With `json` it writes a line
for each batch to stdout. When standard input closes, the supervisor was killed, and this process ends at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

from kpipe.batch.batch import Committed
from kpipe.errors import KpipeError
from kpipe.process_isolation import deny_tracing
from kpipe_assets.runs.foreground import batch_line
from kpipe_assets.service.health import serve_health
from kpipe_assets.service.service import PipelineService
from kpipe_assets.terminal import echo, emit, report, unexpected
from resources.home import Home

__all__ = ["main"]


def main() -> int:
    """See the module."""
    lock, listening = map(int, sys.argv[1:3])
    sys.excepthook = unexpected
    deny_tracing()
    for handle in (lock, listening):
        if handle >= 0:
            os.set_inheritable(handle, False)  # not by Spark, which may outlive this process for a moment
    service = PipelineService(Home.from_env(), report, committed=_emit if "json" in sys.argv[3:] else _quiet)

    def stop(_: int, __: FrameType | None) -> None:
        service.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    if listening >= 0:
        serve_health(service, listening)
    try:
        status = service.run()
    except KpipeError as error:
        echo(f"kpipe: {error}", err=True)
        status = error.exit_status
    except Exception as error:  # a defect: the supervisor starts the process again
        unexpected(type(error), error, error.__traceback__)
        status = 1
    sys.stderr.flush()
    # Not through Python's end, which would wait for threads that hang. Nothing is left to be written.
    os._exit(status)


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
