"""Convert column types to Delta's and back. Types that Delta lacks are stored in a type that represents them exactly.

The field metadata `kpipe.type` of such columns contains the declared type. It counts only while it fits the schema: after a
change of the column's type by another tool, the schema decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from kpipe.errors import InvalidPipeline, SchemaConflict
from kpipe.schema.columns import Columns, ListOf, MapOf, Scalar, Struct, Type, parse_type
from resources.destinations.lakehouse.schema_evolution import added
from resources.type_compatibility import additions

__all__ = ["META", "arrow", "columns_of", "has_local_times", "widened"]

META = "kpipe.type"  #: key in a field's metadata

Field = Mapping[str, Any]

_DELTA = {
    "BOOLEAN": "boolean", "TINYINT": "byte", "SMALLINT": "short", "INTEGER": "integer", "BIGINT": "long",
    "FLOAT": "float", "DOUBLE": "double", "VARCHAR": "string", "BLOB": "binary", "DATE": "date",
    "TIMESTAMP WITH TIME ZONE": "timestamp", "TIMESTAMP": "timestamp_ntz",
}  # fmt: skip
_KPIPE = {delta: name for name, delta in _DELTA.items()}
# Delta has no unsigned integers, none beyond 64 bits, no TIME, JSON or UUID.
_HELD_AS = {
    "UTINYINT": "short", "USMALLINT": "integer", "UINTEGER": "long", "UBIGINT": "decimal(20,0)",
    "HUGEINT": "string", "TIME": "string", "JSON": "string", "UUID": "string",
}  # fmt: skip
_ARROW = {
    "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


def columns_of(fields: Sequence[Field], where: str) -> Columns:
    """Return the columns of a Delta schema.

    Raises:
        SchemaConflict: kpipe cannot write a column's type.
    """
    found: list[tuple[str, Type]] = []
    for field in fields:
        try:
            found.append((field["name"], _meant(field)))
        except InvalidPipeline as error:
            raise SchemaConflict(
                f"{where}: column {field['name']!r} has type {json.dumps(field['type'])}, which kpipe cannot write",
                "change the column's type, or load into another table and derive this one from it",
            ) from error
    return Columns(tuple(found))


def widened(fields: Sequence[Field], wanted: Columns, where: str) -> list[dict[str, Any]]:
    """Return the fields with these columns added: new columns at the end, new fields inside structs.

    Everything else in the fields is unchanged.

    Raises:
        SchemaConflict: a column has another type.
    """
    result = [json.loads(json.dumps(field)) for field in fields]
    known = columns_of(fields, where)
    for name, kind in wanted:
        have = known.get(name)
        if have is None:
            result.append(_field(name, kind))
            continue
        at = next(at for at, (known_name, _) in enumerate(known) if known_name.lower() == name.lower())
        steps = additions(have, kind, (name,))
        for path, new in steps:
            result[at]["type"] = _added(result[at]["type"], path[1:], new)
            have = added(have, path[1:], new)
        if steps:
            result[at]["metadata"] = {**result[at].get("metadata", {}), META: str(have)}
    return result


def arrow(kind: Any) -> pa.DataType:
    """Return the Arrow type of a Delta type in data files.

    Raises:
        KeyError: kpipe does not support the type.
    """
    if isinstance(kind, str):
        decimal = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind)
        return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _ARROW[kind]
    if kind["type"] == "array":
        return pa.list_(arrow(kind["elementType"]))
    if kind["type"] == "map":
        return pa.map_(arrow(kind["keyType"]), arrow(kind["valueType"]))
    return pa.struct([(field["name"], arrow(field["type"])) for field in kind["fields"]])


def has_local_times(kind: Any) -> bool:
    """Return whether a type needs the table feature timestampNtz."""
    if isinstance(kind, str):
        return kind == "timestamp_ntz"
    if kind["type"] == "array":
        return has_local_times(kind["elementType"])
    if kind["type"] == "map":
        return has_local_times(kind["valueType"])
    return any(has_local_times(field["type"]) for field in kind.get("fields", ()))


def _to_delta(kind: Type) -> Any:
    if isinstance(kind, ListOf):
        return {"type": "array", "elementType": _to_delta(kind.item), "containsNull": True}
    if isinstance(kind, MapOf):
        return {"type": "map", "keyType": "string", "valueType": _to_delta(kind.item), "valueContainsNull": True}
    if isinstance(kind, Struct):
        return {"type": "struct", "fields": [_plain(name, item) for name, item in kind.fields]}
    if kind.name.startswith("DECIMAL"):
        return kind.name.lower()
    return _DELTA.get(kind.name) or _HELD_AS[kind.name]


def _plain(name: str, kind: Type) -> dict[str, Any]:
    return {"name": name, "type": _to_delta(kind), "nullable": True, "metadata": {}}


def _field(name: str, kind: Type) -> dict[str, Any]:
    field = _plain(name, kind)
    if _of_delta(field["type"]) != kind:
        field["metadata"] = {META: str(kind)}
    return field


def _of_delta(kind: Any) -> Type:
    if isinstance(kind, str):
        decimal = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind)
        if decimal:
            return Scalar(f"DECIMAL({decimal[1]},{decimal[2]})")
        if kind in _KPIPE:
            return Scalar(_KPIPE[kind])
    elif kind["type"] == "array":
        return ListOf(_of_delta(kind["elementType"]))
    elif kind["type"] == "map" and kind["keyType"] == "string":
        return MapOf(_of_delta(kind["valueType"]))
    elif kind["type"] == "struct":
        return Struct(tuple((field["name"], _of_delta(field["type"])) for field in kind["fields"]))
    raise InvalidPipeline(f"Delta type {kind}: not supported")


def _meant(field: Field) -> Type:
    told = (field.get("metadata") or {}).get(META)
    if isinstance(told, str):
        try:
            kind = parse_type(told)
            if arrow(_to_delta(kind)) == arrow(field["type"]):
                return kind
        except (InvalidPipeline, KeyError, TypeError):
            pass  # another tool changed the column: the schema decides
    return _of_delta(field["type"])


def _added(kind: Any, path: Sequence[str], new: Type) -> Any:
    """Return a Delta type with one more field at the end of a path."""
    if isinstance(kind, dict) and kind["type"] == "array":
        return {**kind, "elementType": _added(kind["elementType"], path[1:], new)}
    if len(path) == 1:
        return {**kind, "fields": [*kind["fields"], _plain(path[0], new)]}
    fields = [
        {**field, "type": _added(field["type"], path[1:], new)} if field["name"].lower() == path[0].lower() else field
        for field in kind["fields"]
    ]
    return {**kind, "fields": fields}
