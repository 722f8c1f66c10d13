"""Read Avro data one by one, with the reason and the field of each reject, and convert parts to JSON. It is slow."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from math import isfinite
from typing import Any
from uuid import UUID as Uuid

from resources.decode.avro import nodes as steps
from resources.decode.avro.nodes import EXACT, Node, Plan
from resources.decode.json.rows import Reject
from resources.decode.schema_decoder import Digits, Leaves, dumped

__all__ = ["Reader"]

_DEEPEST = 200
_LONG = 2**63
_EPOCH = datetime(1970, 1, 1)


class Reader:
    """Reads data of one schema.

    Args:
        plan: the plan of the schema.
    """

    def __init__(self, plan: Plan) -> None:
        self._nodes = plan.nodes

    def row(self, data: bytes) -> dict[str, Any]:
        """Return the values of the plan's columns before conversion.

        Raises:
            Reject: the bytes are not one datum of the schema; the text names the field.
        """
        found = _Datum(self._nodes, data)
        members = found.record(self._nodes[0], "", 0, False)
        if found.at != len(data):
            raise Reject(f"{len(data) - found.at} bytes after the datum: not written with this schema")
        return members

    def document(self, data: bytes) -> dict[str, Any]:
        """Return all fields as JSON values; bytes are text of their Latin-1 characters.

        Raises:
            Reject: the bytes are not one datum of the schema.
        """
        found = _Datum(self._nodes, data)
        members = found.record(self._nodes[0], "", 0, True)
        if found.at != len(data):
            raise Reject(f"{len(data) - found.at} bytes after the datum: not written with this schema")
        return members

    def leaves(self) -> Leaves:
        """Return the functions that convert parts carried as bytes to JSON text."""
        found: Leaves = {}

        def look(at: int, path: tuple[str | None, ...]) -> None:
            node = self._nodes[at]
            if "JSON" not in str(node.kind):
                return
            if node.op == steps.OPTIONAL:
                look(node.inner[0], path)
            elif node.op == steps.ARRAY:
                look(node.inner[0], (*path, None))
            elif node.op == steps.SPAN:
                found[path] = partial(self._json, node.inner[0])
            else:
                for inner, name, place in zip(node.inner, node.names, node.places, strict=True):
                    if place >= 0:
                        look(inner, (*path, name))

        look(0, ())
        return found

    def _json(self, at: int, part: bytes) -> str:
        return dumped(_Datum(self._nodes, part).value(at, "", 0, True))


class _Datum:
    def __init__(self, nodes: list[Node], data: bytes) -> None:
        self._nodes, self._data, self.at = nodes, data, 0

    def _fail(self, path: str, why: str) -> Reject:
        return Reject(f"{path or 'the record'}: {why}")

    def _take(self, count: int, path: str) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self._data):
            raise self._fail(path, f"the record ends inside this value ({len(self._data)} bytes): not written with this schema")
        found = self._data[self.at : end]
        self.at = end
        return found

    def _number(self, path: str) -> int:
        value = shift = 0
        while True:
            byte = self._take(1, path)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise self._fail(path, "a number of more than 64 bits")
        if value >= 2 * _LONG:
            raise self._fail(path, "a number of more than 64 bits")
        return (value >> 1) ^ -(value & 1)

    def _int(self, path: str) -> int:
        found = self._number(path)
        if not -(2**31) <= found < 2**31:
            raise self._fail(path, f"{found} is not an int")
        return found

    def _within(self, value: int, node: Node, path: str) -> int:
        least, most = steps.WITHIN[node.b]
        if not least <= value <= most:
            raise self._fail(path, f"{value} is out of range for {node.label} as {node.kind} (years 1 to 9999)")
        return value

    def _sized(self, path: str) -> bytes:
        size = self._number(path)
        if size < 0:
            raise self._fail(path, f"a length of {size}: not written with this schema")
        return self._take(size, path)

    def record(self, node: Node, path: str, depth: int, as_json: bool) -> dict[str, Any]:
        """Read the fields by name; fields without a column are skipped."""
        found = {}
        for inner, name, place in zip(node.inner, node.names, node.places, strict=True):
            value = self.value(inner, f"{path}.{name}" if path else name, depth + 1, as_json)
            if place >= 0 or as_json:
                found[name] = value
        return found

    def value(self, at: int, path: str, depth: int, as_json: bool) -> Any:
        """Read the value of a node, before conversion or as JSON."""
        node = self._nodes[at]
        op = node.op
        if depth > _DEEPEST:
            raise self._fail(path, "nested too deeply")
        simple = _SIMPLE.get(op)
        if simple is not None:
            found = simple(self, node, path)
            return _as_json(found, node) if as_json else found
        if op == steps.OPTIONAL or op == steps.UNION:
            branch = self._number(path)
            if not 0 <= branch < (2 if op == steps.OPTIONAL else len(node.inner)):
                raise self._fail(path, f"the union has no branch {branch}: not written with this schema")
            if op == steps.OPTIONAL:
                return None if branch == node.a else self.value(node.inner[0], path, depth + 1, as_json)
            return self.value(node.inner[branch], path, depth + 1, as_json)
        if op == steps.SPAN:
            begin = self.at
            found = self.value(node.inner[0], path, depth + 1, True)
            return found if as_json else self._data[begin : self.at]
        if op == steps.RECORD:
            return self.record(node, path, depth, as_json)
        return self._items(node, path, depth, as_json)

    def _items(self, node: Node, path: str, depth: int, as_json: bool) -> Any:
        items: list[Any] = []
        members: dict[str, Any] = {}
        while count := self._number(path):
            if count < 0:
                size = self._number(path)
                if not 0 <= size <= len(self._data) - self.at:
                    raise self._fail(path, f"a block of {size} bytes: not written with this schema")
            for _ in range(abs(count)):
                if node.op == steps.MAP:
                    name = _string(self, node, path)
                    if name in members:
                        raise self._fail(path, f"duplicate key {name[:40]!r}")
                    members[name] = self.value(node.inner[0], f"{path}[{name[:40]!r}]", depth + 1, as_json)
                else:
                    items.append(self.value(node.inner[0], f"{path}[{len(items)}]", depth + 1, as_json))
        return members if node.op == steps.MAP else items

    # Each reads one value of a node without parts.

    def flag(self, _: Node, path: str) -> bool:
        byte = self._take(1, path)[0]
        if byte > 1:
            raise self._fail(path, f"byte {byte} is not a boolean")
        return bool(byte)

    def enum(self, node: Node, path: str) -> str:
        at = self._number(path)
        if not 0 <= at < len(node.names):
            raise self._fail(path, f"symbol {at} of an enum that has {len(node.names)}: not written with this schema")
        return node.names[at]

    def scaled(self, node: Node, path: str) -> int:
        return self._within((self._int if node.a else self._number)(path) * 1000, node, path)

    def decimal(self, node: Node, path: str) -> Decimal:
        raw = self._sized(path) if node.a < 0 else self._take(node.a, path)
        if not raw:
            raise self._fail(path, "a decimal without digits")
        value = int.from_bytes(raw, "big", signed=True)
        if abs(value) >= _power(node.b):
            raise self._fail(path, f"a decimal of more than {node.b} digits")
        return EXACT.scaleb(Decimal(value), -node.scale)

    def string(self, _: Node, path: str) -> str:
        raw = self._sized(path)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._fail(path, f"not UTF-8 at byte {error.start}") from None

    def long(self, node: Node, path: str) -> int:
        return self._within(self._number(path), node, path)

    def small(self, node: Node, path: str) -> int:
        return self._within(self._int(path), node, path)

    def sized(self, _: Node, path: str) -> bytes:
        return self._sized(path)

    def fixed(self, node: Node, path: str) -> bytes:
        return self._take(node.a, path)

    def real(self, node: Node, path: str) -> float:
        size, code = (4, "<f") if node.op == steps.FLOAT else (8, "<d")
        return float(struct.unpack(code, self._take(size, path))[0])


@lru_cache(maxsize=64)
def _power(digits: int) -> int:
    return int(10**digits)


def _string(datum: _Datum, node: Node, path: str) -> str:
    return datum.string(node, path)


_SIMPLE: dict[int, Callable[[_Datum, Node, str], Any]] = {
    steps.NOTHING: lambda _, __, ___: None,
    steps.FLAG: _Datum.flag,
    steps.INT: _Datum.small,
    steps.LONG: _Datum.long,
    steps.FLOAT: _Datum.real,
    steps.REAL: _Datum.real,
    steps.BYTES: _Datum.sized,
    steps.STRING: _Datum.string,
    steps.FIXED: _Datum.fixed,
    steps.ENUM: _Datum.enum,
    steps.SCALED: _Datum.scaled,
    steps.DECIMAL: _Datum.decimal,
    steps.UUID: lambda datum, node, path: str(Uuid(bytes=datum.fixed(node, path))),
}


def _as_json(value: Any, node: Node) -> Any:
    """Convert a value to JSON: bytes to base64, times in ISO 8601, NaN and infinities as text."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Decimal):
        return Digits(f"{value:f}")
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    name = str(node.kind)
    try:
        if name == "DATE":
            return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
        if name == "TIME":
            return (_EPOCH + timedelta(microseconds=value)).time().isoformat()
        if name.startswith("TIMESTAMP"):
            return (_EPOCH + timedelta(microseconds=value)).isoformat() + ("Z" if name != "TIMESTAMP" else "")
    except OverflowError:
        return value
    return value
