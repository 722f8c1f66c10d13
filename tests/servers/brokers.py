"""Local brokers that end with the test, module or session that has started them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kpipe.errors import KpipeError
from resources.dev_broker.broker import LocalBroker

# Reads until this end of the pipe closes, which it does however pytest ends, and stops the broker then, unless told that it
# is stopped. It imports late: kpipe's modules take half a second of CPU, and are only needed if pytest was killed.
WATCHDOG = """
import sys
from pathlib import Path
stopped = sys.stdin.read()
folder = Path(sys.argv[1])
if not stopped and folder.is_dir():
    from resources.dev_broker.broker import LocalBroker
    LocalBroker(folder).stop()
"""


@contextmanager
def running(folder: Path, port: int | None = None) -> Iterator[LocalBroker]:
    """Start the broker of a folder, and stop it at the end of the block, even if pytest is killed.

    An idle broker takes a hundredth of a core: none should run longer than it is needed.
    """
    broker = LocalBroker(folder)
    guard = [sys.executable, "-c", WATCHDOG, str(folder)]
    watchdog = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
    told = b""
    try:
        broker.start(port)
        yield broker
    finally:
        with suppress(KpipeError):
            broker.stop()
            told = b"stopped"
        watchdog.communicate(told, timeout=600)
