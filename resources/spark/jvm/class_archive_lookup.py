"""Look up the class archive for a JVM; without one, have it made when this process has ended."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, Popen

from resources.java import find_java
from resources.spark.jvm import jvm_launch
from resources.spark.jvm.class_archive import ClassArchive, applies, find_archive, in_home

__all__ = ["archive_for", "spark_home"]

_MAKER = "resources.spark.jvm.class_archive_maker"  # a process of its own: it starts Spark as sessions do


def spark_home() -> Path:
    """Return the folder of Spark that PySpark uses."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


def archive_for(home: Path, config: Mapping[str, str]) -> ClassArchive | None:
    """Return the archive that a JVM with these settings starts from.

    If there could be one, it is made when this process has ended, in a process with low priority and without credentials.
    """
    spark = spark_home()
    if not applies(config, os.environ, spark):
        return None
    archive = find_archive(home, find_java().path, spark)
    if archive is None:
        atexit.register(_spawn, in_home(home))
    return archive


def _spawn(folder: Path) -> Popen[bytes] | None:
    command = [sys.executable, "-m", _MAKER, str(folder)]
    # Another folder than the current one: `-m` would import modules from there.
    with suppress(OSError):
        return Popen(
            command, env=jvm_launch.environment(os.environ), cwd="/", start_new_session=True,
            stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL,
        )  # fmt: skip
    return None
