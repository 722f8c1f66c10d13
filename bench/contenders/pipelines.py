"""Define the measured pipelines: as a user writes them, with defaults unless a measurement is about a setting."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from bench.topics import COLUMNS
from kpipe.definition.pipeline import BatchLimits, Into, Pipeline, Source, Transform

__all__ = ["NAME", "TABLE", "pipeline"]

NAME = TABLE = "bench"
_ECHO = Path(__file__).parent.parent / "programs" / "echo.py"


def pipeline(
    brokers: str,
    topic: str,
    program: str = "",
    columns: dict[str, str] | None = None,
    into: dict[str, Any] | None = None,
    headers: bool = False,
    **limits: Any,
) -> Pipeline:
    """Into DuckDB, unless something else is wanted.

    Args:
        brokers: `host:port`.
        topic: to read.
        program: `cat`, `echo` (a line program in Python), a path, or none.
        columns: declared; those of a tweet by default.
        into: fields of `into` beside the table's name.
        headers: whether they are a column.
        limits: fields of `batch`.
    """
    paths = {"cat": shutil.which("cat"), "echo": str(_ECHO)}
    transform = Transform(program=str(paths.get(program, program))) if program else None
    return Pipeline(
        name=NAME,
        source=Source(brokers=brokers, topic=topic),
        batch=BatchLimits(**limits),
        transform=transform,
        columns=COLUMNS if columns is None else columns,
        into=Into(table=TABLE, **(into or {})),
        **({"metadata": ["partition", "offset", "timestamp", "headers"]} if headers else {}),
    )
