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
    """Copy a program to every worker and return its name there.

    Spark rejects a second file of the same name with other content. A program may change between two runs of one
    session, so the name contains the hash. Archives are shipped as files and unpacked by kpipe, which rejects members
    that lead outside; Spark's own unpacking does not check.
    """
    name = f"{program.version}-{program.file.name}"
    copy = home.path / "programs" / name
    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = copy.with_name(f".{name}.{uuid.uuid4().hex}")
    shutil.copyfile(program.file, temporary)  # copied for each run: a corrupt copy, which workers reject, must not stay
    temporary.chmod(0o700)
    temporary.replace(copy)
    context.addFile(str(copy))
    return name
