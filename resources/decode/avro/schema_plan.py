"""An Avro schema as a plan of steps (nodes.py), and which columns come of it.

Types (Avro 1.12, "Schemas"): int INTEGER, long BIGINT, float FLOAT, double DOUBLE, bytes and fixed BLOB, string and enum
VARCHAR, record STRUCT, array a list; `["null", T]` is T that may be NULL. What no column type is exact for is JSON: maps,
unions of several types, records inside of themselves, decimals of more than 38 digits. Logical types: decimal DECIMAL, date
DATE, time-* TIME, timestamp-millis and -micros TIMESTAMP WITH TIME ZONE, local-timestamp-* TIMESTAMP, uuid UUID; others, and
nanoseconds, which a TIMESTAMP would cut, stay what they are stored as.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kpipe.schema.columns import BIGINT, BLOB, BOOLEAN, DOUBLE, INSTANT, JSON, VARCHAR, Columns, ListOf, Scalar, Struct, Type
from resources.decode.avro.nodes import (
    ARRAY,
    BYTES,
    DAY,
    DECIMAL,
    ENUM,
    FIXED,
    FLAG,
    FLOAT,
    INT,
    LONG,
    MAP,
    MOMENT,
    NOTHING,
    OPTIONAL,
    REAL,
    RECORD,
    SCALED,
    SPAN,
    STRING,
    TIME_OF_DAY,
    UNION,
    UUID,
    WHOLE,
    Node,
    Plan,
)
from resources.decode.payload_schemas import Unfit
from resources.duckdb_engine.arrow_types import carried

__all__ = ["plan"]

_PLAIN = {
    "boolean": (FLAG, BOOLEAN), "int": (INT, Scalar("INTEGER")), "long": (LONG, BIGINT), "float": (FLOAT, Scalar("FLOAT")),
    "double": (REAL, DOUBLE), "bytes": (BYTES, BLOB), "string": (STRING, VARCHAR),
}  # fmt: skip
_TIMES = {
    ("int", "date"): (INT, 0, "DATE"), ("int", "time-millis"): (SCALED, 1, "TIME"), ("long", "time-micros"): (LONG, 0, "TIME"),
    ("long", "timestamp-millis"): (SCALED, 0, str(INSTANT)), ("long", "timestamp-micros"): (LONG, 0, str(INSTANT)),
    ("long", "local-timestamp-millis"): (SCALED, 0, "TIMESTAMP"), ("long", "local-timestamp-micros"): (LONG, 0, "TIMESTAMP"),
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A schema is a stranger's: with more it is refused instead of filling memory. Confluent's largest are some thousand.
_MOST_NODES = 20_000
# Parts that are used in several places count once there and in each of them here: 60 records of two fields each can make 2 ** 60.
_MOST_COLUMNS = 20_000
_DEEPEST = 60
# Parts without a byte (nulls, records of nothing else, a fixed of size 0) are read without using up the datum, so that nested
# records of them take steps that nothing else bounds: 60 records of two such fields each take 2 ** 60.
_MOST_EMPTY = 200
# Python refuses to convert more digits to text, as that takes quadratic time (sys.int_info.default_max_str_digits).
_MOST_DIGITS = 4_300


def plan(text: str, references: Iterable[tuple[str, str]] = (), name: str = "value") -> Plan:
    """Plan how to read data of a schema.

    Args:
        text: the schema, as JSON.
        references: (name, text) of referenced schemas, each after its own references.
        name: name of the column if the schema is not a record.

    Raises:
        Unfit: it is not a schema, or has no table columns.
    """
    builder = _Builder()
    try:
        for _, other in references:
            builder.learn(_parsed(other))
        root = _parsed(text)
        if builder.type_of(root) != "record":
            root = {"type": "record", "name": WHOLE, "fields": [{"name": name, "type": root}]}
        builder.build(root, "", 0)
    except RecursionError:
        raise Unfit("the schema is nested too deeply") from None
    kind = builder.nodes[0].kind
    columns = Columns(kind.fields if isinstance(kind, Struct) else ())
    if not columns:
        raise Unfit("the schema has no field that could be a column")
    return Plan(builder.nodes, columns, pa.struct([(item, carried(inner)) for item, inner in columns]))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        if _NAME.fullmatch(text.strip()):  # `string` without quotes is how some tools register a primitive
            return text.strip()
        raise Unfit("the schema is not JSON") from None


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._types: dict[str, tuple[Any, str]] = {}  # definition, and the namespace around it
        self._built: dict[str, int] = {}
        self._open: set[str] = set()
        self._columns: dict[int, int] = {}  # columns and members that a node makes, where that is not one
        self._empty: dict[int, int] = {}  # parts without a byte that reading a node takes at most; absent: none
        self._bytes: dict[int, bool] = {}  # of records: whether a datum has a byte

    def type_of(self, schema: Any) -> str:
        """Return the name of a schema's type."""
        if isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
            return self.type_of(schema["type"])
        return "union" if isinstance(schema, list) else str(schema.get("type") if isinstance(schema, dict) else schema)

    def learn(self, schema: Any, space: str = "") -> None:
        """Add the named types of another schema."""
        if isinstance(schema, list):
            for item in schema:
                self.learn(item, space)
        elif isinstance(schema, dict):
            if schema.get("type") in ("record", "error", "enum", "fixed"):
                full, space = _full(schema, space)
                self._types[full] = schema, space
            for item in (schema.get("type"), schema.get("items"), schema.get("values")):
                if isinstance(item, dict | list):
                    self.learn(item, space)
            for item in schema.get("fields") or () if isinstance(schema.get("fields"), list) else ():
                if isinstance(item, dict):
                    self.learn(item.get("type"), space)

    def build(self, schema: Any, space: str, depth: int) -> int:
        """Build the node of a schema, and return its index."""
        if depth > _DEEPEST:
            raise Unfit("the schema is nested too deeply")
        if isinstance(schema, list):
            return self._union(schema, space, depth)
        if isinstance(schema, str):
            return self._named(schema, space, depth)
        if not isinstance(schema, dict) or "type" not in schema:
            raise Unfit("the schema has a part without a type")
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.build(kind, space, depth + 1)
        if kind in ("record", "error"):
            return self._record(schema, space, depth)
        if kind == "array":
            return self._array(schema, space, depth)
        if kind == "map":
            at = self._add(Node(MAP, label="a map"))
            self.nodes[at].inner = [self.build(schema.get("values"), space, depth + 1), self._add(Node(STRING, VARCHAR))]
            return self._span(at)
        if kind == "enum":
            return self._enum(schema, space)
        if kind == "fixed":
            return self._fixed(schema, space)
        logical = schema.get("logicalType")
        if logical == "decimal" and kind == "bytes":
            return self._decimal(schema, -1) or self._add(Node(BYTES, BLOB, label="bytes"))
        if isinstance(logical, str) and (kind, logical) in _TIMES:
            op, a, name = _TIMES[kind, logical]
            within = {"DATE": DAY, "TIME": TIME_OF_DAY}.get(name, MOMENT)
            return self._add(Node(op, Scalar(name), a=a, b=within, label=logical))
        if logical == "uuid" and kind == "string":
            return self._add(Node(STRING, Scalar("UUID"), label="uuid"))
        return self._named(kind, space, depth)

    def _add(self, node: Node) -> int:
        if len(self.nodes) >= _MOST_NODES:
            raise Unfit(f"the schema has more than {_MOST_NODES:,} parts")
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _span(self, at: int) -> int:
        return self._add(Node(SPAN, JSON, inner=[at], label=self.nodes[at].label))

    def _named(self, name: Any, space: str, depth: int) -> int:
        if not isinstance(name, str):
            raise Unfit("the schema has a part without a type")
        if name == "null":
            return self._add(Node(NOTHING, label="null"))
        if name in _PLAIN:
            op, kind = _PLAIN[name]
            return self._add(Node(op, kind, label=name))
        known = self._types.keys() | self._built.keys()
        full = f"{space}.{name}" if space and "." not in name and f"{space}.{name}" in known else name
        if full in self._open:
            return self._span(self._built[full])
        if full in self._built:
            return self._built[full]
        if full not in self._types:
            raise Unfit(f"the schema does not define {name[:80]!r}")
        definition, around = self._types[full]
        return self.build(definition, around, depth + 1)

    def _define(self, schema: dict[str, Any], space: str, at: int) -> tuple[str, str]:
        full, space = _full(schema, space)
        if full in self._built:
            raise Unfit(f"the schema has a duplicate definition of {full[:80]}")
        self._built[full] = at
        self.nodes[at].full = full
        return full, space

    def _record(self, schema: dict[str, Any], space: str, depth: int) -> int:
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(item, dict) and "type" in item for item in fields):
            raise Unfit("the schema has a record without fields")
        at = self._add(Node(RECORD, label="a record"))
        full, space = self._define(schema, space, at)
        self._open.add(full)
        node, seen = self.nodes[at], set()
        members: list[tuple[str, Type]] = []
        for item in fields:
            name = item.get("name")
            if not isinstance(name, str) or not 0 < len(name) <= 255 or "\0" in name:
                raise Unfit("the schema has a field whose name is not a valid column name")
            inner = self.build(item["type"], space, depth + 1)
            kind = self.nodes[inner].kind
            if name.lower() in seen:
                raise Unfit(f"the schema has a duplicate field {name[:80]} (names are compared without case)")
            seen.add(name.lower())
            node.inner.append(inner)
            node.names.append(name)
            node.given.append(item)
            node.places.append(-1 if kind is None else len(members))
            if kind is not None:
                members.append((name, kind))
        self._open.discard(full)
        self._bytes[at] = any(self._has_bytes(inner) for inner in node.inner)
        empty = sum(self._empty_parts(inner) for inner in node.inner) + (not self._bytes[at])
        if empty > _MOST_EMPTY:
            raise Unfit(f"{full[:80]} has more than {_MOST_EMPTY} parts of zero bytes")
        self._empty[at] = empty
        node.kind = Struct(tuple(members)) if members else None
        made = sum(self._columns.get(inner, 0) for inner in node.inner) + len(members)
        if made > _MOST_COLUMNS:
            raise Unfit(f"{full[:80]} makes more than {_MOST_COLUMNS:,} columns and members")
        self._columns[at] = made
        return at

    def _array(self, schema: dict[str, Any], space: str, depth: int) -> int:
        at = self._add(Node(ARRAY, label="an array"))
        inner = self.build(schema.get("items"), space, depth + 1)
        if not self._has_bytes(inner):
            raise Unfit("the schema has an array whose items have no bytes")
        kind = self.nodes[inner].kind
        self.nodes[at].inner = [inner]
        self.nodes[at].kind = None if kind is None else ListOf(kind)
        self._columns[at] = self._columns.get(inner, 0)
        return at

    def _has_bytes(self, at: int) -> bool:
        """Return whether each datum of a node has a byte. The result is cached: a part may be used in many places."""
        node = self.nodes[at]
        if node.op == RECORD:
            return self._bytes[at]
        # SPAN: a map or a union, or a record that is still being built: it contains itself, so it has a choice.
        return node.op != NOTHING and (node.op != FIXED or node.a > 0)

    def _empty_parts(self, at: int) -> int:
        """Return how many parts without a byte are read with one datum of a node, or with one item of it."""
        if at in self._empty:
            return self._empty[at]
        node = self.nodes[at]
        if node.op in (OPTIONAL, UNION, ARRAY, MAP, SPAN):
            # A record that is still being built is reached by a choice, and has a count of its own.
            built = [inner for inner in node.inner if self.nodes[inner].op != RECORD or inner in self._empty]
            return max((self._empty_parts(inner) for inner in built), default=0)
        return int(not self._has_bytes(at))

    def _union(self, schema: list[Any], space: str, depth: int) -> int:
        if not schema or any(isinstance(item, list) for item in schema):
            raise Unfit("the schema has a union of nothing, or of unions")
        inner = [self.build(item, space, depth + 1) for item in schema]
        nulls = [place for place, at in enumerate(inner) if self.nodes[at].op == NOTHING]
        if len(inner) == 2 and len(nulls) == 1:
            other = inner[1 - nulls[0]]
            at = self._add(Node(OPTIONAL, self.nodes[other].kind, a=nulls[0], inner=[other], label="a union"))
            self._columns[at] = self._columns.get(other, 0)
            return at
        at = self._add(Node(UNION, inner=inner, label="a union"))
        return at if len(nulls) == len(inner) else self._span(at)

    def _enum(self, schema: dict[str, Any], space: str) -> int:
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or not symbols or not all(isinstance(item, str) for item in symbols):
            raise Unfit("the schema has an enum without symbols")
        at = self._add(Node(ENUM, VARCHAR, names=symbols, label="an enum", given=[schema]))
        self._define(schema, space, at)
        return at

    def _fixed(self, schema: dict[str, Any], space: str) -> int:
        size = schema.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
            raise Unfit("the schema has a fixed without a size")
        logical = schema.get("logicalType")
        at = self._decimal(schema, size) if logical == "decimal" and size else None
        if at is None:
            uuid = logical == "uuid" and size == 16
            at = self._add(Node(UUID if uuid else FIXED, Scalar("UUID") if uuid else BLOB, a=size, label="a fixed"))
        self._define(schema, space, at)
        return at

    def _decimal(self, schema: dict[str, Any], size: int) -> int | None:
        """Build a decimal; None if precision or scale is invalid: the logical type is then ignored."""
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or precision <= 0 or not 0 <= scale <= precision:
            return None
        if precision > _MOST_DIGITS:
            raise Unfit(f"the schema has a decimal of more than {_MOST_DIGITS:,} digits")
        node = Node(DECIMAL, Scalar(f"DECIMAL({precision},{scale})"), a=size, b=precision, scale=scale, label="decimal")
        if precision <= 38:
            return self._add(node)
        node.kind = None
        return self._span(self._add(node))


def _full(schema: dict[str, Any], space: str) -> tuple[str, str]:
    """Return the full name of a named type, and the namespace inside it."""
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        raise Unfit("the schema has a type without a name")
    if "." in name:
        return name, name.rpartition(".")[0]
    given = schema.get("namespace")
    space = given if isinstance(given, str) else space
    return (f"{space}.{name}" if space else name), space
