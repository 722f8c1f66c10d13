"""Staged files as files of a table: linked where they are what its readers expect, written anew where a type differs."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch import Commit
from kpipe.errors import SchemaConflict, StagingFailed
from kpipe.schema import Columns
from resources.destinations.arrow import of_schema, same
from resources.destinations.lake.folder import Folder
from resources.destinations.relational.matching import matched
from resources.destinations.staged import Proven

__all__ = ["Brought", "bring"]

_LONGEST = 64  # characters of a text that is a bound of its column


@dataclass(frozen=True)
class Brought:
    """A file in the table's folder that nothing refers to yet.

    Attributes:
        name: relative to the table.
        size: bytes.
        rows: how many.
        modified: ms since 1970.
        low, high: bounds by column, where they are exact.
        nulls: by column.
    """

    name: str
    size: int
    rows: int
    modified: int
    low: Mapping[str, Any]
    high: Mapping[str, Any]
    nulls: Mapping[str, int]


def bring(folder: Folder, wanted: pa.Schema, known: Columns, commit: Commit, staged: Sequence[Proven]) -> list[Brought]:
    """Make staged files the table's own, durable.

    A file's name is made of its batch and its place in it, so a batch that was tried before takes the same names.

    Args:
        folder: of the table.
        wanted: its columns, as they stand in files.
        known: the same, as kpipe knows them.
        commit: whose files these are.
        staged: the files, verified.

    Raises:
        StagingFailed: a file holds other columns than its commit.
        SchemaConflict: a column's values cannot become the table's.
        DestinationError: the disk refuses.
    """
    by_name = {field.name.lower(): field for field in wanted}
    stem, found = hashlib.sha256(commit.id.encode()).hexdigest()[:32], []
    for at, file in enumerate(staged):
        name = f"kpipe-{stem}-{at:05}.parquet"
        schema = pq.read_schema(file.path)
        matched(of_schema(schema, f"staged file {file.path!r}"), file, commit, known)
        goal = pa.schema([by_name[field.name.lower()] for field in schema])
        if all(field.name == other.name and same(field.type, other.type) for field, other in zip(schema, goal, strict=True)):
            folder.take(Path(file.path), name)
        else:
            _written_anew(folder, file, goal, name, commit)
        found.append(_looked_at(folder.path / name, name, file))
    folder.settle()
    return found


def _written_anew(folder: Folder, file: Proven, goal: pa.Schema, name: str, commit: Commit) -> None:
    aside = folder.path / f".{uuid.uuid4().hex}.tmp"
    try:
        with pq.ParquetFile(file.path) as source, pq.ParquetWriter(aside, goal, compression="snappy") as writer:
            for at in range(source.num_row_groups):
                table = source.read_row_group(at)
                columns = [_cast(table.column(i), field, commit) for i, field in enumerate(goal)]
                writer.write_table(pa.table(columns, schema=goal))
        with aside.open("rb") as written:
            os.fsync(written.fileno())
        aside.replace(folder.path / name)
    finally:
        aside.unlink(missing_ok=True)


def _cast(column: pa.ChunkedArray, field: pa.Field, commit: Commit) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaConflict(
            f"column {field.name} of batch {commit.id} is {column.type} and cannot become {field.type}: {error}",
            "change the column's type, or declare that type under `columns`",
        ) from error


def _looked_at(path: Path, name: str, file: Proven) -> Brought:
    with pq.ParquetFile(path) as parquet:
        meta = parquet.metadata
        if meta.num_rows != file.rows:
            raise StagingFailed(f"{path} holds {meta.num_rows} rows, {file.rows} are staged")
        low, high, nulls = _bounds(meta, parquet.schema_arrow)
    state = path.stat()
    return Brought(name, state.st_size, file.rows, int(state.st_mtime * 1000), low, high, nulls)


def _bounds(meta: Any, schema: pa.Schema) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Exact bounds and numbers of nulls, out of the file's footer; columns of which it does not tell are left out."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [meta.row_group(at) for at in range(meta.num_row_groups)]
    for index in range(meta.num_columns):
        name = groups[0].column(index).path_in_schema if groups else ""
        if name not in schema.names or pa.types.is_nested(schema.field(name).type):
            continue
        found = [group.column(index).statistics for group in groups]
        if any(item is None or not item.has_null_count for item in found):
            continue
        nulls[name] = sum(item.null_count for item in found)
        bounds = [item for item in found if item.has_min_max]
        empty = sum(item.num_values == 0 for item in found if not item.has_min_max)
        if not bounds or len(bounds) + empty < len(found):
            continue
        least, most = _told(min(item.min for item in bounds), up=False), _told(max(item.max for item in bounds), up=True)
        if least is not None and most is not None:
            low[name], high[name] = least, most
    return low, high, nulls


def _told(value: Any, up: bool) -> Any:
    """A bound as Delta's statistics have it; None where it would not be exact (texts may be cut, a NaN has no place)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST and value.isascii() else None
    if isinstance(value, datetime):  # before date, of which it is one. Readers keep milliseconds: the bound must hold them
        rounded = value.replace(microsecond=value.microsecond // 1000 * 1000)
        if up and rounded != value:
            if value > datetime(9999, 1, 1, tzinfo=value.tzinfo):
                return None
            rounded += timedelta(milliseconds=1)
        zone = "Z" if value.tzinfo is not None else ""
        moment = rounded.astimezone(timezone.utc) if zone else rounded
        return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone
    return value.isoformat() if isinstance(value, date) else None
