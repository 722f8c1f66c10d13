"""Decode a program's record batches: to typed columns once, then to the columns of each table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kpipe.errors import TransformFailed
from kpipe.schema.columns import NOTHING, Columns, Type
from kpipe.schema.inference import nameable
from resources.decode.arrow.ipc_stream import MOST_BYTES, brief
from resources.decode.arrow.types import Rows, Untyped, column_type, plain, plain_bytes
from resources.decode.block import Decoded, filtered
from resources.decode.convert import Fitting, convertible
from resources.decode.growth_guard import Bound

__all__ = ["OFFSET", "ArrowDecoder", "BatchReader", "TypedRows"]

_BLOCK_ROWS = 1 << 16  # bounds the memory of decoding when a program writes large batches
_OFFSETS, _CAST = "write for each row the offset of its record", "cast it in the program"
#: Column of a program's output with the offset of each row's record; never a column of the table.
OFFSET = "offset"


@dataclass(frozen=True)
class TypedRows:
    """Rows of a program.

    Attributes:
        columns: names and types; of all rows of a stream the same.
        arrays: the columns, in staged types.
        count: number of rows.
        offsets: offset of each row's record, if the program writes them.
        reasons: by row, why it is invalid.
        owners: position of each row's record, ascending; None: each record has one row.
    """

    columns: Columns
    arrays: Sequence[pa.Array]
    count: int
    offsets: Rows | None
    reasons: dict[int, str]
    owners: Rows | None = None

    def part(self, start: int, end: int) -> TypedRows:
        """Return the rows `[start, end)`."""
        return TypedRows(
            self.columns,
            [array.slice(start, end - start) for array in self.arrays],
            end - start,
            None if self.offsets is None else self.offsets[start:end],
            {row - start: why for row, why in self.reasons.items() if start <= row < end},
        )

    @classmethod
    def joined(cls, parts: Sequence[TypedRows]) -> TypedRows:
        """Join the rows of one stream."""
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(part.count for part in parts)]).tolist()
        reasons = {start + row: why for start, part in zip(starts, parts, strict=False) for row, why in part.reasons.items()}
        offsets = [part.offsets for part in parts if part.offsets is not None]
        arrays = [pa.concat_arrays(same) for same in zip(*(part.arrays for part in parts), strict=True)]
        return cls(parts[0].columns, arrays, starts[-1], np.concatenate(offsets) if offsets else None, reasons)


class BatchReader:
    """Validator of a stream's record batches.

    Args:
        schema: of the stream.
        where: the program and its range, for messages.

    Raises:
        TransformFailed: a column's type or name cannot be stored.
    """

    def __init__(self, schema: pa.Schema, where: str) -> None:
        self._where = where
        names = [name.lower() for name in schema.names]
        twice = next((name for name in schema.names if names.count(name.lower()) > 1), None)
        if twice is not None:
            what = f"it writes two columns {twice!r} (upper and lower case are the same)"
            raise _failed(where, what, "rename one of them")
        self.traced = OFFSET in schema.names
        self._types: dict[str, Type] = {}
        for field in schema:
            if field.name == OFFSET:
                if field.type != pa.int64():
                    raise _failed(where, f"column {OFFSET}: expected int64, found {field.type}", _OFFSETS)
                continue
            try:
                kind = column_type(field.type)
            except Untyped as error:
                raise _failed(where, f"column {field.name}: no column type stores {error}", _CAST) from None
            except UnicodeDecodeError as error:
                raise _failed(where, f"column {field.name}: the name of a member is not UTF-8: {error.object!r}", _CAST) from None
            if not nameable(field.name):
                what = f"column {brief(field.name)!r}: expected a name of 1 to 255 characters without NUL"
                raise _failed(where, what, "rename it in the program")
            if kind != NOTHING:
                self._types[field.name] = kind
        self._columns = Columns(tuple(self._types.items()))

    def read(self, batch: pa.RecordBatch) -> Iterator[TypedRows]:
        """Validate a batch, convert its columns, and yield its rows in blocks.

        Raises:
            TransformFailed: the batch is damaged, too large, or has rows without an offset.
        """
        bad: dict[int, str] = {}
        try:
            batch.validate(full=True)
        except (pa.ArrowException, ValueError) as error:
            batch = self._without_bad_text(batch, error, bad)
        needed = sum(map(plain_bytes, batch.columns))
        if needed > MOST_BYTES:
            what = f"a record batch has {needed:,} bytes without dictionaries: expected {MOST_BYTES:,} at most"
            raise _failed(self._where, what, "write smaller record batches", "work")
        nulls = batch.column(OFFSET).null_count if self.traced else 0
        if nulls:
            what = f"column {OFFSET}: {nulls:,} of {batch.num_rows:,} rows have NULL"
            raise _failed(self._where, what, _OFFSETS, "work")
        for start in range(0, batch.num_rows, _BLOCK_ROWS):
            part = batch.slice(start, _BLOCK_ROWS)  # only of a valid batch: Arrow aborts the process otherwise
            reasons = {row - start: why for row, why in bad.items() if start <= row < start + _BLOCK_ROWS}
            rows = np.arange(part.num_rows)
            arrays = [plain(part.column(name), kind, rows, name, reasons) for name, kind in self._types.items()]
            offsets = part.column(OFFSET).to_numpy() if self.traced else None
            yield TypedRows(self._columns, arrays, part.num_rows, offsets, reasons)

    def _without_bad_text(self, batch: pa.RecordBatch, error: Exception, reasons: dict[int, str]) -> pa.RecordBatch:
        """Replace texts that are not UTF-8 by NULL, with a reason for their rows; anything else invalid is an error."""
        if any(len(column) != batch.num_rows for column in batch.columns):
            raise self._damaged(error)
        try:
            columns = [self._text(name, column, reasons) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
        except (pa.ArrowException, ValueError) as problem:
            raise self._damaged(problem) from problem
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _text(self, name: str, column: pa.Array, reasons: dict[int, str]) -> pa.Array:
        as_bytes = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(column.type)
        if as_bytes is None:
            column.validate(full=True)
            return column
        column.validate()
        raw = column.view(as_bytes)
        raw.validate(full=True)
        values: list[bytes | None] = raw.to_pylist()
        for row, value in enumerate(values):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                reasons.setdefault(row, f"{name}: not UTF-8 at byte {error.start}")
                values[row] = None
        return pa.array(values, as_bytes).view(column.type)

    def _damaged(self, error: Exception) -> TransformFailed:
        return _failed(self._where, f"a record batch is damaged: {brief(error)}", "check the library that writes it", "work")


class ArrowDecoder:
    """Decodes rows of a program to the columns of one table, by name.

    Args:
        columns: the table's columns.
        bound: limits on new columns; None: no limits.
        where: the program and its range, for messages.
    """

    def __init__(self, columns: Columns, bound: Bound | None = None, where: str = "") -> None:
        self._columns, self._bound, self._where = columns, bound, where
        self._natural: Columns | None = None

    def decode(self, rows: TypedRows) -> Decoded:
        """Decode a block. A record with an invalid row is a reject with all of its rows.

        Raises:
            TransformFailed: a column's type cannot be converted to the table's, or the table takes no more columns or fields.
        """
        if self._natural is not rows.columns:
            self._open(rows.columns)
        table, reasons = self._fitting.fit(rows.arrays, rows.count)
        new = self._found()
        reasons = {**reasons, **rows.reasons}
        if not reasons:
            return Decoded(table, rows.count, None if rows.owners is None else rows.owners.tolist(), new_columns=new)
        owners = np.arange(rows.count) if rows.owners is None else rows.owners
        bad: dict[int, str] = {}
        for row in sorted(reasons):
            bad.setdefault(int(owners[row]), reasons[row])
        good = ~np.isin(owners, list(bad))
        return Decoded(filtered(table, good), int(good.sum()), owners[good].tolist(), sorted(bad.items()), new)

    def _found(self) -> Columns:
        """Return the new columns of the schema and of the last block's values."""
        found = self._fitting.found
        if not found:
            return self._new
        why = self._bound.beyond(found) if self._bound is not None else ""
        if why:
            raise _failed(self._where, why, "write only members that the table has", "work")
        return self._new.joined(found, apart=True)

    def _open(self, natural: Columns) -> None:
        self._natural, self._fitting = natural, Fitting(natural, self._columns)
        for name, kind in natural:
            wanted = self._columns.get(name)
            if wanted is not None and not convertible(kind, wanted):
                raise _failed(self._where, f"column {name}: expected {wanted}, found {kind}", _CAST)
        self._new = self._fitting.new
        if self._bound is not None:
            why = self._bound.beyond(self._new, alone=True)
            if why:
                raise _failed(self._where, why, "write fewer columns, or name them")
            self._new = self._bound.report(self._new)


def _failed(where: str, reason: str, hint: str, phase: str = "") -> TransformFailed:
    """Return the error; without a phase, no record is the cause, and none is searched."""
    return TransformFailed(f"transform{f' ({where})' if where else ''}: {reason}", hint, phase)
