"""Payloads of one schema that has types as rows of the table: compiled where they are good, one by one where they are not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from kpipe.definition.formats import Mapped
from kpipe.schema.columns import JSON, Columns, ListOf, Struct, Type
from resources.decode.block import Payloads
from resources.decode.convert import Fitting
from resources.decode.json.rows import Reject
from resources.decode.paths.columns import MappedFitting
from resources.decode.payload_schemas import Part

__all__ = ["Digits", "Leaves", "Native", "Typed", "dumped"]

#: How bytes become JSON text, by the path of the column or member that is carried so; None stands for the items of a list.
Leaves = dict[tuple[str | None, ...], Callable[[bytes], str]]


class Native(Protocol):
    """A compiled decoder."""

    def decode(self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int) -> tuple[list[pa.Array], np.ndarray[Any, Any]]:
        """The columns of the good ones of some payloads, behind so many bytes, and which are good.

        Raises:
            MemoryError: the block is too large.
        """
        ...


class Other(Protocol):
    """Another schema, by which records are to be read.

    Attributes:
        columns: as it has them.
    """

    columns: Columns

    def resolve(self, arrays: Sequence[pa.Array], rows: int, reasons: dict[int, str]) -> list[pa.Array]:
        """Its columns from those that were read, and reasons by row where a value cannot be what it wants."""
        ...


@dataclass(frozen=True)
class Digits:
    """A number that JSON is given as it is written."""

    text: str


def dumped(value: Any) -> str:
    """JSON text; Python's own writer would send long numbers through a float."""
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
        natural: the columns as the schema has them.
        carried: their types as they are read.
        native: the compiled decoder; None: all is read one by one.
        row: reads one; raises Reject.
        leaves: of parts that are carried as bytes; each raises Reject.
        columns: the table's.
        mapping: the format's.
        other: what the columns are to another schema, which the table's are made from.
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
    ) -> None:
        self._other = other
        self._natural, self._carried, self._native, self._row, self._leaves = natural, carried, native, row, leaves
        wanted = natural if other is None else other.columns
        self._fitting: Fitting | MappedFitting = Fitting(wanted, columns)
        if mapping is not None:
            self._fitting = MappedFitting(wanted, columns, mapping)

    def decode(self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int) -> Part:
        """Rows of the chosen payloads. A column of a block has 2 GiB at most; symbols of an enum may make much of few bytes."""
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
        table, more = self._fitting.fit(members, len(kept))
        reasons = {**more, **reasons}
        if reasons:
            rejects += [(int(kept[row]), why) for row, why in reasons.items()]
            good = np.ones(len(kept), bool)
            good[list(reasons)] = False
            table, kept = table.filter(pa.array(good)) if table.num_columns else table, kept[good]
        return Part(table, kept, rejects, self._fitting.new if len(kept) else Columns())

    def _read(
        self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int, rejects: list[tuple[int, str]]
    ) -> tuple[list[pa.Array], np.ndarray[Any, Any]]:
        """The columns as they are carried, and the payload of each row."""
        arrays: list[pa.Array] = []
        looked, kept = chosen, np.zeros(0, np.int64)
        if self._native is not None:
            arrays, good = self._native.decode(payloads, chosen, skip)
            looked, kept = chosen[~good], chosen[good]
        rows, found = [], []
        for at in looked.tolist():
            try:
                rows.append(self._row(payloads[at][skip:]))
                found.append(at)
            except Reject as error:
                rejects.append((at, str(error)))
        if self._native is not None and not rows:
            return arrays, kept
        slow = [pa.array([row[item.name] for row in rows], item.type) for item in self._carried]
        if not arrays:
            return slow, np.array(found, np.int64)
        order = np.argsort(places := np.concatenate((kept, np.array(found, np.int64))), kind="stable")
        both = [pa.concat_arrays(pair).take(pa.array(order)) for pair in zip(arrays, slow, strict=True)]
        return both, places[order]

    def _texts(
        self,
        array: pa.Array,
        kind: Type,
        place: tuple[str | None, ...],
        rows: np.ndarray[Any, Any],
        path: str,
        reasons: dict[int, str],
    ) -> pa.Array:
        """The column with JSON text in place of the bytes that it is made of."""
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
        for place, part in enumerate(array.to_pylist()):
            try:
                texts.append(None if part is None else text(part))
            except Reject as error:
                texts.append(None)
                reasons.setdefault(int(rows[place]), f"{path}: {str(error).removeprefix('the record: ')}")
        return pa.array([None if item == "null" else item for item in texts], pa.string())
