"""PySpark's daemon, from which every Python worker is forked; programs that a worker starts cannot read its memory.

It imports what tasks need before it forks the first worker, so that this is paid once instead of once for each core. PySpark
itself imports in each worker, because a library that starts threads when it is imported may not survive a fork. Those below do:
OpenBLAS is configured to start none, and jemalloc, which Arrow contains, registers handlers for forks.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from kpipe.process_isolation import deny_tracing

__all__ = ["preload", "unzipped"]

_MODULES = ("pyspark.worker", "resources.spark.task.range_task")


def preload() -> None:
    """Import what tasks need, and freeze it: a worker's garbage collector then neither visits nor copies it."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.path[:] = unzipped(sys.path)
    gc.disable()
    for name in _MODULES:
        with suppress(Exception):  # the first task imports it again, and reports the error
            import_module(name)
    gc.freeze()
    gc.enable()


def unzipped(path: list[str]) -> list[str]:
    """Return the path without PySpark's zip files, if it is installed around them and this interpreter finds it there.

    Spark puts the zip files first. They have no compiled modules: importing from them takes 1.0 s of CPU instead of 0.2 s.
    """
    kept = list(path)
    for entry in path:
        file = Path(entry)  # SITE/pyspark/python/lib/pyspark.zip, beside py4j-VERSION-src.zip
        site = file.parents[3] if file.name == "pyspark.zip" and len(file.parents) > 3 else None
        installed = site is not None and all((site / name / "__init__.py").is_file() for name in ("pyspark", "py4j"))
        if installed and str(site) in path and file.parents[2].name == "pyspark":
            kept = [item for item in kept if Path(item).parent != file.parent]
    return kept


if __name__ == "__main__":
    deny_tracing()
    preload()
    import_module("pyspark.daemon").manager()
