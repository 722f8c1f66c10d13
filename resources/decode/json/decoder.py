"""Decode JSON payloads to columns: Arrow's reader proves whole blocks, and rejected blocks are divided until the rest is exact.

DuckDB's from_json is not used. Version 2.0.0 silently turns 3.5 into 4 for a BIGINT and non-numeric text into NULL, and drops
members that it was not given. With explicit types, Arrow's reader rejects the first two and reports unknown members. On one
core it reads 270 MB/s, from_json with a check 145 MB/s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from kpipe.column_growth import MOST_IN_RECORD, names_in
from kpipe.schema.columns import Columns, ListOf, Scalar, Struct, Type
from kpipe.schema.inference import infer, nameable
from resources.decode.block import Decoded, Payloads
from resources.decode.growth_guard import Bound
from resources.decode.json.blocks import (
    affordable,
    has_constant,
    has_long_number,
    is_utf8,
    names_of,
    one_line,
    one_object_each,
    too_deep,
)
from resources.decode.json.native import LOOK, native_json
from resources.decode.json.new_members import Judge
from resources.decode.json.rows import Reject, load, row, unknown
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import beyond, from_arrow, is_direct, names, staged_type, wire_type

__all__ = ["JsonDecoder"]

# A rejected block of at most this many payloads is decoded row by row. A call of Arrow's reader costs about as much as
# converting this many rows in Python (0.1 ms, measured).
_SMALLEST_BLOCK = 16
# A rejected block is divided into this many parts. With ten bad rows in 60,000, halves make Arrow read the block six times,
# 32 parts little more than twice.
_FAN_OUT = 32
# Arrow's reader infers new members that have members themselves, if more than one payload in so many has them.
_FEW_NESTED = 16
# Records of many different members that are judged together: a few new columns each stay below the limit of a record.
_TOGETHER = 32


class JsonDecoder:
    """Decodes payloads of one JSON object each.

    A payload becomes a row only if every member with a column converts to the column's type without loss. Otherwise it is a
    reject. Members without a column are reported as new columns. Names that begin with `_kafka_` are reserved, and are
    ignored in payloads.

    Args:
        columns: the payload columns.
        bound: limits on a record's new columns; None: no limits.
    """

    takes_nulls = False

    def __init__(self, columns: Columns, bound: Bound | None = None) -> None:
        self.columns, self._bound = columns, bound or Bound(rejects=False)
        self._names, self._known = set(columns.names()), sum(names_in(kind) for _, kind in columns)
        self._judge = Judge(columns, self._bound)
        self._direct = Columns(tuple((name, kind) for name, kind in columns if is_direct(kind)))
        self._apart = Columns(tuple((name, kind) for name, kind in columns if not is_direct(kind)))
        # Arrow's reader cannot check these, and rewrites numbers: they need compiled code, or are read row by row.
        self._blockwise = not self._apart
        self._wire = pa.schema([(name, wire_type(kind)) for name, kind in self._direct])
        self._options = pj.ParseOptions(explicit_schema=self._wire, unexpected_field_behavior="infer")
        self._native = native_json(columns, (), notes=True) if all(isinstance(kind, Scalar) for _, kind in self._apart) else None

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`."""
        if not len(payloads):
            return Decoded(self._empty(), 0)
        return self._compiled(payloads) or self._try_block(payloads) or self._take_apart(payloads)

    def _compiled(self, payloads: Payloads, nested: bool = False) -> Decoded | None:
        """Decode the block with compiled code, and row by row the payloads that it leaves.

        Python reads members without a column only where they have members themselves, or where the record may be a reject. So
        the time is that of the payloads' members. Return None without compiled code, or with text that cannot be cast.

        Args:
            payloads: the block.
            nested: whether many payloads may have such members; if not, return None for a block that has them.
        """
        if self._native is None or payloads.bounds[-1] >= 2**31:
            return None
        table, status = self._native.decode(payloads)
        fresh = self._native.new_members(payloads)
        if not nested and self._blockwise and np.count_nonzero(fresh.nested) * _FEW_NESTED > len(payloads):
            return None
        alone = self._judge.doubtful(fresh)
        rejects: list[tuple[int, str]] = []
        extras: dict[int, dict[str, Any]] = {}
        for at in np.flatnonzero(alone).tolist():
            try:
                extras[at] = unknown(load(payloads[at]), self.columns, self._names)
            except Reject as error:
                rejects.append((at, str(error)))
        rejects += self._beyond(extras)
        good, refused = status != LOOK, np.zeros(len(payloads), np.bool_)
        if rejects:
            refused[[at for at, _ in rejects]] = True
            table, good = table.filter(pa.array(~refused[good])), good & ~refused
        try:
            table = in_memory.cast(table, self.columns)
        except duckdb.Error:
            return None
        new = fresh.columns(without=refused)
        new = new.joined(infer((extra for at, extra in extras.items() if good[at]), apart=True), apart=True)
        others = np.flatnonzero(status == LOOK).tolist()
        return self._with_others(payloads, table, np.flatnonzero(good).tolist(), others, rejects, new)

    def _try_block(self, payloads: Payloads) -> Decoded | None:
        """Decode the block with Arrow; None if a payload needs other code."""
        if not self._blockwise or not one_object_each(payloads):
            return None
        data = payloads.joined
        if not is_utf8(data) or has_constant(data):  # Arrow's reader does not check UTF-8, and accepts NaN
            return None
        if too_deep(data) or has_long_number(payloads):
            return None
        if self._differ(data) or not affordable(data, self._known):
            return self._compiled(payloads, nested=True)
        try:
            table = pj.read_json(
                pa.BufferReader(data),
                # One chunk: the types of several chunks could differ.
                read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=self._options,
            )
            if table.num_rows != len(payloads):
                return None
            new = self._unexpected(table)
            if new is None:
                return None
            if self._bound.beyond(new):
                return self._compiled(payloads, nested=True)
            return Decoded(self._finish(table), table.num_rows, new_columns=new)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, duckdb.Error):
            return None

    def _differ(self, data: bytes) -> bool:
        """Return whether Arrow's reader would find more new columns than a table can be given, which costs a second read."""
        if self._native is None:
            return False
        return self._bound.closed is not None or names_of(data, self._known + MOST_IN_RECORD) < 0

    def _beyond(self, extras: Mapping[int, dict[str, Any]]) -> Iterator[tuple[int, str]]:
        """Yield the records that may not have their members without a column, with the reasons."""
        records = list(extras.items())
        size = 1 if self._bound.closed is not None else _TOGETHER  # together they are judged faster, if none is a reject
        for start in range(0, len(records), size):
            some = records[start : start + size]
            if size == 1 or self._bound.beyond(infer([extra for _, extra in some], apart=True)):
                for at, extra in some:
                    try:
                        self._checked(extra)
                    except Reject as error:
                        yield at, str(error)

    def _checked(self, extra: dict[str, Any]) -> dict[str, Any]:
        """Return the members of a record that have no column, if it may have as many.

        Raises:
            Reject: it may not.
        """
        if extra and (why := self._bound.beyond(infer([extra], apart=True), alone=True)):
            raise Reject(why)
        return extra

    def _with_others(
        self,
        payloads: Payloads,
        table: pa.Table,
        decoded: list[int],
        others: list[int],
        rejects: list[tuple[int, str]],
        new: Columns,
    ) -> Decoded:
        """Decode the payloads that compiled code leaves row by row, and put all rows in order.

        Args:
            payloads: of the block.
            table: rows of the payloads that are decoded.
            decoded: indices of these.
            others: indices of the payloads that are left.
            rejects: of the block; extended.
            new: new columns of the payloads that are decoded.
        """
        if not others and not rejects:
            return Decoded(table, table.num_rows, new_columns=new)
        kept: list[int] = []
        part = self._row_by_row(Payloads.of([payloads[at] for at in others]), lambda at: others[at], kept, rejects)
        indices = np.array([*decoded, *kept], np.int64)
        order = np.argsort(indices, kind="stable")
        rows = pa.concat_tables([table, part.table]).take(pa.array(order)) if kept else table
        return Decoded(rows, len(indices), indices[order].tolist(), sorted(rejects), new.joined(part.new_columns, apart=True))

    def _unexpected(self, table: pa.Table) -> Columns | None:
        """Return the new columns; None if a name conflicts and the rows have to be decoded one by one."""
        new = []
        for item in table.schema:
            if not all(map(nameable, (item.name, *names(item.type)))):
                return None
            known = self.columns.get(item.name)
            if known is None:
                kind = from_arrow(item.type)
                if kind is not None and not item.name.lower().startswith("_kafka_"):
                    new.append((item.name, kind))
            elif item.name not in self._names:
                return None
            elif item.name in self._direct and item.type != wire_type(known):
                if _clashes(item.type, known):
                    return None
                kind = beyond(item.type, known)
                if kind is not None:
                    new.append((item.name, kind))
        if len({name.lower() for name, _ in new}) < len(new):
            return None
        return Columns(tuple(new))

    def _finish(self, table: pa.Table) -> pa.Table:
        arrays = {name: _fit(table.column(name), wire_type(kind)) for name, kind in self._direct}
        if not len(self.columns):
            return self._empty()
        wire = pa.table([arrays[name] for name in self.columns.names()], names=list(self.columns.names()))
        return in_memory.cast(wire, self.columns)

    def _take_apart(self, payloads: Payloads) -> Decoded:
        """Reject payloads that are not JSON in one pass, then divide the rest until each part is good or small."""
        rejects: list[tuple[int, str]] = []
        good = list(range(len(payloads)))
        if len(payloads) > _SMALLEST_BLOCK or any(b"\n" in payload or b"\r" in payload for payload in payloads.values):
            good, rejects = _valid(payloads)
        values = [one_line(payloads.values[at]) for at in good]
        parts: list[Decoded] = []
        kept: list[int] = []

        def work(start: int, end: int, tried: bool) -> None:
            part = Payloads.of(values[start:end])
            whole = None if tried else self._try_block(part)
            if whole is not None:
                parts.append(whole)
                kept.extend(good[start:end] if whole.kept is None else [good[start + at] for at in whole.kept])
                rejects.extend((good[start + at], why) for at, why in whole.rejects)
            elif end - start > _SMALLEST_BLOCK and self._blockwise:
                size = max(_SMALLEST_BLOCK, -(-(end - start) // _FAN_OUT))
                for at in range(start, end, size):
                    work(at, min(at + size, end), tried=False)
            else:
                parts.append(self._row_by_row(part, lambda at: good[start + at], kept, rejects))

        work(0, len(values), tried=len(good) == len(payloads) and one_object_each(payloads))
        new = Columns()
        for part in parts:
            new = new.joined(part.new_columns, apart=True)
        table = pa.concat_tables([part.table for part in parts]) if parts else self._empty()
        return Decoded(table, len(kept), kept, sorted(rejects), new)

    def _row_by_row(
        self, payloads: Payloads, index: Callable[[int], int], kept: list[int], rejects: list[tuple[int, str]]
    ) -> Decoded:
        rows, extras = [], []
        for at, payload in enumerate(payloads.values):
            try:
                converted, extra = row(load(payload), self.columns)
                self._checked(extra)
            except Reject as error:
                rejects.append((index(at), str(error)))
                continue
            rows.append(converted)
            extras.append(extra)
            kept.append(index(at))
        if not len(self.columns):
            return Decoded(self._empty(), len(rows), new_columns=infer(extras, apart=True))
        wire = pa.table(
            [pa.array([item[name] for item in rows], wire_type(kind)) for name, kind in self.columns],
            names=list(self.columns.names()),
        )
        return Decoded(in_memory.cast(wire, self.columns), len(rows), new_columns=infer(extras, apart=True))

    def _empty(self) -> pa.Table:
        """Return a table without rows."""
        return pa.table([pa.array([], staged_type(kind)) for _, kind in self.columns], names=list(self.columns.names()))


def _valid(payloads: Payloads) -> tuple[list[int], list[tuple[int, str]]]:
    """Return the indices of payloads that are JSON, and the others with their reasons."""
    rejects: list[tuple[int, str]] = []
    texts: list[str | None] = []
    for payload in payloads.values:
        try:
            texts.append(payload.decode("utf-8"))
        except UnicodeDecodeError:
            texts.append(None)
    valid = pc.fill_null(in_memory.json_valid(pa.array(texts, pa.string())), False).to_pylist()
    good = []
    for at, ok in enumerate(valid):
        if ok:
            good.append(at)
            continue
        try:
            load(payloads.values[at])
            good.append(at)  # DuckDB is stricter than Python here; decoding the row decides
        except Reject as error:
            rejects.append((at, str(error)))
    return good, rejects


def _clashes(found: pa.DataType, known: Type) -> bool:
    """Return whether a member at any depth, even if it is always null, differs from a known one by case only."""
    if isinstance(known, ListOf) and pa.types.is_list(found):
        return _clashes(found.value_type, known.item)
    if not isinstance(known, Struct) or not pa.types.is_struct(found):
        return False
    members = dict(known.fields)
    folded = {name.lower() for name in members}
    return any(_clashes(item.type, members[item.name]) if item.name in members else item.name.lower() in folded for item in found)


def _fit(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Remove unknown members from a column."""
    if column.type == kind:
        return column
    return pa.chunked_array([_fit_array(chunk, kind) for chunk in column.chunks], kind)


def _fit_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        members = [_fit_array(pc.struct_field(array, kind.field(at).name), kind.field(at).type) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, _fit_array(array.values, kind.value_type), type=kind, mask=array.is_null())
    return array.cast(kind)
