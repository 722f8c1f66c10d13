"""Normalise values of JSON records and of rows, so that equal values have equal texts, whatever their types are.

A value without an equal text of the column's kind keeps its own, after `?`: it differs from every row.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any

__all__ = [
    "BOOLEAN", "DATE", "DOCUMENT", "DOUBLE", "EXACT", "FLOAT", "KINDS", "NUMBER", "TEXT", "TIME", "TIMESTAMP", "UNITS", "UUID",
    "Converter", "document", "joined", "number", "of_record", "of_row", "parse",
]  # fmt: skip

#: Kinds of columns.
NUMBER, DOUBLE, FLOAT, BOOLEAN = "number", "double", "float", "boolean"
TIMESTAMP, DATE, TIME, TEXT, UUID, DOCUMENT = "timestamp", "date", "time", "text", "uuid", "document"
#: Text of a key, in which JSON is text as well: two keys with other spaces are two keys.
EXACT = "exact"
KINDS = (NUMBER, DOUBLE, FLOAT, BOOLEAN, TIMESTAMP, DATE, TIME, TEXT, EXACT, UUID, DOCUMENT)
#: Microseconds of a number that is a time.
UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}

#: Returns the text of a value; None: no value.
Converter = Callable[[Any], "str | None"]

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?", re.ASCII)
_DAY = r"([+-]?[0-9]{1,6})-([0-9]{2})-([0-9]{2})"
_CLOCK = r"([0-9]{1,3}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]+))?)?"
_DATE = re.compile(_DAY, re.ASCII)
_TIME = re.compile(_CLOCK, re.ASCII)
_INSTANT = re.compile(rf"{_DAY}[T ]{_CLOCK} ?(?:Z|UTC|([+-])([0-9]{{2}})(?::?([0-9]{{2}}))?)?", re.ASCII)
_PLAIN = 40  # digits of a number that is written without an exponent
_LARGE = 10**_PLAIN


def parse(text: bytes) -> Any:
    """Parse a JSON text; fractions become decimals, so that no digit is lost. Of two members of one name, the last counts.

    Raises:
        ValueError: it is not JSON, or too deep.
    """
    try:
        return _DECODER.decode(text.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=_constant)


def number(value: int | Decimal) -> str:
    """Return the shortest text of a number; equal numbers have the same, as 1, 1.0 and 1e0."""
    if isinstance(value, int) and -_LARGE < value < _LARGE:
        return str(value)
    text = str(value)
    if len(text) <= _PLAIN and "E" not in text and "." in text and text[-1].isdigit():  # most numbers with a fraction
        text = text.rstrip("0").rstrip(".")
        return "0" if text == "-0" else text
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        return str(value)  # of a row: NaN or Infinity, which JSON does not have
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    exponent += len(text) - len(short)
    if not short:
        return "0"
    if exponent >= 0 and len(short) + exponent <= _PLAIN:
        short += "0" * exponent
    elif -_PLAIN <= exponent < 0:
        short = short.rjust(1 - exponent, "0")
        short = f"{short[:exponent]}.{short[exponent:]}"
    else:
        short += f"e{exponent}"
    return "-" * sign + short


def document(value: Any) -> str:
    """Return JSON in one form: sorted names, no spaces, no members without a value, fractions as doubles."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (Decimal, float)):
        near = float(value)
        return int(near) if isfinite(near) and near.is_integer() else near if isfinite(near) else str(value)
    return value


def joined(texts: Sequence[str | None]) -> str | None:
    """Return the text of a key; None: one of its columns has no value."""
    if None in texts:
        return None
    return texts[0] if len(texts) == 1 else json.dumps(texts, separators=(",", ":"), ensure_ascii=False)


def of_record(kind: str, unit: str = "ms") -> Converter:
    """Return the converter of values of a JSON record for a column of this kind.

    Args:
        kind: one of `KINDS`.
        unit: unit of numbers that are timestamps: one of `UNITS`.
    """
    convert: Callable[[Any], str | None] = _RECORD[kind]
    if kind == TIMESTAMP:
        factor = UNITS[unit]

        def convert(value: Any) -> str | None:
            if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
                return str(int(value * factor)) if -_LARGE < value < _LARGE else None  # else decimals overflow
            return _instant(value) if isinstance(value, str) else None

    def converted(value: Any) -> str | None:
        if value is None:
            return None
        found = convert(value)
        return _printable(found if found is not None else f"?{value if isinstance(value, str) else document(value)}")

    return converted


def of_row(kind: str) -> Converter:
    """Return the converter of a row's values: Python's values of Arrow, or texts of a server.

    Timestamps are numbers of microseconds, or texts; those without a time zone are UTC. Documents are parsed values, or texts of
    JSON; JSON's null is NULL.
    """
    if kind == DOCUMENT:
        return _document_of_row
    convert = _ROW[kind]

    def converted(value: Any) -> str | None:
        if value is None:
            return None
        found = convert(value)
        return _printable(found if found is not None else f"?{value}")

    return converted


def _printable(text: str) -> str:
    """Return the text; surrogates without a partner, which no encoding has, as escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _decimal(value: Any) -> Decimal | int | None:
    """Return the number that a value means; None: it means none."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (int, Decimal)):
        return value
    if isinstance(value, float):
        return Decimal(repr(value)) if isfinite(value) else Decimal(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return Decimal(value.strip())
    return None


def _number(value: Any) -> str | None:
    found = _decimal(value)
    return None if found is None else number(found)


def _real(value: Any) -> float | None:
    try:
        if isinstance(value, str) and value.strip().lower() in ("nan", "infinity", "-infinity"):
            return float(value)
        found = _decimal(value)
        return None if found is None else float(found)
    except OverflowError:
        return None


def _double(value: Any) -> str | None:
    found = _real(value)
    return None if found is None else number(Decimal(repr(found)))


def _float(value: Any) -> str | None:
    """Return the nearest number of 32 bits."""
    found = _real(value)
    try:
        return None if found is None else number(Decimal(repr(struct.unpack("f", struct.pack("f", found))[0])))
    except OverflowError:
        return None


def _boolean(value: Any) -> str | None:
    known = {"true": "true", "t": "true", "1": "true", "false": "false", "f": "false", "0": "false"}
    return known.get(str(value).lower())


def _fraction(digits: str | None) -> int:
    """Return microseconds; further digits are left out."""
    return int((digits or "").ljust(6, "0")[:6])


def _seconds(hours: str, minutes: str, seconds: str | None) -> int:
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds or 0)


@lru_cache(4096)
def _days(year: str, month: str, day: str) -> int:
    """Return days since 1970; years outside of Python's are shifted by whole cycles of 400 years.

    Raises:
        ValueError: there is no such day.
    """
    cycles, inside = divmod(int(year) - 1, 400)
    return cycles * 146_097 + date(inside + 1, int(month), int(day)).toordinal() - 719_163


def _instant(text: str) -> str | None:
    """Return microseconds since 1970 of an ISO 8601 timestamp, or of a date."""
    text = text.strip()
    match = _INSTANT.fullmatch(text) or _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day, *rest = match.groups()
    try:
        moment = _days(year, month, day) * 86_400 * 1_000_000
    except ValueError:
        return None
    if rest:
        hours, minutes, seconds, fraction, sign, east, quarter = rest
        moment += _seconds(hours, minutes, seconds) * 1_000_000 + _fraction(fraction)
        moment -= (int(east or 0) * 60 + int(quarter or 0)) * 60_000_000 * (-1 if sign == "-" else 1)
    return str(moment)


def _date(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):  # days since 1970, as Kafka Connect's Date
        return str(value)
    match = _DATE.fullmatch(str(value).strip())
    try:
        return None if match is None else str(_days(match[1], match[2], match[3]))
    except ValueError:
        return None


def _time(value: Any) -> str | None:
    match = _TIME.fullmatch(str(value).strip())
    return None if match is None else str(_seconds(match[1], match[2], match[3]) * 1_000_000 + _fraction(match[4]))


def _text(value: Any) -> str:
    """Return the text; that of a JSON object or list in its one form, because loaders write it in their own."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return document(parse(value.encode()))
        except (ValueError, RecursionError):
            return value
    return _exact(value)


def _exact(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, Decimal)) else document(value)


def _uuid(value: Any) -> str:
    return str(value).lower()


def _document_of_row(value: Any) -> str | None:
    try:
        found = parse(value.encode()) if isinstance(value, str) else value
        return None if found is None else _printable(document(found))
    except (ValueError, RecursionError):
        return _printable(f"?{value}")


_RECORD: dict[str, Converter] = {
    NUMBER: _number, DOUBLE: _double, FLOAT: _float, BOOLEAN: _boolean, DATE: _date, TIME: _time, TEXT: _text, EXACT: _exact,
    UUID: _uuid, DOCUMENT: document, TIMESTAMP: _instant,
}  # fmt: skip
_ROW: dict[str, Converter] = {
    **_RECORD, TIMESTAMP: lambda value: str(value) if isinstance(value, int) else _instant(str(value)),
}  # fmt: skip
