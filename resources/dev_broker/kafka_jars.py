"""The local Kafka's jars: which, where, and how `make install` gets them. Jars that tests want come the same way (`make lakes`).

`requirements-kafka.lock` lists one jar per line, `group:artifact:version sha256:...`, with a classifier behind the version if
there is one. Installing downloads exactly those through jgo (or takes them from the user's Maven cache), checks every hash, and
only then moves the folder into place: it exists complete or not at all, and running a broker needs no network.

    python -m resources.dev_broker.kafka_jars install requirements-kafka.lock [FOLDER]
    python -m resources.dev_broker.kafka_jars lock requirements-kafka.lock      # resolves again (`make lock`)
"""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kpipe.errors import NotAvailable

__all__ = ["VERSION", "install", "jars_folder"]

VERSION = "4.3.1"
"""Kafka release; `make lock` resolves this one. (4.4.0 names a jar, kafka-tools-api, that was never published.)"""

KAFKA = ("org.apache.kafka", "kafka_2.13")

LOG_BINDING = ("org.apache.logging.log4j", "log4j-slf4j-impl")
"""Kafka logs through slf4j 1.7, and its POM leaves the binding out. Taken in the version of Kafka's own log4j-core."""

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
    """Make `folder` hold exactly the jars that the lock lists, all of them verified; nothing to do if it does.

    Raises:
        NotAvailable: a jar could not be fetched, or is not the one that was locked.
    """
    folder = folder or default_folder()
    wanted = _read(lock)
    if _holds(folder, wanted):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".kafka-", dir=folder.parent) as scratch:
        staged = Path(scratch) / "jars"
        staged.mkdir()
        context = _context(Path(scratch) / "repository")
        # The first alone: without a network it fails once, after one time-out, and not forty times.
        first, *rest = wanted
        _fetch(context, first, staged)
        with ThreadPoolExecutor(DOWNLOADS) as pool:
            list(pool.map(lambda jar: _fetch(context, jar, staged), rest))
        if folder.is_dir():  # of another lock; a broker that runs from it keeps its files open
            folder.rename(Path(scratch) / "before")
        staged.rename(folder)
    return folder


def _holds(folder: Path, wanted: list[tuple[str, str]]) -> bool:
    names = {"-".join(coordinate.split(":")[1:]) + ".jar": sha256 for coordinate, sha256 in wanted}
    return folder.is_dir() and names == {jar.name: _sha256(jar) for jar in folder.iterdir()}


def lock(path: Path) -> None:
    """Resolve Kafka with jgo and write the list, ordered by coordinate."""
    from jgo.parse import Coordinate

    with tempfile.TemporaryDirectory() as scratch:
        context = _context(Path(scratch))
        root = context.create_dependency(Coordinate(*KAFKA, VERSION, scope="compile"))
        direct, transitive = context.resolver.resolve([root])
        artifacts = [d.artifact for d in (*direct, *transitive) if d.scope in ("compile", "runtime")]
        # Not resolved together with Kafka: the versions that log4j's POM manages would then apply to Kafka's jars.
        log_version = next(a.version for a in artifacts if a.artifactId == "log4j-core")
        artifacts.append(context.project(*LOG_BINDING).at_version(log_version).artifact())
        lines = {f"{a.groupId}:{a.artifactId}:{a.version} sha256:{_sha256(a.resolve())}\n" for a in artifacts}
    head = "# Written by `make lock`: the jars of the local Kafka.\n"
    path.write_text(head + "".join(sorted(lines)), encoding="utf-8")


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


def _fetch(context: Any, wanted: tuple[str, str], into: Path) -> None:
    from jgo.constants import default_maven_repo

    coordinate, sha256 = wanted
    group, artifact, version, *classifier = coordinate.split(":")
    jar = context.project(group, artifact).at_version(version).artifact(*classifier)
    cached = default_maven_repo() / jar.component.path_prefix / jar.filename
    try:
        source = cached if cached.is_file() and _sha256(cached) == sha256 else jar.resolve()
    except (OSError, RuntimeError) as why:  # requests' errors are OSErrors
        raise NotAvailable(f"cannot fetch {coordinate}: {why}", "check the network, then `make install`") from why
    found = _sha256(source)
    if found != sha256:
        raise NotAvailable(f"{jar.filename} has sha256 {found}, locked is {sha256}", "do not use it; find out what answered")
    shutil.copyfile(source, into / jar.filename)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(arguments: list[str]) -> int:
    """`install LOCK [FOLDER]` or `lock LOCK`; one line on stderr on failure."""
    command, path, *folder = arguments
    try:
        if command == "lock":
            lock(Path(path))
        else:
            install(Path(path), *map(Path, folder))
    except (NotAvailable, OSError, RuntimeError) as why:
        sys.stderr.write(f"{why}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
