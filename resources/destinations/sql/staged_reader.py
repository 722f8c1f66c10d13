"""DuckDB as the reader of staged files, for databases that take rows as texts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb

from kpipe.schema.columns import Columns
from resources.destinations.sql.column_matching import parsed
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.sandbox import closed
from resources.duckdb_engine.sql_types import READ

__all__ = ["reader", "stored"]


def reader(staging: Sequence[Path]) -> duckdb.DuckDBPyConnection:
    """A connection that reads what lies in these folders, and nothing else."""
    return _engine(tuple(os.path.realpath(root) for root in staging), os.getpid()).cursor()


@lru_cache(maxsize=16)
def _engine(roots: tuple[str, ...], _process: int) -> duckdb.DuckDBPyConnection:
    """An engine of this process: a forked one has lost its threads."""
    return closed((), roots, settings=("arrow_large_buffer_size = true",))


def stored(reader: Any, file: Proven) -> Columns:
    """Columns of a staged file."""
    described = reader.execute(f"DESCRIBE SELECT * FROM {READ.format('?')}", [[file.path]]).fetchall()  # noqa: S608 - a constant
    return parsed([row[:2] for row in described], f"staged file {file.path!r}")
