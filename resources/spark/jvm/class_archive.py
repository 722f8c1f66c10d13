"""Start Spark's JVM from a class archive: its classes are mapped from one file instead of read from 280 jars (ADR 0039).

An archive is a folder with `spark.jsa`, which HotSpot maps, and `command.json`, the command that Spark's launcher builds for
this Java and these jars. Both are code: they are used only if no user but this one, root and the owner of kpipe's code can
write to them. HotSpot itself ignores an archive of another Java or of other jars.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kpipe.errors import KpipeError
from resources.permissions import Trust, check
from resources.spark.cluster.master import is_local

__all__ = [
    "CLASSES",
    "COMMAND",
    "MAIN",
    "SWITCH",
    "ClassArchive",
    "applies",
    "archive_key",
    "find_archive",
    "in_home",
    "installed",
]

SWITCH = "KPIPE_CLASS_ARCHIVE"
"""`0`: neither use nor make archives."""

CLASSES, COMMAND = "spark.jsa", "command.json"
MAIN = "org.apache.spark.deploy.SparkSubmit"
_HEAP = "-Xmx1g"  # what the launcher writes where no memory is set

# Spark's JVM reads these itself. Any other variable of Spark's or Hadoop's may change what spark-submit starts.
_READ_BY_THE_JVM = ("SPARK_HOME", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_LOCAL_DIRS", "SPARK_PUBLIC_DNS", "SPARK_USER")
_READ_BY_SCRIPTS = ("SPARK_", "HADOOP_", "YARN_", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_")
# Settings that the launcher turns into something else than an option of Java.
_READ_BY_THE_LAUNCHER = {
    *("spark.driver.extraClassPath", "spark.driver.defaultExtraClassPath", "spark.driver.extraLibraryPath"),
    *("spark.submit.deployMode", "spark.remote", "spark.api.mode"),
}


@dataclass(frozen=True)
class ClassArchive:
    """An archive that was made for one Java and one set of jars.

    Attributes:
        folder: contains both files.
    """

    folder: Path

    @property
    def options(self) -> tuple[str, ...]:
        """Options of Java that map the archive. A damaged one is recognised by its checksums, and ignored."""
        return f"-XX:SharedArchiveFile={self.folder / CLASSES}", "-XX:+VerifySharedSpaces"

    def command(self, java: Path, memory: str, options: Sequence[str], arguments: Sequence[str]) -> list[str]:
        """Return the command that starts Spark's JVM, as spark-submit would.

        Args:
            java: the program.
            memory: the heap's limit.
            options: further options of Java.
            arguments: those of spark-submit.

        Raises:
            OSError, ValueError: the stored command cannot be read.
        """
        stored = [str(word) for word in json.loads((self.folder / COMMAND).read_text(encoding="utf-8"))]
        heap, main = stored.index(_HEAP), stored.index(MAIN)
        return [
            *(str(java), *stored[1:heap], f"-Xmx{memory}", *self.options, *options, *stored[heap + 1 : main]),
            *(MAIN, *arguments),
        ]

    def discard(self) -> None:
        """Delete the archive if this user may."""
        shutil.rmtree(self.folder, ignore_errors=True)


def installed() -> Path:
    """Return the folder of archives that belong to this environment; `make install` and the image fill it."""
    return Path(sys.prefix) / "share" / "kpipe" / "class_archives"


def in_home(home: Path) -> Path:
    """Return the folder of a home's archives, for environments that have none."""
    return home / "cache" / "class_archives"


def applies(config: Mapping[str, str], environ: Mapping[str, str], spark_home: Path) -> bool:
    """Return whether a JVM with these settings may be started from an archive.

    It may not on a cluster, nor if the user has set anything that spark-submit's scripts or its launcher would read.
    """
    if environ.get(SWITCH) == "0" or not is_local(config.get("spark.master", "")) or (spark_home / "conf").exists():
        return False
    if any(name.startswith(_READ_BY_SCRIPTS) and name not in _READ_BY_THE_JVM for name in environ):
        return False
    return not _READ_BY_THE_LAUNCHER & config.keys() and "-Xmx" not in config.get("spark.driver.extraJavaOptions", "")


def find_archive(home: Path, java_home: Path, spark_home: Path) -> ClassArchive | None:
    """Return the archive for this Java and these jars: the environment's, else the home's, else None.

    An archive that other users may write to is not used.
    """
    name = archive_key(java_home, spark_home)
    for root in (installed(), in_home(home)):
        folder = root / name
        files = (folder / CLASSES, folder / COMMAND)
        if all(file.is_file() for file in files):
            with suppress(KpipeError, OSError):
                check(folder, files, Trust.from_env(), definitions=folder)
                return ClassArchive(folder)
    return None


def archive_key(java_home: Path, spark_home: Path) -> str:
    """Return a name for the Java in that folder and the jars of that Spark."""
    digest = hashlib.sha256()
    for file in (java_home / "release", java_home / "lib" / "server" / "libjvm.so", *sorted((spark_home / "jars").glob("*.jar"))):
        with suppress(OSError):
            found = file.stat()
            digest.update(f"{file}\0{found.st_size}\0{int(found.st_mtime)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]
