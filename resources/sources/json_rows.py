"""Convert rows in Arrow to records: each row is a JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.errors import ReadFailed, SchemaConflict
from kpipe.schema.columns import Columns
from resources.destinations.arrow_types import of_schema
from resources.destinations.json_documents import documents
from resources.kafka.record_block import COLUMNS, RecordBlock

__all__ = ["exact_type", "json_records", "json_rows", "leaves", "problem_of"]

_FIRST_MOMENT = -9_223_372_022_400_000_000
_MOST_DIGITS = 38  # of a decimal in 128 bits


def json_rows(where: str, rows: pa.Table, offsets: pa.Array, columns: Columns | None = None) -> RecordBlock:
    """Return rows as records at these offsets.

    Args:
        where: the split, for messages.
        rows: the rows.
        offsets: of each row, int64.
        columns: types of the rows in microseconds, where text may be JSON; None: the types of Arrow.

    Raises:
        ReadFailed: a type has no form in JSON, or a time is beyond microseconds or DuckDB's range. Also a duplicate key of a map,
            names that differ by case only, and values that their type does not have: DuckDB would write them, or stop.
    """
    _check_names(where, [(field.name, field.type) for field in rows.schema])
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        _check_values(where, name, column, offsets)
    try:
        exact = rows.cast(pa.schema([field.with_type(exact_type(field.type)) for field in rows.schema]))
        for column in exact.columns:
            for chunk in column.chunks:
                for leaf in leaves(chunk):
                    _check_time(where, leaf)
        return json_records(documents(exact, columns or of_schema(exact.schema, where)), offsets)
    except duckdb.Error as error:
        raise ReadFailed(f"{where}: rows cannot be written as JSON: {str(error)[:200]}", "leave the column out") from None
    except pa.ArrowInvalid as error:
        raise ReadFailed(f"{where}: {error}", "write its times with microseconds") from None
    except SchemaConflict as error:
        raise ReadFailed(error.what, "leave the column out") from None


def json_records(values: list[str], offsets: pa.Array) -> RecordBlock:
    """Return documents as records at these offsets."""
    size = len(values)
    none = pa.nulls(size, pa.binary())
    lines = pa.array([f"{value}\n".encode() for value in values], pa.large_binary())
    return RecordBlock(pa.table([offsets, pa.repeat(pa.scalar(-1, pa.int64()), size), lines, none, none], schema=COLUMNS))


def _check_names(where: str, fields: Sequence[tuple[str, pa.DataType]]) -> None:
    """Check the names of columns, or of members: DuckDB would take the first of those that differ by case only."""
    names = [name.lower() for name, _ in fields]
    twice = next((name for (name, _), folded in zip(fields, names, strict=True) if names.count(folded) > 1), None)
    if twice is not None:
        raise ReadFailed(f"{where}: {twice!r} is the name of two columns or members (in any case)", "rename one, or leave it out")
    for _, kind in fields:
        while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            _check_names(where, [(field.name, field.type) for field in kind])
        elif pa.types.is_map(kind):
            _check_names(where, [("value", kind.item_type)])


def _check_values(where: str, name: str, column: pa.ChunkedArray, offsets: pa.Array) -> None:
    """Check that texts are UTF-8, and decimals have no more digits than their type: a file may contain any bytes."""
    start = 0
    for chunk in column.chunks:
        problem = problem_of(chunk)
        if problem:
            rows = range(len(chunk)) if not pa.types.is_nested(chunk.type) else ()
            at = next((at for at in rows if problem_of(chunk.slice(at, 1))), None)
            row = "" if at is None else f"row {offsets[start + at].as_py()}: "
            raise ReadFailed(f"{where}: {row}column {name!r}: {problem}", "fix the value, or leave the column out")
        start += len(chunk)


def problem_of(array: pa.Array) -> str:
    """Return how values are invalid for their type; empty: they are valid."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        text = str(error)
        if "UTF8" in text:
            return "a text is not UTF-8"
        return "a decimal has too many digits for its type" if "precision" in text else "its values are damaged"
    # Arrow takes -2^127, the lowest of 128 bits, for a number of 38 digits.
    lowest = (pc.min(leaf).as_py() for leaf in leaves(array) if pa.types.is_decimal128(leaf.type))
    too_low = any(value is not None and len(value.as_tuple().digits) > _MOST_DIGITS for value in lowest)
    return "a decimal has too many digits for its type" if too_low else ""


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays without members of an array: itself, or those at any depth. Keys of maps are left out."""
    if pa.types.is_struct(array.type):
        for at in range(array.type.num_fields):
            yield from leaves(pc.struct_field(array, [at]))
    elif pa.types.is_map(array.type):
        yield from leaves(array.items)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        yield from leaves(array.flatten())
    else:
        yield array


def _check_time(where: str, array: pa.Array) -> None:
    """Check that DuckDB has the times, which are in microseconds."""
    if pa.types.is_timestamp(array.type):
        first = pc.min(array.cast(pa.int64())).as_py()
        if first is not None and -(2**63) + 1 != first < _FIRST_MOMENT:
            raise ReadFailed(f"{where}: a time is before 290309-12-22 BC, the first that DuckDB has", "leave the column out")


def exact_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of staged files that has the same values, at any depth; microseconds are the finest unit."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz is not None else None)
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(exact_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, exact_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return made(kind.value_field.with_type(exact_type(kind.value_type)))
    return pa.float32() if pa.types.is_float16(kind) else kind
