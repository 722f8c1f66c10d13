"""Apply Avro's schema resolution: convert columns of the writer's schema to the reader's schema.

Rules: Avro 1.12, "Schema Resolution". Fields match by name or by the reader's aliases. A field that the writer lacks has the
reader's default. Numbers are promoted; bytes and strings convert to each other. One rule is stricter: an integer that is not
exact as a float is a reject. Parts that become JSON (maps, unions of several types) must be equal in both schemas.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.schema.columns import Scalar
from resources.decode.avro import nodes as steps
from resources.decode.avro.nodes import EXACT, Node, Plan
from resources.decode.payload_schemas import Unfit
from resources.duckdb_engine.arrow_types import staged_type

__all__ = ["Resolution"]

_Step = Callable[[pa.Array, np.ndarray[Any, Any], dict[int, str]], pa.Array]
_PROMOTED = {
    (steps.INT, steps.LONG), (steps.INT, steps.FLOAT), (steps.INT, steps.REAL), (steps.LONG, steps.FLOAT),
    (steps.LONG, steps.REAL), (steps.FLOAT, steps.REAL),
}  # fmt: skip
_PLAIN = {"INTEGER", "BIGINT", "FLOAT", "DOUBLE"}


class Resolution:
    """The conversion of a writer's columns to a reader's schema.

    Args:
        writer, reader: plans of their schemas.

    Attributes:
        columns: the reader's.

    Raises:
        Unfit: the schemas are incompatible.
    """

    def __init__(self, writer: Plan, reader: Plan) -> None:
        self._written, self._wanted, self.columns = writer.nodes, reader.nodes, reader.columns
        self._alike: set[tuple[int, int]] = set()
        self._root = self._record(writer.nodes[0], reader.nodes[0], "")

    def resolve(self, arrays: Sequence[pa.Array], rows: int, reasons: dict[int, str]) -> list[pa.Array]:
        """Convert the columns; a value that cannot be converted is NULL, with a reason by row."""
        return self._root(list(arrays), np.arange(rows), reasons)

    def _record(
        self, one: Node, two: Node, path: str
    ) -> Callable[[Sequence[pa.Array], np.ndarray[Any, Any], dict[int, str]], list[pa.Array]]:
        found: list[tuple[int, _Step]] = []
        for at, name in enumerate(two.names):
            if two.places[at] < 0:
                continue
            given, wanted = two.given[at], self._wanted[two.inner[at]]
            aliases: list[Any] = given["aliases"] if isinstance(given.get("aliases"), list) else []
            there = next((other for other in (name, *aliases) if other in one.names), None)
            where = f"{path}.{name}" if path else name
            if there is None:
                if "default" not in given:
                    raise Unfit(f"the record's schema has no {where}, and the reader's has no default for it")
                found.append((-1, _constant(self._default(wanted, given["default"], where), wanted)))
                continue
            inner, place = one.inner[one.names.index(there)], one.places[one.names.index(there)]
            if place < 0:  # only ever null
                if wanted.op != steps.OPTIONAL:
                    raise Unfit(f"{where} is null in the record's schema, and {wanted.label} in the reader's")
                found.append((-1, _constant(None, wanted)))
            else:
                found.append((place, self._value(self._written[inner], wanted, where)))

        def apply(arrays: Sequence[pa.Array], rows: np.ndarray[Any, Any], reasons: dict[int, str]) -> list[pa.Array]:
            nothing = pa.nulls(len(rows))
            return [step(nothing if place < 0 else arrays[place], rows, reasons) for place, step in found]

        return apply

    def _value(self, one: Node, two: Node, path: str) -> _Step:
        if two.op == steps.OPTIONAL:
            return self._value(self._written[one.inner[0]] if one.op == steps.OPTIONAL else one, self._wanted[two.inner[0]], path)
        if one.op == steps.OPTIONAL:
            inner = self._value(self._written[one.inner[0]], two, path)
            return lambda array, rows, reasons: inner(_filled(array, rows, reasons, path), rows, reasons)
        if one.op == two.op == steps.RECORD:
            return self._struct(one, two, path)
        if one.op == two.op == steps.ARRAY:
            return self._list(one, two, path)
        if one.op == two.op == steps.SPAN and self._same(one, two):
            return lambda array, *_: array
        if one.op == two.op == steps.ENUM:
            return _symbols(two, path)
        same = one.kind == two.kind and isinstance(one.kind, Scalar) and one.op != steps.SPAN and two.op != steps.ENUM
        if same and (one.op != steps.FIXED or two.op != steps.FIXED or one.a == two.a):
            return lambda array, *_: array
        target = pa.null() if two.kind is None else staged_type(two.kind)
        if (one.op, two.op) in _PROMOTED and str(one.kind) in _PLAIN and str(two.kind) in _PLAIN:
            return lambda array, rows, reasons: _promoted(array, target, rows, reasons, path)
        if (one.op, two.op) == (steps.STRING, steps.BYTES):
            return lambda array, *_: array.cast(pa.binary())
        if (one.op, two.op) == (steps.BYTES, steps.STRING) and str(two.kind) == "VARCHAR":
            return lambda array, rows, reasons: _text(array, rows, reasons, path)
        raise Unfit(f"{path} is {one.label} ({one.kind}) in the record's schema, and {two.label} ({two.kind}) in the reader's")

    def _struct(self, one: Node, two: Node, path: str) -> _Step:
        if two.kind is None or one.kind is None:
            raise Unfit(f"{path} has no field that could be a member in one of the two schemas")
        inner, kind = self._record(one, two, path), staged_type(two.kind)

        def apply(array: pa.Array, rows: np.ndarray[Any, Any], reasons: dict[int, str]) -> pa.Array:
            there = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
            some = array.take(pa.array(there))
            members = inner(some.flatten(), rows[there], reasons)
            made = pa.StructArray.from_arrays(members, fields=list(kind)) if len(some) else pa.nulls(0, kind)
            places = np.full(len(array), -1, np.int64)
            places[there] = np.arange(len(there))
            return made.take(pa.array(places, mask=places < 0))

        return apply

    def _list(self, one: Node, two: Node, path: str) -> _Step:
        inner = self._value(self._written[one.inner[0]], self._wanted[two.inner[0]], f"{path}[]")
        assert two.kind is not None
        kind = staged_type(two.kind)

        def apply(array: pa.Array, rows: np.ndarray[Any, Any], reasons: dict[int, str]) -> pa.Array:
            items = inner(pc.list_flatten(array), rows[pc.list_parent_indices(array).to_numpy()], reasons)
            lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
            offsets = pa.array(np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))), pa.int32())
            return pa.ListArray.from_arrays(offsets, items, type=kind, mask=array.is_null())

        return apply

    def _same(self, one: Node, two: Node) -> bool:
        """Return whether two parts are read alike. Each pair is compared once: a part may be used in many places."""
        seen: set[tuple[int, int]] = set()
        waiting = [(one, two)]
        while waiting:
            a, b = waiting.pop()
            pair = id(a), id(b)
            if pair in self._alike or pair in seen:
                continue
            if (a.op, a.kind, a.a, a.b, a.names, a.scale, len(a.inner)) != (
                b.op,
                b.kind,
                b.a,
                b.b,
                b.names,
                b.scale,
                len(b.inner),
            ):
                return False
            seen.add(pair)
            waiting += [(self._written[x], self._wanted[y]) for x, y in zip(a.inner, b.inner, strict=True)]
        self._alike.update(seen)  # proven now: no pair that any of them leads to differs
        return True

    def _default(self, node: Node, given: Any, path: str) -> Any:
        """Convert a default of the reader's schema to a value of its column."""
        try:
            return self._defaulted(node, given)
        except (TypeError, ValueError, KeyError, AttributeError):
            shown, kind = json.dumps(given)[:60], node.label or node.kind
            raise Unfit(f"{path}: the reader's default {shown} is not a value of type {kind}") from None

    def _defaulted(self, node: Node, given: Any) -> Any:
        if node.op == steps.OPTIONAL:
            return None if given is None else self._defaulted(self._wanted[node.inner[0]], given)
        if node.op == steps.RECORD:
            parts = {name: given.get(name, item.get("default")) for name, item in zip(node.names, node.given, strict=True)}
            found = zip(node.names, node.inner, node.places, strict=True)
            return {name: self._defaulted(self._wanted[at], parts[name]) for name, at, place in found if place >= 0}
        if node.op == steps.ARRAY:
            return [self._defaulted(self._wanted[node.inner[0]], item) for item in given]
        if node.op == steps.SPAN:
            return None if given is None else json.dumps(given, ensure_ascii=False, separators=(",", ":"))
        if node.op in (steps.BYTES, steps.FIXED):
            return given.encode("latin-1")
        if node.op == steps.DECIMAL:
            return EXACT.scaleb(Decimal(int.from_bytes(given.encode("latin-1"), "big", signed=True)), -node.scale)
        if node.op == steps.SCALED:
            return given * 1000
        kinds: tuple[type, ...] = {
            steps.FLAG: (bool,), steps.INT: (int,), steps.LONG: (int,), steps.FLOAT: (int, float), steps.REAL: (int, float),
        }.get(node.op, (str,))  # fmt: skip
        if not isinstance(given, kinds) or (isinstance(given, bool) and node.op != steps.FLAG):
            raise ValueError
        return given


def _constant(value: Any, node: Node) -> _Step:
    assert node.kind is not None
    kind = staged_type(node.kind)
    try:
        one = pa.array([value], kind)
    except (pa.ArrowException, OverflowError, TypeError):
        raise Unfit(f"the reader's default {str(value)[:60]} is not a value of type {node.kind}") from None
    return lambda _, rows, __: one.take(pa.array(np.zeros(len(rows), np.int64)))


def _filled(array: pa.Array, rows: np.ndarray[Any, Any], reasons: dict[int, str], path: str) -> pa.Array:
    for at in pc.indices_nonzero(array.is_null()).to_pylist():
        reasons.setdefault(int(rows[at]), f"{path}: null, which the reader's schema does not take")
    return array


def _promoted(array: pa.Array, kind: pa.DataType, rows: np.ndarray[Any, Any], reasons: dict[int, str], path: str) -> pa.Array:
    found = array.cast(kind, safe=False)
    if pa.types.is_integer(array.type) and pa.types.is_floating(kind):
        exact = pc.and_(pc.equal(found.cast(array.type, safe=False), array), pc.less(pc.abs(found.cast(pa.float64())), 2.0**63))
        for at in pc.indices_nonzero(pc.fill_null(pc.invert(exact), False)).to_pylist():
            reasons.setdefault(int(rows[at]), f"{path}: {array[at].as_py()} is not exact as {kind}")
    return found


def _text(array: pa.Array, rows: np.ndarray[Any, Any], reasons: dict[int, str], path: str) -> pa.Array:
    texts: list[str | None] = []
    for at, raw in enumerate(array.to_pylist()):
        try:
            texts.append(None if raw is None else raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            texts.append(None)
            reasons.setdefault(int(rows[at]), f"{path}: not UTF-8 at byte {error.start}")
    return pa.array(texts, pa.string())


def _symbols(two: Node, path: str) -> _Step:
    """Replace symbols that the reader's schema lacks by its default."""
    known, instead = pa.array(two.names), two.given[0].get("default")

    def apply(array: pa.Array, rows: np.ndarray[Any, Any], reasons: dict[int, str]) -> pa.Array:
        other = pc.and_(array.is_valid(), pc.invert(pc.is_in(array, known)))
        if instead in two.names:
            return pc.if_else(other, instead, array)
        for at in pc.indices_nonzero(other).to_pylist():
            reasons.setdefault(int(rows[at]), f"{path}: {array[at].as_py()} is not a symbol of the reader's schema")
        return array

    return apply
