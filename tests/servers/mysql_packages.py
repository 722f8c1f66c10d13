"""Unpack MySQL's server from Debian's packages into .venv, with the libraries that it needs: `make mysql`.

Only Debian's unstable suite has MySQL, so its libraries come along, and nothing is installed into the system. The mirror and the
keys are those of the machine's apt, which verifies the packages.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["FOLDER", "command"]

FOLDER = Path(sys.prefix) / "share" / "mysql"
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SUITE, _PACKAGE = "unstable", "mysql-server-core"
_LIBRARIES = re.compile(r"lib|zlib1g")  # its other dependencies are for scripts


def command() -> list[str]:
    """Return the words that start the server's program, with the loader and the libraries of its own suite."""
    libraries = next(FOLDER.glob("usr/lib/*/ld-linux*.so.*")).parent
    loader = next(libraries.glob("ld-linux*.so.*"))
    return [str(loader), "--library-path", str(libraries), str(FOLDER / "usr/sbin/mysqld")]


def install() -> None:
    """Fetch and unpack it; nothing to do if it is there.

    Raises:
        SystemExit: apt cannot.
    """
    if FOLDER.is_dir():
        return
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".mysql-", dir=FOLDER.parent) as scratch:
        folder = Path(scratch)
        sources = folder / "sources.list"
        sources.write_text(f"deb [signed-by={_KEYS}] {_mirror()} {_SUITE} main\n")
        for name in ("lists/partial", "cache/archives/partial", "packages", "made"):
            (folder / name).mkdir(parents=True)
        options = {
            "Dir::Etc::sourcelist": sources, "Dir::Etc::sourceparts": "-", "Dir::State::lists": folder / "lists",
            "Dir::Cache": folder / "cache", "APT::Sandbox::User": "root",
        }  # fmt: skip
        apt = [f"-o{name}={value}" for name, value in options.items()]
        _run(["apt-get", *apt, "-qq", "update"])
        without = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
        found = _run(["apt-cache", *apt, "depends", "--recurse", *without, _PACKAGE])
        names = sorted({name for name in found.split("\n") if re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", name)})
        wanted = [name for name in names if name == _PACKAGE or (_LIBRARIES.match(name) and "perl" not in name)]
        _run(["apt-get", *apt, "-qq", "download", *wanted], folder / "packages")
        for package in sorted((folder / "packages").glob("*.deb")):
            _run(["dpkg-deb", "-x", str(package), str(folder / "made")])
        (folder / "made").rename(FOLDER)  # whole, or not at all


def _mirror() -> str:
    """Return the address of the mirror of Debian's main archive that this machine uses."""
    found = _run(["apt-get", "indextargets", "--format", "$(SITE) $(ORIGIN) $(SUITE)", "Created-By: Packages"])
    for line in found.splitlines():
        site, origin, suite = line.split(maxsplit=2)
        if origin == "Debian" and "-" not in suite:  # neither updates nor security fixes
            return site
    raise SystemExit("this machine has no mirror of Debian")


def _run(words: list[str], folder: Path | None = None) -> str:
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise SystemExit(f"there is no {words[0]}") from error
    if done.returncode:
        raise SystemExit(f"{words[0]} could not: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


if __name__ == "__main__":
    install()
