"""Parse and print JSON documents: numbers keep their digits, keys their order, and the last of duplicate keys wins.

DuckDB's own JSON functions are not used for values: they print 1.50 as 1.5 and 1E5 as 100000.0, read `[1,]` and `NaN`, and
use the first of duplicate keys. Sources: RFC 8259; MySQL 8.4 manual, "The JSON Data Type" (depth, duplicate keys, equality).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from kpipe.expressions.short_cache import short_cache

__all__ = [
    "MISSING", "MOST_DEPTH", "Invalid", "Number", "canonical", "depth", "double", "edited", "equal", "fixed",
    "kind", "member", "numeral", "parsed", "printed", "read", "shared", "type_name", "whole", "written",
]  # fmt: skip

MOST_DEPTH = 100
"""Levels of arrays and objects, as in MySQL."""

MISSING: Any = object()
"""The result of a path without a value, unlike `null`."""

_DIGITS = re.compile(r"[ \t\n\r]*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_MOST = 1.7976931348623157e308
_LONG = 9223372036854775807
_WIDE = Context(prec=100, rounding=ROUND_HALF_UP)  # more digits than a DECIMAL has


class Invalid(ValueError):
    """A text is not a JSON document, or is nested too deeply."""


class Number(str):
    """A number with the digits of the document."""

    __slots__ = ()


def _refused(constant: str) -> Any:
    raise Invalid(f'invalid JSON document: {constant} is not JSON; write null, or "{constant}" in quotes')


_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_refused)
_quoted = json.encoder.encode_basestring


def parsed(text: str) -> Any:
    """Parse a document to None, bool, Number, str, list or dict.

    Raises:
        Invalid: it is not a document, or has more than MOST_DEPTH levels.
    """
    try:
        document = _DECODER.decode(text)
    except Invalid:  # NaN, Infinity
        raise
    except ValueError:
        raise Invalid(f"invalid JSON document: {text[:40]}") from None
    except RecursionError:
        raise _too_deep() from None
    if text.count("[") + text.count("{") > MOST_DEPTH and depth(document, scalars=0) > MOST_DEPTH:
        raise _too_deep()
    if "\\ud" in text or "\\uD" in text:
        try:
            written(document).encode()
        except UnicodeEncodeError:  # an unpaired surrogate is not a character
            raise Invalid(f"invalid JSON document: {text[:40]}") from None
    return document


def _too_deep() -> Invalid:
    return Invalid(f"a JSON document has more than {MOST_DEPTH} levels")


# DuckDB computes each expression for 2048 records at a time; of short documents, the cache of a block stays below some MB.
@short_cache(maxsize=2048)
def shared(text: str) -> Any:
    """Parse a document that callers must not change: the expressions of a block share the result.

    Raises:
        Invalid: as `parsed`.
    """
    return parsed(text)


def read(text: str | None, parse: Callable[[str], Any] = parsed) -> Any:
    """Parse a document; MISSING for a text that is not one.

    Raises:
        Invalid: it has more than MOST_DEPTH levels.
    """
    if text is None:
        return MISSING
    try:
        return parse(text)
    except Invalid as error:
        if "levels" in str(error):
            raise
        return MISSING


def written(value: Any) -> str:
    """Print a document without white space, as SingleStore does."""
    if type(value) is str:
        return _quoted(value)
    if type(value) is Number:
        return str.__str__(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{','.join([written(item) for item in value])}]"
    return "{" + ",".join([f"{_quoted(name)}:{written(item)}" for name, item in value.items()]) + "}"


def printed(value: Any, indent: str = "") -> str:
    """Print a document over several lines, indented by two spaces; empty arrays and objects stay on one line."""
    deeper = indent + "  "
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(deeper + printed(item, deeper) for item in value) + f"\n{indent}]"
    if isinstance(value, dict) and value:
        lines = (f"{deeper}{_quoted(name)}: {printed(item, deeper)}" for name, item in value.items())
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return written(value)


def depth(value: Any, scalars: int = 1) -> int:
    """Return the number of levels: one for each array and object, and `scalars` for a scalar."""
    most, rest = 0, [(value, 0)]
    while rest:
        item, above = rest.pop()
        inner = isinstance(item, (list, dict))
        most = max(most, above + (1 if inner else scalars))
        if inner:
            rest += [(below, above + 1) for below in (item if isinstance(item, list) else item.values())]
    return most


def kind(value: Any) -> str:
    """Return SingleStore's name of the type."""
    if type(value) is Number:
        return "double"
    names = {type(None): "null", bool: "boolean", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def type_name(value: Any) -> str:
    """Return MySQL's name of the type."""
    if type(value) is not Number:
        return kind(value).upper()
    if value.lstrip("-").isdigit() and len(value) <= 20 and -_LONG - 1 <= int(value) <= 2 * _LONG + 1:
        return "INTEGER" if int(value) <= _LONG else "UNSIGNED INTEGER"
    return "DOUBLE"


def _exact(value: str) -> Decimal | None:
    try:
        number = Decimal(value)
    except InvalidOperation:  # the exponent is too large
        return None
    return number if number.is_finite() else None


def double(value: Any) -> float:
    """Return a value as MySQL uses it in arithmetic: a text counts as its leading number, arrays and objects as 0."""
    if isinstance(value, bool):
        return float(value)
    digits = _DIGITS.match(value) if isinstance(value, str) else None
    return min(max(float(digits[1]), -_MOST), _MOST) if digits else 0.0


def numeral(value: Any) -> Number:
    """Return the same as `double`, with the digits of the document."""
    if isinstance(value, bool):
        return Number(int(value))
    digits = _DIGITS.match(value) if isinstance(value, str) else None
    return Number(digits[1]) if digits else Number("0")


def fixed(value: Any, precision: int, scale: int) -> str:
    """Return a value as DECIMAL, rounded half away from zero; a number with too many digits becomes the largest that fits."""
    exact = _exact(numeral(value)) or Decimal(0)
    most = Decimal(10**precision - 1).scaleb(-scale, _WIDE)
    if exact.adjusted() + scale >= precision:
        return f"{most.copy_sign(exact):f}"
    if exact.adjusted() + scale < -1:
        exact = Decimal(0)
    made = _WIDE.quantize(exact, Decimal(1).scaleb(-scale))
    return f"{made if made.copy_abs() <= most else most.copy_sign(exact):f}"


def whole(value: Any) -> int:
    """Return a value as BIGINT, rounded half away from zero; texts, arrays and objects are 0."""
    if isinstance(value, bool):
        return int(value)
    exact = _exact(value) if type(value) is Number else None
    if exact is None:
        return 0
    if exact.adjusted() > 18:
        return -_LONG - 1 if exact.is_signed() else _LONG
    if exact.adjusted() < -1:
        return 0
    return max(min(int(exact.to_integral_value(ROUND_HALF_UP)), _LONG), -_LONG - 1)


def equal(left: Any, right: Any) -> bool:
    """Return whether two documents are equal: numbers by value, objects in any order of keys."""
    if type(left) is Number and type(right) is Number:
        return left == right or canonical(left) == canonical(right)
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(equal(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(item, right[name]) for name, item in left.items())
    return bool(left == right)


def canonical(value: Any) -> str:
    """Return a text that is the same for equal documents."""
    if type(value) is Number:
        exact = _exact(value)
        if exact is None:
            return str.__str__(value)
        sign, digits, exponent = exact.as_tuple()
        figures = "".join(map(str, digits)).lstrip("0")
        short = figures.rstrip("0")
        return f"{'-' if sign else ''}{short}e{int(exponent) + len(figures) - len(short)}" if short else "0"
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(name)}:{canonical(value[name])}" for name in sorted(value)) + "}"
    return written(value)


def member(value: Any, keys: list[str]) -> Any:
    """Return the value at a SingleStore keypath, or MISSING. In an array, a key is an index from 0."""
    for key in keys:
        if isinstance(value, dict):
            value = value.get(key, MISSING)
        elif isinstance(value, list) and (place := _place(key)) is not None and place < len(value):
            value = value[place]
        else:
            return MISSING
    return value


def _place(key: str) -> int | None:
    """Parse an array index; None for other keys, and for more than nine digits."""
    return int(key) if key.isascii() and key.isdigit() and len(key) < 10 else None


def edited(value: Any, keys: list[str], leaf: Callable[[Any], Any]) -> Any:
    """Replace the value at a keypath by `leaf` of it, which receives MISSING for a missing value. Return the document.

    Only the last key may be new. An index beyond the end of an array fills the array with `null` (SingleStore's manual,
    "JSON_SET_<type>"). If `leaf` returns MISSING, the value is removed.
    """
    if not keys:
        return leaf(value)
    key, rest = keys[0], keys[1:]
    place = _place(key) if isinstance(value, list) else None
    if isinstance(value, dict):
        present = value.get(key, MISSING)
    elif place is not None:
        present = value[place] if place < len(value) else MISSING
    else:
        return value
    if present is MISSING and rest:
        return value
    made = edited(present, rest, leaf)
    if made is MISSING:
        if present is not MISSING:
            del value[key if place is None else place]
    elif place is None:
        value[key] = made
    else:
        if place >= _MOST_PLACES:
            raise Invalid(f"array index out of range: expected at most {_MOST_PLACES} elements")
        value += [None] * (place + 1 - len(value))
        value[place] = made
    return value


_MOST_PLACES = 1_000_000
