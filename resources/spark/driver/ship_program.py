"""Check the variables of the pipeline's program, and copy it for Spark's workers."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from resources.home import Home
from transforms.preflight import Resolved

__all__ = ["check_variables", "copied"]


def check_variables(pipeline: Pipeline, environ: Mapping[str, str]) -> None:
    """Check that the variables that the program gets are set.

    Raises:
        InvalidPipeline: one is not.
    """
    missing = [name for name in pipeline.transform.env if name not in environ] if pipeline.transform is not None else []
    if missing:
        raise InvalidPipeline(f"transform.env lists {missing[0]}, which is not set", f"export {missing[0]}=...")


def copied(home: Home, program: Resolved) -> Path:
    """Copy a program to the home, from where Spark sends it to workers, and return the copy.

    Spark rejects a second file of the same name with other content. A program may change between two runs of one
    session, so the name contains the hash.
    """
    name = f"{program.version}-{program.file.name}"
    copy = home.path / "programs" / name
    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = copy.with_name(f".{name}.{uuid.uuid4().hex}")
    shutil.copyfile(program.file, temporary)  # copied for each run: a corrupt copy, which workers reject, must not stay
    temporary.chmod(0o700)
    temporary.replace(copy)
    return copy
