"""Decode JSON objects to rows one by one, with a reason for each reject. It is slow, and used only where blocks need it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any

from kpipe.schema.columns import JSON, Columns, ListOf, MapOf, Scalar, Struct, Type
from kpipe.schema.inference import Values, nameable
from kpipe.schema.nesting import DEEPEST_JSON
from resources.decode.json.blocks import too_deep
from resources.duckdb_engine.arrow_types import LARGEST_FLOAT
from resources.duckdb_engine.exact_numbers import whole
from resources.duckdb_engine.in_memory import castable

__all__ = ["Reject", "load", "row", "unknown", "wire_parts", "wire_value", "wrong"]

_INTEGERS = {
    "TINYINT": (-(2**7), 2**7), "SMALLINT": (-(2**15), 2**15), "INTEGER": (-(2**31), 2**31), "BIGINT": (-(2**63), 2**63),
    "UTINYINT": (0, 2**8), "USMALLINT": (0, 2**16), "UINTEGER": (0, 2**32), "UBIGINT": (0, 2**64),
}  # fmt: skip
# Limit of the values in a list of objects: members times objects, as absent members take space in a column, too.
_MOST_VALUES = 1 << 23


class Reject(Exception):
    """The reason why a payload cannot become a row. The text quotes at most a few characters of it."""


def _reject_constant(_: str) -> None:
    """Reject NaN and infinities, which are not JSON (RFC 8259, section 6); Python's and Arrow's readers accept them."""
    raise Reject("NaN and Infinity are not valid JSON")


class _Number(float):
    """A number with a fraction or exponent, and its text."""

    text: str

    def __new__(cls, text: str) -> _Number:
        made = super().__new__(cls, text)
        made.text = text
        return made


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        duplicate = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise Reject(f"duplicate member {_short(duplicate)}")
    return members


def load(payload: bytes) -> dict[str, Any]:
    """Parse a payload of one JSON object.

    Raises:
        Reject: not UTF-8, not JSON, not an object, nested too deeply, or with a duplicate member.
    """
    if too_deep(payload):
        raise Reject("not JSON: nested too deeply")
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Reject(f"not UTF-8 at byte {error.start}") from error
    try:
        value = json.loads(text, parse_float=_Number, parse_constant=_reject_constant, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise Reject(f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos}") from error
    except RecursionError as error:
        raise Reject("not JSON: nested too deeply") from error
    except ValueError as error:  # Python's limit of 4300 digits, as conversion takes quadratic time
        raise Reject("a number of too many digits") from error
    if not isinstance(value, dict):
        raise Reject(f"not a JSON object but {_name(value)}")
    try:
        text.encode("utf-8")
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise Reject("not JSON: half of a surrogate pair") from error
    return value


def row(value: Mapping[str, Any], columns: Columns) -> tuple[dict[str, Any], dict[str, Any]]:
    """Convert an object to a row of wire values, and return it with the members that have no column.

    Raises:
        Reject: a member is not a value of its column's type; the text names the member.
    """
    converted, extra = _members(value, columns.items, "", 0)
    return converted, {name: item for name, item in extra.items() if not name.lower().startswith("_kafka_")}


def unknown(value: Mapping[str, Any], columns: Columns, names: Collection[str]) -> dict[str, Any]:
    """Return the members of an object that have no column, as `row` does; values of scalar columns are not checked.

    Args:
        value: the object.
        columns: the columns.
        names: of the columns.

    Raises:
        Reject: a member cannot be a column, or one inside a nested column is not of its type.
    """
    extra: dict[str, Any] = {}
    for name, item in value.items():
        if name not in names:
            _check_name(name, "", name in columns)
            extra[name] = item
        elif (kind := columns.get(name)) is not None and not isinstance(kind, Scalar):
            more = _value(item, kind, name, 1)[1]
            if more is not None:
                extra[name] = more
    return {name: item for name, item in extra.items() if not name.lower().startswith("_kafka_")}


def wire_value(value: Any, kind: Scalar, path: str) -> Any:
    """Convert a value to a wire value of a scalar type.

    Raises:
        Reject: it is not a value of the type; the text names the path.
    """
    return wire_parts(value, kind, path)[0]


def wire_parts(value: Any, kind: Type, path: str) -> tuple[Any, Any]:
    """Convert a value to a wire value of a type, and return it with the members that the type lacks; None: it lacks none.

    Raises:
        Reject: it is not a value of the type, or a member cannot be a field; the text names the path.
    """
    return _value(value, kind, path, 1)


def _members(
    value: Mapping[str, Any], fields: tuple[tuple[str, Type], ...], path: str, depth: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    known = {name for name, _ in fields}
    folded = {name.lower() for name, _ in fields}
    converted: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, kind in fields:
        converted[name], more = _value(value.get(name), kind, path + name, depth + 1)
        if more is not None:
            extra[name] = more
    for name, item in value.items():
        if name in known:
            continue
        _check_name(name, path, name.lower() in folded)
        extra[name] = item
    return converted, extra


def _check_name(name: str, path: str, taken: bool) -> None:
    """Check that a member without a column can have one."""
    if not nameable(name):
        raise Reject(f"member {_short(repr(name))} of {_short(path) or 'the object'}: not a valid column name")
    if taken:
        raise Reject(f"member {_short(path + name)} differs from a column by case only")


def _value(value: Any, kind: Type, path: str, depth: int) -> tuple[Any, Any]:
    if value is None:
        return None, None
    if depth > DEEPEST_JSON:
        raise Reject(f"{_short(path)}: nested too deeply")
    if isinstance(kind, Struct):
        if not isinstance(value, dict):
            raise wrong(value, kind, path)
        converted, extra = _members(value, kind.fields, path + ".", depth)
        return converted, extra or None
    if isinstance(kind, ListOf):
        if not isinstance(value, list):
            raise wrong(value, kind, path)
        if isinstance(kind.item, Struct) and len(value) * len(kind.item.fields) > _MOST_VALUES:
            raise Reject(
                f"{_short(path)}: the list is too large: {len(value):,} objects of {len(kind.item.fields):,} members each"
            )
        pairs = [_value(item, kind.item, f"{path}[{at}]", depth + 1) for at, item in enumerate(value)]
        more = [item for _, item in pairs if item is not None]
        return [item for item, _ in pairs], more or None
    if isinstance(kind, MapOf):
        if not isinstance(value, dict):
            raise wrong(value, kind, path)
        pairs_by_key = {name: _value(item, kind.item, f"{path}.{name}", depth + 1) for name, item in value.items()}
        beyond = Values(item for _, item in pairs_by_key.values() if item is not None)
        return [(name, item) for name, (item, _) in pairs_by_key.items()], beyond or None
    return _scalar(value, kind, path), None


def _scalar(value: Any, kind: Scalar, path: str) -> Any:
    if kind == JSON:
        return _text(value)
    name = kind.name
    if name == "VARCHAR":
        return value if isinstance(value, str) else _text(value)
    if name == "BOOLEAN":
        if isinstance(value, bool):
            return value
    elif name in _INTEGERS:
        return _integer(value, kind, path)
    elif name in ("DOUBLE", "FLOAT"):
        number = _real(value)
        if number is not None and (name == "DOUBLE" or abs(number) <= LARGEST_FLOAT or not isfinite(number)):
            return number
    elif name == "BLOB":
        if isinstance(value, str):
            return value
    else:
        text = value if isinstance(value, str) else _text(value)
        numeric = name.startswith("DECIMAL") or name == "HUGEINT"
        plain = isinstance(value, str) or (numeric and isinstance(value, (int, float)) and not isinstance(value, bool))
        converted = castable(text, name) if plain else None
        if converted is not None:
            return converted
    raise wrong(value, kind, path)


def _real(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(str(value))  # infinity beyond a DOUBLE's range, as in Arrow's reader
    return float(value) if isinstance(value, str) and castable(value, "DOUBLE") is not None else None


def _integer(value: Any, kind: Scalar, path: str) -> int:
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, _Number):
        number = whole(value.text, 20)  # digits of a UBIGINT
    elif isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,25}", value):
        number = int(value)
    low, high = _INTEGERS[kind.name]
    if number is None or not low <= number < high:
        raise wrong(value, kind, path)
    return number


def _text(value: Any) -> str:
    """Return compact JSON, with numbers as in the payload."""
    try:
        return _json(value)
    except RecursionError as error:
        raise Reject("nested too deeply") from error


def _json(value: Any) -> str:
    if isinstance(value, _Number):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join([f"{json.dumps(name, ensure_ascii=False)}:{_json(item)}" for name, item in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_json(item) for item in value]) + "]"
    if isinstance(value, float) and not isfinite(value):
        raise Reject("NaN and Infinity are not valid JSON")
    return json.dumps(value, ensure_ascii=False)


def wrong(value: Any, kind: Type, path: str) -> Reject:
    """Return the reject of a value that is not of the column's type."""
    article = "an" if str(kind)[0] in "AEIO" else "a"  # a UUID, a UBIGINT
    return Reject(f"{_short(path)}: {_name(value)} is not {article} {_short(str(kind), 60)}")


def _name(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return _short(_text(value))


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[:most] + "..."
