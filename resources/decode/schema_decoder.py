"""Decode payloads of one typed schema to rows: good payloads with compiled code, others one by one in Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from kpipe.column_growth import names_in
from kpipe.definition.formats import Mapped
from kpipe.schema.columns import JSON, Columns, ListOf, Struct, Type
from resources.decode.block import Payloads, TooManyRows, filtered
from resources.decode.convert import Fitting
from resources.decode.exploded_columns import ColumnLists
from resources.decode.json.rows import Reject
from resources.decode.paths.columns import MappedFitting
from resources.decode.payload_schemas import Part
from resources.decode.repeated import MOST_CELLS

__all__ = ["Digits", "Leaves", "Native", "Typed", "dumped"]

#: Functions from bytes to JSON text, by the path of the column or member; None means the items of a list.
Leaves = dict[tuple[str | None, ...], Callable[[bytes], str]]


class Native(Protocol):
    """A compiled decoder."""

    def decode(self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int) -> tuple[list[pa.Array], np.ndarray[Any, Any]]:
        """Decode some payloads after `skip` bytes; return the columns of the good ones, and for each whether it is good.

        Raises:
            MemoryError: the block is too large.
        """
        ...


class Other(Protocol):
    """A reader's schema.

    Attributes:
        columns: the columns of that schema.
    """

    columns: Columns

    def resolve(self, arrays: Sequence[pa.Array], rows: int, reasons: dict[int, str]) -> list[pa.Array]:
        """Convert columns of the writer's schema to this one, and add by row the reasons of failed conversions."""
        ...


@dataclass(frozen=True)
class Digits:
    """A number in JSON, with all of its digits."""

    text: str


def dumped(value: Any) -> str:
    """Return JSON text. Python's json module would round long numbers to a float."""
    if isinstance(value, Digits):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{dumped(key)}:{dumped(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dumped, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


class Typed:
    """Decodes payloads of one schema.

    Args:
        natural: the schema's columns.
        carried: Arrow types of the columns before conversion.
        native: the compiled decoder; None: all payloads are read one by one.
        row: reads one payload; raises Reject.
        leaves: convert parts that are carried as bytes to JSON text; raise Reject.
        columns: the table's columns.
        mapping: the format's mapping.
        other: the reader's schema, if it differs from the writer's.
        lists: the lists to explode; None: a payload is one row.
    """

    def __init__(
        self,
        natural: Columns,
        carried: pa.StructType,
        native: Native | None,
        row: Callable[[bytes], dict[str, Any]],
        leaves: Leaves,
        columns: Columns,
        mapping: Mapping[str, str | Mapped] | None,
        other: Other | None = None,
        lists: ColumnLists | None = None,
    ) -> None:
        self._other, self._lists = other, lists
        self._width = sum(names_in(kind) for _, kind in columns)
        self._natural, self._carried, self._native, self._row, self._leaves = natural, carried, native, row, leaves
        wanted = lists.columns if lists is not None else natural if other is None else other.columns
        self._fitting: Fitting | MappedFitting = Fitting(wanted, columns)
        if mapping is not None:
            self._fitting = MappedFitting(wanted, columns, mapping)

    def decode(self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int) -> Part:
        """Decode the chosen payloads. If a column exceeds 2 GiB, as enum symbols can, they are decoded in halves."""
        try:
            return self._decode(payloads, chosen, skip)
        except MemoryError:
            if len(chosen) == 1:
                why = "the record is too large: its columns do not fit into memory"
                return Part(None, chosen[:0], [(int(chosen[0]), why)], Columns())
        halves = [self.decode(payloads, part, skip) for part in np.array_split(chosen, 2)]
        tables = [part.table for part in halves if part.table is not None]
        return Part(
            pa.concat_tables(tables) if tables else None,
            np.concatenate([part.kept for part in halves]),
            [item for part in halves for item in part.rejects],
            halves[0].new.joined(halves[1].new),
            halves[0].found.joined(halves[1].found, apart=True),
        )

    def _decode(self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int) -> Part:
        rejects: list[tuple[int, str]] = []
        arrays, kept = self._read(payloads, chosen, skip, rejects)
        reasons: dict[int, str] = {}
        rows = np.arange(len(kept))
        members = [
            self._texts(array, kind, (name,), rows, name, reasons)
            for array, (name, kind) in zip(arrays, self._natural, strict=True)
        ]
        if self._other is not None:
            members = self._other.resolve(members, len(kept), reasons)
        if self._lists is None:
            table, more = self._fitting.fit(members, len(kept))
        else:
            members, rows = self._lists.apart(members, len(kept))
            if len(rows) * self._width > MOST_CELLS:
                raise MemoryError(f"{len(rows):,} rows") if len(kept) == 1 else TooManyRows
            table, found = self._fitting.fit(members, len(rows))
            more = _of_records(found, rows)
        reasons = {**more, **reasons}
        if reasons:
            rejects += [(int(kept[row]), why) for row, why in reasons.items()]
            good = ~np.isin(rows, list(reasons))
            table, rows = filtered(table, good), rows[good]
        if reasons or self._lists is not None:
            kept = kept[rows]
        if not len(kept):
            return Part(table, kept, rejects, Columns())
        return Part(table, kept, rejects, self._fitting.new, self._fitting.found)

    def _read(
        self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int, rejects: list[tuple[int, str]]
    ) -> tuple[list[pa.Array], np.ndarray[Any, Any]]:
        """Return the columns before conversion, and the payload of each row."""
        arrays: list[pa.Array] = []
        undecoded, kept = chosen, np.zeros(0, np.int64)
        if self._native is not None:
            arrays, good = self._native.decode(payloads, chosen, skip)
            undecoded, kept = chosen[~good], chosen[good]
        rows, indices = [], []
        for index in undecoded.tolist():
            try:
                rows.append(self._row(payloads[index][skip:]))
                indices.append(index)
            except Reject as error:
                rejects.append((index, str(error)))
        if self._native is not None and not rows:
            return arrays, kept
        slow = [pa.array([row[item.name] for row in rows], item.type) for item in self._carried]
        if not arrays:
            return slow, np.array(indices, np.int64)
        order = np.argsort(owners := np.concatenate((kept, np.array(indices, np.int64))), kind="stable")
        both = [pa.concat_arrays(pair).take(pa.array(order)) for pair in zip(arrays, slow, strict=True)]
        return both, owners[order]

    def _texts(
        self,
        array: pa.Array,
        kind: Type,
        place: tuple[str | None, ...],
        rows: np.ndarray[Any, Any],
        path: str,
        reasons: dict[int, str],
    ) -> pa.Array:
        """Replace bytes by JSON text in a column."""
        if "JSON" not in str(kind):
            return array
        if kind == JSON:
            return self._json(array, self._leaves[place], rows, path, reasons)
        if isinstance(kind, ListOf):
            parents = rows[array.value_parent_indices().to_numpy()]
            items = self._texts(array.flatten(), kind.item, (*place, None), parents, f"{path}[]", reasons)
            offsets = pa.array(array.offsets.to_numpy() - array.offsets[0].as_py(), pa.int32())
            return pa.ListArray.from_arrays(offsets, items, type=pa.list_(items.type), mask=array.is_null())
        assert isinstance(kind, Struct)
        members = []
        for at, (name, inner) in enumerate(kind.fields):
            member = array.field(at) if not array.null_count else array.flatten()[at]
            members.append(self._texts(member, inner, (*place, name), rows, f"{path}.{name}", reasons))
        return pa.StructArray.from_arrays(members, [name for name, _ in kind.fields], mask=array.is_null())

    def _json(
        self,
        array: pa.Array,
        text: Callable[[bytes], str],
        rows: np.ndarray[Any, Any],
        path: str,
        reasons: dict[int, str],
    ) -> pa.Array:
        texts: list[str | None] = []
        for row, part in enumerate(array.to_pylist()):
            try:
                texts.append(None if part is None else text(part))
            except Reject as error:
                texts.append(None)
                reasons.setdefault(int(rows[row]), f"{path}: {str(error).removeprefix('the record: ')}")
        return pa.array([None if item == "null" else item for item in texts], pa.string())


def _of_records(reasons: Mapping[int, str], rows: np.ndarray[Any, Any]) -> dict[int, str]:
    """Return the first reason of each record; `rows` has the record of each row, in order."""
    found: dict[int, str] = {}
    for row, why in sorted(reasons.items()):
        first, last = np.searchsorted(rows, rows[row], "left"), np.searchsorted(rows, rows[row], "right")
        found.setdefault(int(rows[row]), f"row {row - first + 1}: {why}" if last - first > 1 else why)
    return found
