"""First process of a host: makes its mounts, says that it is ready, and stays. All others of the host end with it.

    python inside.py NAME READY HIDE... -- SOURCE=TARGET...

Run in new namespaces (mount, network, process ids, host name, IPC). Each folder HIDE becomes an empty one of this host alone;
then each SOURCE, as it was before, is seen at TARGET. Everything else can only be read. Nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from pathlib import Path

# mount(2); the numbers are kernel ABI.
MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096


def mount(source: str, target: str, kind: str | None, flags: int = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), None):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} at {target}: {os.strerror(number)}")


def main(name: str, ready: str, *rest: str) -> None:
    at = rest.index("--")
    hidden, shown = rest[:at], [pair.partition("=")[::2] for pair in rest[at + 1 :]]
    kept = [(os.open(source, os.O_PATH), target) for source, target in shown]
    for folder in hidden:
        if Path(folder).is_dir():  # else it lies below one that is hidden
            mount("tmpfs", folder, "tmpfs")
            os.chmod(folder, 0o1777)
    for handle, target in kept:
        place = Path(target)
        if Path(f"/proc/self/fd/{handle}").is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        mount(f"/proc/self/fd/{handle}", target, None, MS_BIND)  # what hides it below is not to come along
        os.close(handle)
    mount("", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY)
    socket.sethostname(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who lost its parent is mine, and leaves no zombie
    Path(ready).write_text("ready")
    while True:
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
