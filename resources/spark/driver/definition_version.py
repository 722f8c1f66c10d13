"""Read a definition together with its files and its program, and hash them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

from kpipe.definition.pipeline import Pipeline
from resources.decode.schema_files import with_files
from resources.home import Home
from resources.spark.driver.ship_program import copied
from transforms.preflight import Resolved, resolve

__all__ = ["ResolvedPipeline", "version"]


@dataclass(frozen=True)
class ResolvedPipeline:
    """A definition with its files as they were at one moment. Rows are staged with it, and committed under its version.

    Attributes:
        pipeline: the definition, with descriptor sets instead of schema files.
        program: its program, as it can be run; None without one.
        version: short hash of the definition, its schemas and its program.
    """

    pipeline: Pipeline
    program: Resolved | None
    version: str

    @classmethod
    def of(cls, pipeline: Pipeline, home: Home | None = None) -> ResolvedPipeline:
        """Read the files of a definition.

        Args:
            pipeline: the definition.
            home: gets a copy of the program, which is run instead of the file; None: the file is run while it is unchanged.

        Raises:
            InvalidPipeline: the program cannot be run, or a schema file cannot be read.
            NotAvailable: a schema has to be compiled, and the compiler is not installed.
        """
        whole, transform = with_files(pipeline), pipeline.transform
        program = resolve(transform.program, transform.archive, transform.args, Path.cwd()) if transform else None
        text = json.dumps(whole.to_dict(), sort_keys=True)
        digest = hashlib.sha256(f"{text}{program.sha256 if program else ''}".encode()).hexdigest()
        if program is not None and home is not None:
            program = replace(program, file=copied(home, program))
        return cls(whole, program, digest[:12])


def version(pipeline: Pipeline) -> str:
    """Return a short hash of definition and program, as a run that starts now stores it with every commit.

    Raises:
        InvalidPipeline, NotAvailable: see `ResolvedPipeline.of`.
    """
    return ResolvedPipeline.of(pipeline).version
