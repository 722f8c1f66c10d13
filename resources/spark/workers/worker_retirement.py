"""Replace Python workers of Spark that are old or large. Runs in the workers.

Spark ends a worker that is idle for a minute. A worker that always has work would live as long as the service, with whatever
a library has leaked. PySpark ends a worker after a task that has not read its input to the end. Spark then forks another one
for the next task.
"""

from __future__ import annotations

import resource
import sys
import time
from functools import cache

__all__ = ["is_due"]

_OLD_S = 3600.0
_LARGE_BYTES = 1 << 30
_UNIT = 1 if sys.platform == "darwin" else 1024  # of `ru_maxrss`


def is_due() -> bool:
    """Return whether this worker should end after its current task: it is an hour old, or has once used 1 GiB."""
    return time.monotonic() - _born() > _OLD_S or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT > _LARGE_BYTES


@cache
def _born() -> float:
    """Return the time of this worker's first task. Not that of the import, which happens in the daemon that forks workers."""
    return time.monotonic()
