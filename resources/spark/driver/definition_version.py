"""Hash a definition together with its files and its program."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from kpipe.definition.pipeline import Pipeline
from resources.decode.schema_files import with_files
from transforms.preflight import Resolved, resolve

__all__ = ["resolved_program", "version"]


def version(pipeline: Pipeline) -> str:
    """Return a short hash of definition and program, stored with every commit and shown by Dagster as the code version.

    Raises:
        InvalidPipeline: the program cannot be run, or a schema file cannot be read.
    """
    text = json.dumps(with_files(pipeline).to_dict(), sort_keys=True)
    program = resolved_program(pipeline)
    return hashlib.sha256(f"{text}{program.sha256 if program else ''}".encode()).hexdigest()[:12]


def resolved_program(pipeline: Pipeline) -> Resolved | None:
    """Return the pipeline's program as it can be run; None without one.

    Raises:
        InvalidPipeline: the program cannot be run.
    """
    transform = pipeline.transform
    return resolve(transform.program, transform.archive, transform.args, Path.cwd()) if transform else None
