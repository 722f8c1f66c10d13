"""Make the class archive of this environment's Java and Spark: `python -m resources.spark.jvm.class_archive_maker [FOLDER]`.

`make install` and the image run it without FOLDER. Where they did not, the first process that has used Spark runs it when it
ends, for the home. HotSpot dumps classes when a JVM ends, and only one without kpipe's agent. So it takes a JVM of its own,
which loads what a batch loads and receives no credentials.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

from kpipe.errors import KpipeError
from resources.java import find_java, spark_environment
from resources.spark.jvm import jvm_launch
from resources.spark.jvm.class_archive import CLASSES, COMMAND, MAIN, SWITCH, archive_key, installed
from resources.spark.jvm.class_archive_lookup import spark_home
from resources.spark.jvm.session import prepared
from resources.spark.jvm.spark_settings import settings
from resources.spark.workers.warm_up import warm

__all__ = ["launcher_command", "make"]

_FAILED = ".failed"  # follows the archive's name: it is not tried again
_NEW = ".new-"
_KEPT = 2  # archives of a folder, of 70 MB each: those of two versions of Java
_NICE = 19
_END_S = 300.0  # the dump takes 3 s on an idle machine


def make(folder: Path) -> Path | None:
    """Make the archive in that folder; return it, or None if another process is making it, or has failed to.

    Raises:
        KpipeError, OSError, subprocess.SubprocessError: it cannot be made.
    """
    spark = spark_home()
    name = archive_key(find_java().path, spark)
    made = folder / name
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        failed = folder / f"{name}{_FAILED}"
        if made.is_dir() or failed.exists():
            return made if made.is_dir() else None
        for left in folder.glob(f"{_NEW}*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=_NEW, dir=folder))
        try:
            new = work / name
            new.mkdir(mode=0o755)
            (new / COMMAND).write_text(json.dumps(launcher_command(spark)), encoding="utf-8")
            _dump(new / CLASSES, work)
            new.rename(made)
        except (KpipeError, OSError, subprocess.SubprocessError):
            failed.touch()
            raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
    for old in sorted((item for item in folder.iterdir() if item.is_dir()), key=lambda item: item.stat().st_mtime)[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return made


def launcher_command(spark: Path, arguments: Sequence[str] = ("pyspark-shell",)) -> list[str]:
    """Return the command that Spark's launcher builds, as bin/spark-class requests it."""
    exported = {"SPARK_HOME": str(spark), "SPARK_SCALA_VERSION": "2.13"}  # as bin/load-spark-env.sh does
    environ = {**jvm_launch.environment(os.environ), **spark_environment(), **exported}
    java = Path(environ["JAVA_HOME"]) / "bin" / "java"
    command = [str(java), "-cp", f"{spark}/jars/*", "org.apache.spark.launcher.Main", MAIN, *arguments]
    answer = subprocess.run(command, env=environ, stdin=DEVNULL, capture_output=True, text=True, timeout=_END_S, check=True)
    return answer.stdout.strip("\n\0").split("\0")


def _dump(file: Path, home: Path) -> None:
    """Run an empty task on a Spark without kpipe's agent, and let its JVM write the classes that it has loaded."""
    from pyspark import SparkConf, SparkContext

    options = f'{jvm_launch.DENY_ATTACH} "-XX:ArchiveClassesAtExit={file}"'
    config = {**settings(home, "local[2]"), "spark.driver.defaultJavaOptions": options}
    with prepared(home, config):
        context = SparkContext(conf=SparkConf().setAll(list(config.items())))
        warm(context)
        context.stop()  # ends PySpark's accumulator server in order: it would report the end of its connection as an error
        gateway: Any = SparkContext._gateway
        process = gateway.proc
        process.stdin.close()  # the JVM ends, and dumps
        process.wait(_END_S)
    if not file.is_file():
        tail = (home / "logs" / "spark.log").read_text(errors="replace").splitlines()[-3:]
        raise KpipeError(f"class archive: Java wrote none: {'; '.join(tail)}", "kpipe runs without; Spark starts slower")
    file.chmod(0o644)
    with file.open("rb") as written:
        os.fsync(written.fileno())


def main() -> int:
    """Make the archive, for the environment or in the folder that is named."""
    if len(sys.argv) > 1:  # for a home, in the background; an installation waits for that of the environment
        os.nice(_NICE)
    os.umask(0o022)  # what others may write to is not used
    os.environ[SWITCH] = "0"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else installed()
    try:
        made = make(folder)
    except (KpipeError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"class archive: cannot be made in {folder}: {error}\n")
        return 1
    sys.stdout.write(f"class archive: {made or 'not made: another process is making it, or has failed'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
