"""Find the processes of a session, also those whose parents have ended. Imports only the standard library and psutil."""

from __future__ import annotations

import os

import psutil

__all__ = ["of_session"]


def of_session(session: int) -> list[psutil.Process]:
    """List the processes of a session, without this one and without zombies.

    Args:
        session: process id of the session's leader.
    """
    processes = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
        except (OSError, psutil.Error):
            continue
    return processes
