"""What a test asks about processes that may end at any moment."""

from __future__ import annotations

import psutil


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie; between two questions to psutil it could end."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
