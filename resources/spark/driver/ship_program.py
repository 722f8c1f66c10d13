"""Ship the pipeline's program to Spark's workers."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

from resources.home import Home
from transforms.preflight import Resolved

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["ship"]


def ship(context: SparkContext, home: Home, program: Resolved) -> str:
    """Return the name under which Spark brings the file to every worker.

    Spark refuses a second file of the same name with other content, and a program may change between two runs of one
    session, so the name carries the hash. Archives are shipped as files, too, and unpacked by our own code, which refuses
    members that lead outside; Spark's own unpacking does not look.
    """
    name = f"{program.version}-{program.file.name}"
    copy = home.path / "programs" / name
    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = copy.with_name(f".{name}.{uuid.uuid4().hex}")
    shutil.copyfile(program.file, temporary)  # afresh for each run: workers look at what they get, so a wrong one must not stay
    temporary.chmod(0o700)
    temporary.replace(copy)
    context.addFile(str(copy))
    return name
