"""Turn staged files into files of a table: linked if their types match, rewritten if a type differs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch.batch import Commit
from kpipe.definition.lakehouse_options import Part
from kpipe.errors import SchemaConflict, StagingFailed
from kpipe.schema.columns import Columns
from resources.destinations.arrow_types import cast, of_schema, owners, same
from resources.destinations.lakehouse.durable_parquet import durable_writer
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.partitions import division
from resources.destinations.sql.column_matching import matched
from resources.destinations.staged_file_check import Proven
from resources.object_store.open_file import opened
from resources.table_partitions import Values, apart

__all__ = ["Brought", "bring", "bring_blocks", "cast_column", "day", "file_facts"]

_YEARS = (-719_162, 2_932_896)  # days of years 1 to 9999
_DAY_MS = 86_400_000
_LONGEST = 64  # characters of a string in a column's bounds


@dataclass(frozen=True)
class Brought:
    """A file in the table's folder that no commit references yet.

    Attributes:
        name: relative to the table.
        size: bytes.
        rows: number of rows.
        modified: ms since 1970.
        low, high: exact bounds by column, where known.
        nulls: number of NULLs by column.
        values: partition values that all rows share.
    """

    name: str
    size: int
    rows: int
    modified: int
    low: Mapping[str, Any]
    high: Mapping[str, Any]
    nulls: Mapping[str, int]
    values: Values = ()


def bring(
    folder: Folder,
    wanted: pa.Schema,
    known: Columns,
    commit: Commit,
    staged: Sequence[Proven],
    parts: Sequence[Part] = (),
    version: int = 0,
) -> list[Brought]:
    """Copy or link staged files into the table's folder, durably.

    A file's name is derived from its batch, the table's version and its index. Another attempt on the same version uses the same
    names. One on a later version uses others, so a file without reference is never named later (maintenance/removal.py).

    Args:
        folder: of the table.
        wanted: the table's columns as Arrow fields.
        known: the same as kpipe's types.
        commit: the commit of these files.
        staged: the verified files.
        parts: partition columns. Tasks write files of one partition each; other files are split here.
        version: of the table before the commit.

    Raises:
        StagingFailed: a file has other columns than its commit.
        SchemaConflict: a column's values cannot be converted to the table's type.
        DestinationError: a file cannot be written.
    """
    by_name = {field.name.lower(): field for field in wanted}
    stem, found = hashlib.sha256(f"{commit.id} {version}".encode()).hexdigest()[:32], []
    for at, file in enumerate(staged):
        name = f"kpipe-{stem}-{at:05}.parquet"
        with opened(file.path) as stream, pq.ParquetFile(stream) as source:
            schema, values = source.schema_arrow, division(source, parts)
        matched(of_schema(schema, f"staged file {file.path!r}"), file, commit, known)
        goal = pa.schema([by_name[field.name.lower()] for field in schema])
        if values is None:
            found += _taken_apart(folder, file.path, goal, name.removesuffix(".parquet"), commit, parts)
            continue
        if all(field.name == other.name and same(field.type, other.type) for field, other in zip(schema, goal, strict=True)):
            folder.take(file.path, name)
        else:
            _written_anew(folder, file, goal, name, commit)
        found.append(file_facts(folder, name, file.rows, values))
    folder.settle()
    return found


def bring_blocks(
    folder: Folder, wanted: pa.Schema, blocks: Iterator[pa.Table], stem: str, commit: Commit, parts: Sequence[Part] = ()
) -> list[Brought]:
    """Write rows with all columns of a table into its folder, durably: one file, or one for each partition.

    Args:
        folder: of the table.
        wanted: the table's columns as Arrow fields.
        blocks: rows with these columns, in types of staged files.
        stem: beginning of the files' names; no other file has it.
        commit: the commit of these files.
        parts: partition columns.

    Raises:
        SchemaConflict: a column's values cannot be converted to the table's type.
        DestinationError: a file cannot be written.
    """
    first = next(blocks, None)
    if first is None:
        return []
    with folder.aside() as aside:
        rows = 0
        with durable_writer(aside, wanted) as out:
            for block in chain((first,), blocks):
                columns = [cast_column(block.column(at), field, f"batch {commit.id}") for at, field in enumerate(wanted)]
                out.write_table(pa.table(columns, schema=wanted))
                rows += len(block)
        with pq.ParquetFile(aside) as source:
            values = division(source, parts)
        if values is None:
            found = _taken_apart(folder, str(aside), wanted, stem, commit, parts)
        else:
            name = f"{stem}-00000.parquet"
            folder.take(str(aside), name)
            found = [file_facts(folder, name, rows, values)]
    folder.settle()
    return found


def _taken_apart(folder: Folder, path: str, goal: pa.Schema, stem: str, commit: Commit, parts: Sequence[Part]) -> list[Brought]:
    found = []
    with opened(path) as stream, pq.ParquetFile(stream) as source:
        for at, (values, rows) in enumerate(apart(source.read(), parts)):
            name = f"{stem}-{at:05}.parquet"
            with folder.aside() as aside:
                columns = [cast_column(rows.column(i), field, f"batch {commit.id}") for i, field in enumerate(goal)]
                with durable_writer(aside, goal) as out:
                    out.write_table(pa.table(columns, schema=goal))
                folder.take(str(aside), name)
            found.append(file_facts(folder, name, rows.num_rows, values))
    return found


def _written_anew(folder: Folder, file: Proven, goal: pa.Schema, name: str, commit: Commit) -> None:
    with folder.aside() as aside:
        with (
            opened(file.path) as stream,
            pq.ParquetFile(stream) as source,
            durable_writer(aside, goal) as out,
        ):
            for at in range(source.num_row_groups):
                table = source.read_row_group(at)
                columns = [cast_column(table.column(i), field, f"batch {commit.id}") for i, field in enumerate(goal)]
                out.write_table(pa.table(columns, schema=goal))
        folder.take(str(aside), name)


def cast_column(column: pa.ChunkedArray, field: pa.Field, where: str) -> pa.ChunkedArray:
    """Cast a column to the table's type.

    Raises:
        SchemaConflict: a value does not fit; the message names `where`.
    """
    if column.type == field.type:
        return column
    try:
        return cast(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaConflict(
            f"column {field.name} of {where}: {column.type} cannot be converted to {field.type}: {error}",
            "change the column's type, or declare that type under `columns`",
        ) from error


def file_facts(folder: Folder, name: str, rows: int, values: Values) -> Brought:
    """Read size, bounds and numbers of NULLs of a new file.

    Raises:
        StagingFailed: it has another number of rows, or was deleted.
    """
    with folder.opened(name) as stream, pq.ParquetFile(stream) as parquet:
        meta = parquet.metadata
        if meta.num_rows != rows:
            raise StagingFailed(f"{folder.place}/{name}: expected {rows} rows, found {meta.num_rows}")
        low, high, nulls = _bounds(meta, parquet.schema_arrow)
    found = folder.look(name)
    if found is None:
        raise StagingFailed(f"{folder.place}/{name} was deleted during the commit")
    return Brought(name, found[0], rows, found[1], low, high, nulls, values)


def _bounds(meta: Any, schema: pa.Schema) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Return exact bounds and numbers of NULLs from the footer, without columns that it has no statistics of."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [meta.row_group(at) for at in range(meta.num_row_groups)]
    for index, owner in enumerate(owners(schema)):
        name = schema.field(owner).name
        if not groups or pa.types.is_nested(schema.field(owner).type):
            continue
        found = [group.column(index).statistics for group in groups]
        if any(item is None or not item.has_null_count for item in found):
            continue
        nulls[name] = sum(item.null_count for item in found)
        bounds = [item for item in found if item.has_min_max]
        empty = sum(item.num_values == 0 for item in found if not item.has_min_max)
        if not bounds or len(bounds) + empty < len(found):
            continue
        least, most = _ends(bounds, schema.field(owner).type)
        if least is not None and most is not None:
            low[name], high[name] = least, most
    return low, high, nulls


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind))


def _ends(bounds: Sequence[Any], kind: pa.DataType) -> tuple[Any, Any]:
    """Return bounds of a column for Delta's statistics; None where they are not exact or cannot be written there.

    Strings may be truncated, and NaN has no bound. Times are strings, which all readers parse equally in years 1 to 9999.
    """
    if _is_time(kind):
        least, most = min(item.min_raw for item in bounds), max(item.max_raw for item in bounds)
        return _time(least, kind, up=False), _time(most, kind, up=True)
    if pa.types.is_integer(kind):
        return min(item.min for item in bounds), max(item.max for item in bounds)
    if not pa.types.is_string(kind):
        return None, None
    texts = min(item.min for item in bounds), max(item.max for item in bounds)
    return texts if all(len(text) <= _LONGEST and text.isascii() for text in texts) else (None, None)


def _time(value: int, kind: pa.DataType, up: bool) -> str | None:
    if pa.types.is_date32(kind):
        return day(value)
    numbers = -(-value // 1000) if up else value // 1000  # readers truncate to milliseconds: the bound must include them
    if not _YEARS[0] * _DAY_MS <= numbers < (_YEARS[1] + 1) * _DAY_MS:
        return None
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=numbers)
    return moment.isoformat(timespec="milliseconds") + ("Z" if kind.tz is not None else "")


def day(value: int) -> str | None:
    """Return a DATE as text from its days since 1970; None outside of years 1 to 9999."""
    return (date(1970, 1, 1) + timedelta(days=value)).isoformat() if _YEARS[0] <= value <= _YEARS[1] else None
