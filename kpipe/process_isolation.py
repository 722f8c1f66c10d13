"""Protect this process's environment and memory from other processes of the same user, such as transform programs.

A program gets only the variables of `transform.env`. But it runs as kpipe's user. Linux lets a user
read `/proc/PID/environ` and `/proc/PID/mem` of their processes, unless the process is not dumpable (prctl(2)).
"""

from __future__ import annotations

import ctypes
import sys

__all__ = ["deny_tracing"]

# The number is kernel ABI.
_PR_SET_DUMPABLE = 4


def deny_tracing() -> None:
    """Deny other processes of this user to read or trace this process and its forks. Linux only.

    An executed program starts without this protection. No core file is written, and only root can attach a debugger.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0)
