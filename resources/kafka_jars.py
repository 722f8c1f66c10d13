"""The local Kafka's jars: which, where, and how `make install` gets them.

`requirements-kafka.lock` lists one jar per line, `group:artifact:version sha256:...`. Installing downloads exactly
those through jgo (or takes them from the user's Maven cache), checks every hash, and only then moves the folder into
place: the folder exists complete or not at all, and running a broker needs no network.

    python -m resources.kafka_jars install requirements-kafka.lock
    python -m resources.kafka_jars lock requirements-kafka.lock      # resolves again (`make lock`)
"""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kpipe.errors import NotAvailable

__all__ = ["VERSION", "install", "jars_folder"]

VERSION = "4.3.1"
"""Kafka release; `make lock` resolves this one. (4.4.0 names a jar, kafka-tools-api, that was never published.)"""

ROOTS = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",  # Kafka logs through slf4j 1.7; its POM leaves the binding out
)

DOWNLOADS = 8
"""Jars fetched at once: 44 small files, so latency counts, not bandwidth."""


def default_folder() -> Path:
    """Where `make install` puts them: inside the environment, so that removing it removes them."""
    return Path(sys.prefix) / "share" / f"kafka-{VERSION}"


def jars_folder() -> Path:
    """Folder of the installed jars, for the class path `FOLDER/*`.

    Raises:
        NotAvailable: they are not installed.
    """
    folder = default_folder()
    if not folder.is_dir():
        raise NotAvailable(f"Kafka's jars are not installed in {folder}", "run `make install` with a network")
    return folder


def install(lock: Path, folder: Path | None = None) -> Path:
    """Put the jars that the lock lists into `folder`, all of them verified; nothing to do if it exists.

    Raises:
        NotAvailable: a jar could not be fetched, or is not the one that was locked.
    """
    folder = folder or default_folder()
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".kafka-", dir=folder.parent) as scratch:
        staged = Path(scratch) / "jars"
        staged.mkdir()
        context = _context(Path(scratch) / "repository")
        # The first alone: without a network it fails once, after one time-out, and not forty times.
        first, *rest = _read(lock)
        _fetch(context, *first, staged)
        with ThreadPoolExecutor(DOWNLOADS) as pool:
            list(pool.map(lambda line: _fetch(context, *line, staged), rest))
        try:
            staged.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another install was first, with the same verified content
                raise
    return folder


def lock(path: Path) -> None:
    """Resolve the roots with jgo and write the list, ordered by coordinate."""
    with tempfile.TemporaryDirectory() as scratch:
        context = _context(Path(scratch))
        artifacts = [
            (f"{a.groupId}:{a.artifactId}:{a.version}", _sha256(a.resolve())) for a in _resolve(context, ROOTS)
        ]
    head = "# Written by `make lock`: the jars of the local Kafka.\n"
    path.write_text(head + "".join(f"{c} sha256:{h}\n" for c, h in sorted(set(artifacts))), encoding="utf-8")


def _resolve(context: Any, roots: Iterable[str]) -> list[Any]:
    from jgo.parse import Coordinate

    wanted = [context.create_dependency(Coordinate(*root.split(":"), scope="compile")) for root in roots]
    direct, transitive = context.resolver.resolve(wanted)
    return [d.artifact for d in (*direct, *(d for d in transitive if d.scope in ("compile", "runtime")))]


def _context(repository: Path) -> Any:
    from jgo.maven import MavenContext

    # jgo downloads by `requests`, which trusts its own list of authorities; a company proxy is only in the machine's.
    trusted = ssl.get_default_verify_paths()
    if not {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"} & os.environ.keys() and (trusted.cafile or trusted.capath):
        os.environ["REQUESTS_CA_BUNDLE"] = str(trusted.cafile or trusted.capath)
    return MavenContext(repo_cache=repository)


def _read(lock: Path) -> list[tuple[str, str]]:
    lines = [line.split() for line in lock.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    return [(coordinate, digest.removeprefix("sha256:")) for coordinate, digest in lines]


def _fetch(context: Any, coordinate: str, sha256: str, into: Path) -> None:
    from jgo.constants import default_maven_repo

    group, artifact, version = coordinate.split(":")
    jar = context.project(group, artifact).at_version(version).artifact()
    cached = default_maven_repo() / jar.component.path_prefix / jar.filename
    try:
        source = cached if cached.is_file() and _sha256(cached) == sha256 else jar.resolve()
    except (OSError, RuntimeError) as why:  # requests' errors are OSErrors
        raise NotAvailable(f"cannot fetch {coordinate}: {why}", "check the network, then `make install`") from why
    found = _sha256(source)
    if found != sha256:
        raise NotAvailable(
            f"{jar.filename} has sha256 {found}, locked is {sha256}", "do not use it; find out what answered"
        )
    shutil.copyfile(source, into / jar.filename)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(arguments: list[str]) -> int:
    """`install LOCK` or `lock LOCK`; one line on stderr on failure."""
    try:
        command, path = arguments
        {"install": install, "lock": lock}[command](Path(path))
    except (ValueError, KeyError):
        sys.stderr.write("usage: python -m resources.kafka_jars install|lock FILE\n")
        return 2
    except (NotAvailable, OSError, RuntimeError) as why:
        sys.stderr.write(f"{why}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
