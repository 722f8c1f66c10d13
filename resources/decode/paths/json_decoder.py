"""Decode JSON payloads to columns by path: `user::name`, `tags::0`, `%`. Absent and null differ.

Compiled code decodes only the values of the paths, and parses everything else as strictly. Payloads that fail this fast path
are decoded row by row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.definition.formats import VARIABLE, Mapped
from kpipe.definition.json_path import parse_path, write_path
from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import JSON, VARCHAR, Columns, Scalar, Type
from kpipe.schema.inference import infer
from resources.decode.block import Decoded, Payloads
from resources.decode.json.native import GOOD, native_json
from resources.decode.json.rows import Reject, load, wire_value
from resources.decode.paths.tree import Trees, picked
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import is_direct, schema, wire_type

__all__ = ["Leaf", "MappedJsonDecoder", "sampled_paths"]

_TRUTHS = pa.array(["true", "false"])
_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?$|FLOAT$|DOUBLE$|DECIMAL\(")
_SMALLEST_BLOCK, _FAN_OUT = 16, 32  # as in json/decoder.py


@dataclass(frozen=True)
class Leaf:
    """A column, and the path of its value.

    Attributes:
        name: of the column, or @variable.
        kind: its type.
        parts: the path.
        optional: whether the value may be absent.
        default: its wire value then.
        counts: whether `true` and `false` become 1 and 0.
    """

    name: str
    kind: Type
    parts: tuple[str | int, ...]
    optional: bool = False
    default: Any = None
    counts: bool = False

    @property
    def missing(self) -> str:
        """Reason of the reject of a record without the value."""
        return f"{self.name}: the record has no {write_path(self.parts)} (DEFAULT NULL makes that NULL)"


class MappedJsonDecoder:
    """Decoder of payloads with one JSON object each, by paths.

    A payload becomes a row only if every path has a value or a default, and every value converts to its column's type without
    loss. Other members are not decoded, but still parsed: a payload must be one strict JSON object.

    Args:
        mapping: column, or @variable, to path.
        columns: the wanted columns. Other columns of the mapping are reported as new if they have a value.
        counts: whether `true` and `false` become 1 and 0 in columns of texts and numbers.

    Raises:
        InvalidPipeline: a default is not a value of its column's type.
    """

    takes_nulls = False

    def __init__(self, mapping: Mapping[str, str | Mapped], columns: Columns, counts: bool = False) -> None:
        self.columns = columns
        folded = {name.lower(): (name, item) for name, item in mapping.items()}
        self._leaves = [_leaf(name, kind, folded[name.lower()][1], counts) for name, kind in columns]
        new = [name for name in mapping if name not in columns and not VARIABLE.fullmatch(name)]
        self._new = [Leaf(name, JSON, _path(mapping[name]), True) for name in new]
        every = [*self._leaves, *self._new]
        inner = [leaf for leaf in every if leaf.parts]
        self._wholes = [leaf for leaf in every if not leaf.parts]
        compiled = all(isinstance(leaf.kind, Scalar) or is_direct(leaf.kind) for leaf in inner)
        compiled = compiled and all(leaf.kind in (JSON, VARCHAR) for leaf in self._wholes)
        self._trees = Trees([(leaf.name, leaf.kind, leaf.parts) for leaf in inner]) if compiled else None
        trees = zip(self._trees.columns, self._trees.ways, strict=True) if self._trees else ()
        self._natives = [native_json(tree, ways) for tree, ways in trees]
        self._whole = native_json(Columns((("v", JSON),))) if self._wholes and compiled else None
        if None in self._natives or not (self._natives or self._whole):
            self._natives, self._whole = [], None
        texts = [(leaf.name, JSON, leaf.parts) for leaf in self._leaves if leaf.counts and leaf.kind == VARCHAR and leaf.parts]
        self._kinds = Trees(texts) if texts and self._natives else None
        kinds = zip(self._kinds.columns, self._kinds.ways, strict=True) if self._kinds else ()
        self._kind_natives = [native_json(tree, ways) for tree, ways in kinds]

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`."""
        kept: list[int] = []
        rejects: list[tuple[int, str]] = []
        parts: list[pa.Table] = []
        texts: dict[str, list[str]] = {leaf.name: [] for leaf in self._new}

        def work(start: int, end: int) -> None:
            part = payloads.part(start, end)
            if end - start > _SMALLEST_BLOCK and (self._natives or self._whole) and part.bounds[-1] < 2**30:
                try:
                    self._compiled(part, start, parts, kept, rejects, texts)
                except duckdb.Error:  # a text cannot be cast: smaller blocks find the payload
                    size = max(_SMALLEST_BLOCK, -(-(end - start) // _FAN_OUT))
                    for at in range(start, end, size):
                        work(at, min(at + size, end))
            else:
                self._row_by_row(payloads, range(start, end), parts, kept, rejects, texts)

        work(0, len(payloads))
        table = pa.concat_tables(parts) if parts else schema(self.columns).empty_table()
        places = np.array(kept, np.int64)
        if len(places) > 1 and (np.diff(places) < 0).any():
            order = np.argsort(places, kind="stable")
            table, places = table.take(pa.array(order)) if len(self.columns) else table, places[order]
        wholes = {leaf.name for leaf in self._new if not leaf.parts}
        values = ((name, text) for name, found in texts.items() if name not in wholes for text in found)
        new = infer({name: load(f'{{"v":{text}}}'.encode())["v"]} for name, text in values)
        new = new.joined(Columns(tuple((name, JSON) for name in texts if name in wholes and texts[name])))
        whole = len(places) == len(payloads)
        return Decoded(table, len(places), None if whole else places.tolist(), sorted(rejects), new)

    def _compiled(
        self,
        payloads: Payloads,
        start: int,
        parts: list[pa.Table],
        kept: list[int],
        rejects: list[tuple[int, str]],
        texts: dict[str, list[str]],
    ) -> None:
        """Decode a block with compiled code, and other payloads row by row. Changes nothing if it raises."""
        count = len(payloads)
        good = np.ones(count, bool)
        found: dict[str, tuple[pa.Array, np.ndarray[Any, Any]]] = {}
        taken: list[tuple[np.ndarray[Any, Any], dict[str, tuple[pa.Array, np.ndarray[Any, Any]]]]] = []
        for at, native in enumerate(self._natives):
            assert native is not None and self._trees is not None
            table, status = native.decode(payloads)
            good &= status == GOOD
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
        for leaf in self._leaves:
            nowhere = (pa.nulls(len(rows), wire_type(leaf.kind)), np.ones(len(rows), bool))
            array, absent = found.get(leaf.name, nowhere)
            if absent.any():
                if not leaf.optional:
                    for at in np.flatnonzero(absent).tolist():
                        reasons.setdefault(at, leaf.missing)
                elif leaf.default is not None:
                    array = pc.if_else(pa.array(~absent), array, pa.scalar(leaf.default, array.type))
            arrays.append(array)
        there = np.ones(len(rows), bool)
        there[list(reasons)] = False
        if len(self.columns):
            wire = pa.table(arrays, names=list(self.columns.names()))
            made = in_memory.cast(wire if not reasons else wire.filter(pa.array(there)), self.columns)
        else:
            made = schema(self.columns).empty_table()
        parts.append(made)
        kept += (start + rows[there]).tolist()
        rejects += [(start + int(rows[at]), why) for at, why in reasons.items()]
        for leaf in self._new:
            texts[leaf.name] += pc.drop_null(found[leaf.name][0]).to_pylist() if leaf.name in found else []
        if len(rows) < count:
            looked = np.flatnonzero(~good).tolist()
            self._row_by_row(payloads, looked, parts, kept, rejects, texts, start)

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

    def _row_by_row(
        self,
        payloads: Payloads,
        places: Sequence[int],
        parts: list[pa.Table],
        kept: list[int],
        rejects: list[tuple[int, str]],
        texts: dict[str, list[str]],
        start: int = 0,
    ) -> None:
        rows = []
        for at in places:
            try:
                value = load(payloads[at])
                rows.append({leaf.name: _wire(value, leaf) for leaf in self._leaves})
                found = {leaf.name: _wire(value, leaf) for leaf in self._new}
            except Reject as error:
                rejects.append((start + at, str(error)))
                continue
            kept.append(start + at)
            for name, text in found.items():
                texts[name] += [text] if text is not None else []
        if rows and len(self.columns):
            wire = [pa.array([row[name] for row in rows], wire_type(kind)) for name, kind in self.columns]
            parts.append(in_memory.cast(pa.table(wire, names=list(self.columns.names())), self.columns))


def sampled_paths(mapping: Mapping[str, str | Mapped], payloads: Sequence[bytes]) -> Columns:
    """Infer the columns of paths from payloads, or from their defaults if a path leads nowhere. `%` is JSON."""
    targets = {name: item for name, item in mapping.items() if not VARIABLE.fullmatch(name)}
    wholes = [name for name, item in targets.items() if not _path(item)]
    objects: list[dict[str, Any]] = []
    for payload in payloads:
        try:
            value = load(payload)
        except Reject:
            continue
        objects.append({name: picked(value, _path(item))[1] for name, item in targets.items() if name not in wholes})
    places = {name.lower(): at for at, name in enumerate(targets)}
    found = (*infer(objects), *((name, JSON) for name in wholes if objects))
    seen = Columns(tuple(sorted(found, key=lambda column: places[column[0].lower()])))
    return seen.joined(infer([{n: item.default} for n, item in targets.items() if isinstance(item, Mapped) and n not in seen]))


def _path(item: str | Mapped) -> tuple[str | int, ...]:
    return parse_path(item.path if isinstance(item, Mapped) else item)


def _leaf(name: str, kind: Type, item: str | Mapped, counts: bool) -> Leaf:
    parts = _path(item)
    counts = counts and isinstance(kind, Scalar) and (kind == VARCHAR or _NUMBERS.match(kind.name) is not None)
    if not isinstance(item, Mapped):
        return Leaf(name, kind, parts, counts=counts)
    if item.default is None:
        return Leaf(name, kind, parts, True, counts=counts)
    try:
        # Parsed and converted like a record's value, so that the results are equal.
        given = load(json.dumps({"v": item.default}, ensure_ascii=False).encode())["v"]
        value = wire_value(_number(given, kind) if counts else given, kind, name)
        default = pa.array([value], wire_type(kind))
        in_memory.cast(pa.table([default], names=["v"]), Columns((("v", kind),)))
    except (Reject, duckdb.Error, pa.ArrowInvalid) as error:
        raise InvalidPipeline(
            f"format.mapping: DEFAULT {item.default!r} of {name} is not a {kind}", "write a value of the column's type"
        ) from error
    return Leaf(name, kind, parts, True, value, counts)


def _number(value: Any, kind: Type) -> Any:
    """Convert a boolean to the number 1 or 0, or its text; return other values unchanged."""
    if not isinstance(value, bool):
        return value
    return str(int(value)) if kind == VARCHAR else int(value)


def _wire(value: Any, leaf: Leaf) -> Any:
    """Return the leaf's value in a record.

    Raises:
        Reject: the value is absent, and the path has no default.
    """
    there, found = picked(value, leaf.parts)
    if not there:
        if not leaf.optional:
            raise Reject(leaf.missing)
        return leaf.default
    return wire_value(_number(found, leaf.kind) if leaf.counts else found, leaf.kind, leaf.name)


def _wrapped(payloads: Payloads) -> Payloads:
    """Return each payload as the member `v` of an object."""
    buffers = [None, pa.py_buffer(payloads.bounds), pa.py_buffer(payloads.text)]
    lines = pa.Array.from_buffers(pa.large_binary(), len(payloads), buffers)
    ends = [pa.scalar(text, pa.large_binary()) for text in (b'{"v":', b"}\n", b"")]
    return Payloads.of_array(pc.binary_join_element_wise(ends[0], pc.binary_slice(lines, 0, -1), ends[1], ends[2]))
