"""Decode JSON payloads to columns by path: `user::name`, `tags::0`, `%`. Absent and null differ.

Compiled code decodes only the values of the paths, and parses everything else as strictly. Payloads that fail this fast path
are decoded row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.definition.formats import VARIABLE, Mapped, Member
from kpipe.schema.columns import JSON, VARCHAR, Columns, Scalar
from kpipe.schema.inference import infer
from resources.decode.block import Decoded, Payloads
from resources.decode.json.native import GOOD, native_json
from resources.decode.json.rows import Reject, load
from resources.decode.paths.leaves import Leaf, leaf_of, path_of, wire_of
from resources.decode.paths.tree import Trees, picked
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import is_direct, schema, wire_type

__all__ = ["MappedJsonDecoder", "sampled_paths"]

_TRUTHS = pa.array(["true", "false"])
_SMALLEST_BLOCK, _FAN_OUT = 16, 32  # as in json/decoder.py


@dataclass
class _Found:
    """The decoded part of a block.

    Attributes:
        texts: by new column, the JSON texts of its values.
        parts: rows, in staged types.
        kept: index of the payload of each row.
        rejects: (index, reason) of the other payloads.
        inside: for each payload that has some, by column, the members that the column's type lacks.
    """

    texts: dict[str, list[str]]
    parts: list[pa.Table] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    rejects: list[tuple[int, str]] = field(default_factory=list)
    inside: list[dict[str, Any]] = field(default_factory=list)


class MappedJsonDecoder:
    """Decoder of payloads with one JSON object each, by paths.

    A payload becomes a row only if every path has a value or a default, and every value converts to its column's type without
    loss. Members inside a value that the column's type lacks are reported as new. Other members are not decoded, but still
    parsed: a payload must be one strict JSON object. A payload with a member that differs from a `Member` of the mapping by case
    only is a reject.

    Args:
        mapping: column, or @variable, to path.
        columns: the wanted columns. Other columns of the mapping are reported as new if they have a value, and required alike.
        counts: whether `true` and `false` become 1 and 0 in columns of texts and numbers.
        reports: whether members inside values are reported.

    Raises:
        InvalidPipeline: a default is not a value of its column's type.
    """

    takes_nulls = False

    def __init__(self, mapping: Mapping[str, str | Mapped], columns: Columns, counts: bool = False, reports: bool = True) -> None:
        self.columns = columns
        folded = {name.lower(): (name, item) for name, item in mapping.items()}
        self._leaves = [leaf_of(name, kind, folded[name.lower()][1], counts) for name, kind in columns]
        new = [name for name in mapping if name not in columns and not VARIABLE.fullmatch(name)]
        self._new = [Leaf(name, JSON, path_of(mapping[name]), isinstance(mapping[name], Mapped)) for name in new]
        every = [*self._leaves, *self._new]
        self._nested = [
            leaf for leaf in self._leaves if reports and not isinstance(leaf.kind, Scalar) and not VARIABLE.fullmatch(leaf.name)
        ]
        inner = [leaf for leaf in every if leaf.parts]
        self._wholes = [leaf for leaf in every if not leaf.parts]
        compiled = all(isinstance(leaf.kind, Scalar) or is_direct(leaf.kind) for leaf in inner)
        compiled = compiled and all(leaf.kind in (JSON, VARCHAR) for leaf in self._wholes)
        self._trees = Trees([(leaf.name, leaf.kind, leaf.parts) for leaf in inner]) if compiled else None
        members = (str(path_of(item)[0]) for item in mapping.values() if isinstance(item, Member))
        self._members = {name.lower(): name for name in members}
        trees = zip(self._trees.columns, self._trees.ways, strict=True) if self._trees else ()
        self._natives = [native_json(tree, ways, notes=bool(self._members)) for tree, ways in trees]
        self._whole = native_json(Columns((("v", JSON),))) if self._wholes and compiled else None
        if None in self._natives or not (self._natives or self._whole):
            self._natives, self._whole = [], None
        texts = [(leaf.name, JSON, leaf.parts) for leaf in self._leaves if leaf.counts and leaf.kind == VARCHAR and leaf.parts]
        self._kinds = Trees(texts) if texts and self._natives else None
        kinds = zip(self._kinds.columns, self._kinds.ways, strict=True) if self._kinds else ()
        self._kind_natives = [native_json(tree, ways) for tree, ways in kinds]

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`."""
        block = _Found({leaf.name: [] for leaf in self._new})

        def work(start: int, end: int) -> None:
            part = payloads.part(start, end)
            if end - start > _SMALLEST_BLOCK and (self._natives or self._whole) and part.bounds[-1] < 2**30:
                try:
                    self._compiled(part, start, block)
                except duckdb.Error:  # a text cannot be cast: smaller blocks find the payload
                    size = max(_SMALLEST_BLOCK, -(-(end - start) // _FAN_OUT))
                    for at in range(start, end, size):
                        work(at, min(at + size, end))
            else:
                self._row_by_row(payloads, range(start, end), block)

        work(0, len(payloads))
        table = pa.concat_tables(block.parts) if block.parts else schema(self.columns).empty_table()
        places = np.array(block.kept, np.int64)
        if len(places) > 1 and (np.diff(places) < 0).any():
            order = np.argsort(places, kind="stable")
            table, places = table.take(pa.array(order)) if len(self.columns) else table, places[order]
        wholes = {leaf.name for leaf in self._new if not leaf.parts}
        values = ((name, text) for name, found in block.texts.items() if name not in wholes for text in found)
        new = infer({name: load(f'{{"v":{text}}}'.encode())["v"]} for name, text in values)
        new = new.joined(Columns(tuple((name, JSON) for name, found in block.texts.items() if name in wholes and found)))
        new = new.joined(infer(block.inside, apart=True), apart=True)
        whole = len(places) == len(payloads)
        return Decoded(table, len(places), None if whole else places.tolist(), sorted(block.rejects), new)

    def _compiled(self, payloads: Payloads, start: int, block: _Found) -> None:
        """Decode a block with compiled code, and other payloads row by row. Changes nothing if it raises."""
        count = len(payloads)
        good, inside = np.ones(count, bool), np.zeros(count, bool)
        found: dict[str, tuple[pa.Array, np.ndarray[Any, Any]]] = {}
        taken: list[tuple[np.ndarray[Any, Any], dict[str, tuple[pa.Array, np.ndarray[Any, Any]]]]] = []
        for at, native in enumerate(self._natives):
            assert native is not None and self._trees is not None
            table, status = native.decode(payloads)
            good &= status == GOOD
            others = native.new_members(payloads)
            good &= ~others.similar(self._members)
            inside |= others.inside
            taken.append((np.flatnonzero(status == GOOD), self._trees.leaves(at, table, native)))
        if self._whole is not None:
            table, status = self._whole.decode(_wrapped(payloads))
            column = table.column("v").combine_chunks()
            places = np.flatnonzero(status == GOOD)
            good &= status == GOOD
            good[places[~pc.fill_null(pc.starts_with(column, "{"), False).to_numpy(zero_copy_only=False)]] = False
            taken.append((places, {leaf.name: (column, np.zeros(len(places), bool)) for leaf in self._wholes}))
        good &= self._numbered(payloads, taken)
        rows = np.flatnonzero(good)
        for places, columns in taken:
            if len(places) == len(rows):
                found |= columns
                continue
            at_rows = np.flatnonzero(good[places])
            found |= {name: (array.take(pa.array(at_rows)), absent[at_rows]) for name, (array, absent) in columns.items()}
        reasons: dict[int, str] = {}
        arrays = []
        for leaf in (*self._leaves, *self._new):
            nowhere = (pa.nulls(len(rows), wire_type(leaf.kind)), np.ones(len(rows), bool))
            array, absent = found.get(leaf.name, nowhere)
            if absent.any():
                if not leaf.optional:
                    for at in np.flatnonzero(absent).tolist():
                        reasons.setdefault(at, leaf.missing)
                elif leaf.default is not None:
                    array = pc.if_else(pa.array(~absent), array, pa.scalar(leaf.default, array.type))
            arrays.append(array)
        more: list[dict[str, Any]] = []
        for at in np.flatnonzero(inside[rows]).tolist() if self._nested else ():
            if at not in reasons:
                try:
                    value = load(payloads[int(rows[at])])
                    more.append(self._lacking({leaf.name: wire_of(value, leaf) for leaf in self._nested}))
                except Reject as error:
                    reasons[at] = str(error)
        there = np.ones(len(rows), bool)
        there[list(reasons)] = False
        if len(self.columns):
            wire = pa.table(arrays[: len(self.columns)], names=list(self.columns.names()))
            made = in_memory.cast(wire if not reasons else wire.filter(pa.array(there)), self.columns)
        else:
            made = schema(self.columns).empty_table()
        block.parts.append(made)
        block.kept += (start + rows[there]).tolist()
        block.rejects += [(start + int(rows[at]), why) for at, why in reasons.items()]
        block.inside += more
        for leaf, array in zip(self._new, arrays[len(self.columns) :], strict=True):
            block.texts[leaf.name] += pc.drop_null(array.filter(pa.array(there))).to_pylist()
        if len(rows) < count:
            looked = np.flatnonzero(~good).tolist()
            self._row_by_row(payloads, looked, block, start)

    def _numbered(
        self, payloads: Payloads, taken: list[tuple[np.ndarray[Any, Any], dict[str, tuple[pa.Array, np.ndarray[Any, Any]]]]]
    ) -> np.ndarray[Any, Any]:
        """Replace `true` and `false` by 1 and 0 in columns of texts; return which payloads are still good.

        In these columns the boolean and the string are the same text `true`. If a block has one, it is decoded again as JSON,
        which distinguishes them.
        """
        good = np.ones(len(payloads), bool)
        names = {leaf.name for leaf in self._leaves if leaf.counts and leaf.kind == VARCHAR}
        there = (array for _, columns in taken for name, (array, _) in columns.items() if name in names)
        if self._kinds is None or not any(pc.any(pc.is_in(array, value_set=_TRUTHS)).as_py() for array in there):
            return good
        kinds: dict[str, pa.Array] = {}
        for at, native in enumerate(self._kind_natives):
            assert native is not None
            table, status = native.decode(payloads)
            good &= status == GOOD
            rows = np.cumsum(status == GOOD) - 1
            take = pa.array(rows, mask=status != GOOD)
            kinds |= {name: array.take(take) for name, (array, _) in self._kinds.leaves(at, table, native).items()}
        for places, columns in taken:
            for name in columns.keys() & kinds.keys():
                array, absent = columns[name]
                kind = kinds[name].take(pa.array(places))
                array = pc.if_else(pc.fill_null(pc.equal(kind, "true"), False), "1", array)
                columns[name] = pc.if_else(pc.fill_null(pc.equal(kind, "false"), False), "0", array), absent
        return good

    def _row_by_row(self, payloads: Payloads, places: Sequence[int], block: _Found, start: int = 0) -> None:
        rows = []
        for at in places:
            try:
                value = load(payloads[at])
                self._check_cases(value)
                found = {leaf.name: wire_of(value, leaf) for leaf in (*self._leaves, *self._new)}
            except Reject as error:
                block.rejects.append((start + at, str(error)))
                continue
            rows.append({leaf.name: found[leaf.name][0] for leaf in self._leaves})
            block.kept.append(start + at)
            for leaf in self._new:
                text = found[leaf.name][0]
                block.texts[leaf.name] += [text] if text is not None else []
            if more := self._lacking(found):
                block.inside.append(more)
        if rows and len(self.columns):
            wire = [pa.array([row[name] for row in rows], wire_type(kind)) for name, kind in self.columns]
            block.parts.append(in_memory.cast(pa.table(wire, names=list(self.columns.names())), self.columns))

    def _check_cases(self, value: Mapping[str, Any]) -> None:
        """Check that a name in `select` does not miss a member that differs by case only. A member of that very name is meant."""
        for name in value if self._members else ():
            wanted = self._members.get(name.lower(), name)
            if name != wanted and wanted not in value:
                raise Reject(f"member {name} differs by case only from {wanted} in select: write the name as records do")

    def _lacking(self, found: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
        """Return by column the members that its type lacks, from what `_wire` returns by leaf."""
        return {leaf.name: found[leaf.name][1] for leaf in self._nested if found[leaf.name][1] is not None}


def sampled_paths(mapping: Mapping[str, str | Mapped], payloads: Sequence[bytes]) -> Columns:
    """Infer the columns of paths from payloads, or from their defaults if a path leads nowhere. `%` is JSON."""
    targets = {name: item for name, item in mapping.items() if not VARIABLE.fullmatch(name)}
    wholes = [name for name, item in targets.items() if not path_of(item)]
    objects: list[dict[str, Any]] = []
    for payload in payloads:
        try:
            value = load(payload)
        except Reject:
            continue
        objects.append({name: picked(value, path_of(item))[1] for name, item in targets.items() if name not in wholes})
    places = {name.lower(): at for at, name in enumerate(targets)}
    found = (*infer(objects), *((name, JSON) for name in wholes if objects))
    seen = Columns(tuple(sorted(found, key=lambda column: places[column[0].lower()])))
    return seen.joined(infer([{n: item.default} for n, item in targets.items() if isinstance(item, Mapped) and n not in seen]))


def _wrapped(payloads: Payloads) -> Payloads:
    """Return each payload as the member `v` of an object."""
    buffers = [None, pa.py_buffer(payloads.bounds), pa.py_buffer(payloads.text)]
    lines = pa.Array.from_buffers(pa.large_binary(), len(payloads), buffers)
    ends = [pa.scalar(text, pa.large_binary()) for text in (b'{"v":', b"}\n", b"")]
    return Payloads.of_array(pc.binary_join_element_wise(ends[0], pc.binary_slice(lines, 0, -1), ends[1], ends[2]))
