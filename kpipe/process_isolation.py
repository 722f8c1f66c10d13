"""Keep this process's environment and memory from the programs that it starts, and from everything else of the same user.

A program gets the variables that `transform.env` lists. It runs as the user of the processes around it, and Linux lets a user
read `/proc/PID/environ` and `/proc/PID/mem` of every process of theirs, unless that process is not dumpable (prctl(2)).
"""

from __future__ import annotations

import ctypes
import sys

__all__ = ["deny_tracing"]

# The number is kernel ABI.
_PR_SET_DUMPABLE = 4


def deny_tracing() -> None:
    """Deny other processes of this user to read and trace this one, and those that are forked from it. Linux only.

    A program that is executed starts without this. Core files are not written, and a debugger attaches as root only.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0)
