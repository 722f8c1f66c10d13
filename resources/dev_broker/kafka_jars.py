"""The jars of the local Kafka: install them as `requirements-kafka.lock` lists them, and find them.

The lock (in this folder, and in the wheel) lists one jar per line, `group:artifact:version sha256:...`. A classifier may
follow the version. Installing downloads exactly these through jgo, or takes them from the user's Maven cache, and checks
every hash. The folder is renamed into place last. Running a broker needs no network.

    kpipe broker install

    python -m resources.dev_broker.kafka_jars install [LOCK [FOLDER]]   # `make lakes` and `make yarn` have locks of their own

    python -m resources.dev_broker.kafka_jars lock [LOCK]               # resolve again (`make lock`)
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
from resources.extras import missing

__all__ = ["LOCK", "VERSION", "install", "jars_folder"]

VERSION = "4.3.1"
"""Kafka release; `make lock` resolves this one. (4.4.0 names a jar, kafka-tools-api, that was never published.)"""

LOCK = Path(__file__).parent / "requirements-kafka.lock"

KAFKA = ("org.apache.kafka", "kafka_2.13")

LOG_BINDING = ("org.apache.logging.log4j", "log4j-slf4j-impl")
"""Kafka logs through slf4j 1.7, and its POM leaves the binding out. Taken in the version of Kafka's own log4j-core."""

DOWNLOADS = 8
"""Jars fetched at once: 44 small files, so latency counts, not bandwidth."""


def default_folder() -> Path:
    """Return the folder of the jars: inside the environment, so that removing it removes them."""
    return Path(sys.prefix) / "share" / f"kafka-{VERSION}"


def jars_folder() -> Path:
    """Return the folder of the installed jars, for the class path `FOLDER/*`.

    Raises:
        NotAvailable: they are not installed.
    """
    folder = default_folder()
    if not folder.is_dir():
        raise NotAvailable(
            f"Kafka's jars are not installed in {folder}",
            "run `kpipe broker install` where Maven Central answers or ~/.m2 has them; a Kafka of your own needs none of them",
        )
    return folder


def install(lock: Path = LOCK, folder: Path | None = None) -> Path:
    """Install exactly the jars that the lock lists, all of them verified; do nothing if they are installed.

    Raises:
        NotAvailable: a jar could not be downloaded, or its hash differs from the lock.
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
        # The first one alone: without a network, this fails after one time-out instead of forty.
        first, *rest = wanted
        _fetch(context, first, staged)
        with ThreadPoolExecutor(DOWNLOADS) as pool:
            list(pool.map(lambda jar: _fetch(context, jar, staged), rest))
        if folder.is_dir():  # of another lock; a running broker keeps its files open
            folder.rename(Path(scratch) / "before")
        staged.rename(folder)
    return folder


def _holds(folder: Path, wanted: list[tuple[str, str]]) -> bool:
    names = {"-".join(coordinate.split(":")[1:]) + ".jar": sha256 for coordinate, sha256 in wanted}
    return folder.is_dir() and names == {jar.name: _sha256(jar) for jar in folder.iterdir()}


def lock(path: Path) -> None:
    """Resolve Kafka with jgo and write the lock, ordered by coordinate."""
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
    try:
        from jgo.maven import MavenContext
    except ImportError as error:
        raise missing("fetching Kafka's jars", "jgo", "demo", error=error) from error

    # jgo downloads with `requests`, which has its own list of authorities; a company proxy's is only in the machine's store.
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
        raise NotAvailable(f"cannot fetch {coordinate}: {why}", "check the network, then run it again") from why
    digest = _sha256(source)
    if digest != sha256:
        raise NotAvailable(
            f"{jar.filename}: wrong sha256: expected {sha256}, found {digest}",
            "do not use it; check the Maven repository or proxy",
        )
    shutil.copyfile(source, into / jar.filename)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(arguments: list[str]) -> int:
    """Run `install [LOCK [FOLDER]]` or `lock [LOCK]`; write one line to stderr on failure."""
    command, *paths = arguments
    try:
        if command == "lock":
            lock(Path(*paths) if paths else LOCK)
        else:
            install(*map(Path, paths))
    except (NotAvailable, OSError, RuntimeError) as why:
        sys.stderr.write(f"{why}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
