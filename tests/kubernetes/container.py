"""First process of a container: makes its file system, becomes its user, and turns into its program.

    unshare --mount --pid --fork --kill-child --uts --ipc python container.py SPEC

SPEC is a file of JSON: `layers` (folder of the image, folder for what is written, folder that the kernel needs, where to put it
together), `mounts` (pairs of a folder or file and where it is seen), `words`, `environment`, `user`, `folder`, `name`.
Nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from pathlib import Path

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC = 2, 4, 8, 4096, 16384  # mount(2); the numbers are kernel ABI


def mount(source: str, target: Path, kind: str | None, flags: int, options: str | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [text.encode() if text else None for text in (source, str(target), kind)]
    if libc.mount(*words, ctypes.c_ulong(flags), options.encode() if options else None):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} at {target}: {os.strerror(number)}")


def main(spec: str) -> None:
    asked = json.loads(Path(spec).read_text(encoding="utf-8"))
    image, upper, work, root = map(Path, asked["layers"])
    mount("overlay", root, "overlay", 0, f"lowerdir={image},upperdir={upper},workdir={work}")
    mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("/dev", root / "dev", None, MS_BIND | MS_REC)
    kept = [(os.open(source, os.O_PATH), Path(source).is_dir(), Path(target)) for source, target in asked["mounts"]]
    os.chroot(root)  # before links of the image's are followed: /var/run is one
    for handle, folder, place in kept:
        (place if folder else place.parent).mkdir(parents=True, exist_ok=True)
        if not folder:
            place.touch()
        mount(f"/proc/self/fd/{handle}", place, None, MS_BIND)
        os.close(handle)
    socket.sethostname(asked["name"])
    os.chdir(asked["folder"])
    os.setgroups([asked["user"]])
    os.setgid(asked["user"])
    os.setuid(asked["user"])
    os.execvpe(asked["words"][0], asked["words"], asked["environment"])


if __name__ == "__main__":
    main(sys.argv[1])
