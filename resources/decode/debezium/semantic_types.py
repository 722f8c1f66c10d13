"""Semantic types of Kafka Connect and Debezium: the name of a schema defines what a number, a text or bytes mean.

Sources of the rules: Kafka Connect's `org.apache.kafka.connect.data` (JSON converter), and the type mappings in Debezium's pages
of the PostgreSQL, MySQL and MariaDB connectors. Values are those of JSON; results are values of `staged_type`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

from kpipe.schema.columns import BLOB, INSTANT, VARCHAR, Scalar, Type
from resources.decode.json.rows import Reject
from resources.duckdb_engine.strict_json import problem

__all__ = ["Convert", "as_bytes", "semantic"]

#: Converts a JSON value that is not null to a staged value; raises Reject.
Convert = Callable[[Any], Any]

_EXACT = Context(prec=200_000, traps=[InvalidOperation, Inexact])  # PostgreSQL's NUMERIC has up to 147,455 digits
_MOST_SCALE, _MOST_BITS = 20_000, 1 << 16  # of a schema; longer values have as many bits as their bytes
_EPOCH = datetime(1970, 1, 1)
_DAY_US = 86_400_000_000
_DATE, _TIME, _TIMESTAMP, _INTEGER, _BIGINT = map(Scalar, ("DATE", "TIME", "TIMESTAMP", "INTEGER", "BIGINT"))
# DuckDB's first time (290309-12-22 BC), and its last one before infinity. A query that shows an earlier one stops its database.
_FIRST_MOMENT, _LAST_MOMENT = -9_223_372_022_400_000_000, 2**63 - 2
# PostgreSQL's infinite times as Debezium writes them, in microseconds; DuckDB's and Arrow's are the ends of 64 bits.
_INFINITE = {9223372036825200000: 2**63 - 1, -9223372036832400000: -(2**63) + 1}
_CONNECT, _TIMES, _DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."
_MOST_DIGITS, _SCALED = 38, re.compile(r"org\.apache\.kafka\.connect\.data\.Decimal\((?:(\d{1,2}),)?(-?\d{1,3})\)")


def semantic(name: str, parameters: Mapping[str, str]) -> tuple[Type, Convert] | None:
    """Return the column type of a semantic type, and the conversion of its values; None for any other name.

    Args:
        name: of the schema, such as `io.debezium.time.MicroTimestamp`.
        parameters: of the schema.

    Raises:
        Reject: a parameter is missing or invalid.
    """
    if (scaled := _SCALED.fullmatch(name)) is not None:
        digits, scale = scaled.groups()
        return _decimal({"scale": scale, **({"connect.decimal.precision": digits} if digits else {})})
    if name == _CONNECT + "Decimal":
        return _decimal(parameters)
    if name == _DATA + "Bits":
        width = _number(parameters.get("length", "0"), "length", 10**9)
        return VARCHAR, lambda value: _bits(as_bytes(value), width)
    return _PLAIN.get(name)


def as_bytes(value: Any) -> bytes:
    """Decode base64, which JSON has for bytes."""
    if not isinstance(value, str):
        raise Reject(f"expected base64, found {str(value)[:40]}")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Reject(f"not base64: {value[:40]}") from error


def _decimal(parameters: Mapping[str, str]) -> tuple[Type, Convert]:
    if "scale" not in parameters:
        raise Reject("a Decimal without the parameter scale")
    scale = _number(parameters["scale"], "scale", _MOST_SCALE)
    precision = _number(parameters.get("connect.decimal.precision", str(_MOST_DIGITS)), "connect.decimal.precision", 10**9)
    if not 0 <= scale <= precision <= _MOST_DIGITS or precision == 0:
        return VARCHAR, lambda value: f"{_unscaled(value, scale):f}"

    def convert(value: Any) -> Decimal:
        found = _unscaled(value, scale)
        if found.copy_abs() >= _EXACT.scaleb(Decimal(1), precision - scale):  # abs() would round
            raise Reject(f"{str(found)[:40]} has more than {precision - scale} digits before the point")
        return found

    return Scalar(f"DECIMAL({precision},{scale})"), convert


def _unscaled(value: Any, scale: int) -> Decimal:
    """Return a decimal from its unscaled bytes in base64, or from a number (`decimal.format=NUMERIC`)."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            exact = Decimal(getattr(value, "text", str(value)))
            if exact.is_nan():  # of a double in Avro; it has no order, and quantize() keeps it
                raise Reject("not a decimal: nan")
            found = exact.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
        except Inexact as error:
            raise Reject(f"{_short(value)} has more than {scale} digits after the point") from error
        except (ArithmeticError, ValueError) as error:
            raise Reject(f"not a decimal: {_short(value)}") from error
        return found
    raw = as_bytes(value)
    if not raw:
        raise Reject("a decimal without digits")
    try:
        return _EXACT.scaleb(Decimal(int.from_bytes(raw, "big", signed=True)), -scale)
    except ArithmeticError as error:
        raise Reject(f"a decimal of {len(raw)} bytes, which has too many digits") from error


def _variable(value: Any) -> str:
    """Return the exact text of a number whose scale is its own."""
    if not isinstance(value, dict) or not isinstance(value.get("scale"), int) or isinstance(value["scale"], bool):
        raise Reject("expected the members scale and value of a VariableScaleDecimal")
    if abs(value["scale"]) > _MOST_SCALE:
        raise Reject(f"a scale beyond {_MOST_SCALE}")
    return f"{_unscaled(value.get('value'), value['scale']):f}"


def _short(value: Any) -> str:
    return f"a number of {value.bit_length()} bits" if isinstance(value, int) and value.bit_length() > 64 else str(value)[:40]


def _number(text: Any, name: str, most: int) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", str(text)) or abs(int(text)) > most:
        raise Reject(f"the schema's parameter {name}: expected a number up to {most}, found {str(text)[:40]}")
    return int(text)


def _bits(raw: bytes, width: int) -> str:
    """Return bits as text, the most significant first. Debezium writes little-endian bytes."""
    if width < 0 or width > max(_MOST_BITS, 8 * len(raw)):
        raise Reject(f"{len(raw)} bytes in place of {width} bits")
    found = f"{int.from_bytes(raw, 'little'):b}"
    return found.zfill(width)[-width:] if width else found


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise Reject(f"not an integer: {str(value)[:40]}")
    return value


def _int32(value: Any) -> int:
    found = _integer(value)
    if not -(2**31) <= found < 2**31:
        raise Reject(f"not an integer of 32 bits: {found}")
    return found


def _days(value: Any) -> int:
    found = _integer(value)
    if not -(2**31) < found < 2**31:
        raise Reject(f"not a day: {found}")
    return found


def _of_day(unit: int) -> Convert:
    """Return the conversion of a time of day to microseconds; `unit` is how many of them, negative: how many make one."""

    def convert(value: Any) -> int:
        found = _in_us(_integer(value), unit)
        if not 0 <= found <= _DAY_US:
            raise Reject(f"{value} is not a time of day: expected 0 to 24 hours (declare the column as VARCHAR or BIGINT)")
        return found

    return convert


def _moment(unit: int) -> Convert:
    def convert(value: Any) -> int:
        found = _in_us(_integer(value), unit)
        if found in _INFINITE:
            return _INFINITE[found]
        if not _FIRST_MOMENT <= found <= _LAST_MOMENT:
            raise Reject(f"{value} is beyond the range of a timestamp")
        return found

    return convert


def _in_us(value: int, unit: int) -> int:
    """Convert to microseconds; nanoseconds are rounded down, as in a cast of DuckDB."""
    return value * unit if unit > 0 else value // -unit


_FRACTION = re.compile(r"\.(\d+)")


def _iso(value: Any, what: str) -> datetime:
    if not isinstance(value, str):
        raise Reject(f"expected {what}, found {str(value)[:40]}")
    text = _FRACTION.sub(lambda part: "." + part[1][:6].ljust(6, "0"), value)
    if text.endswith("Z"):
        text = text[:-1] + "+00:00"
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise Reject(f"expected {what}, found {value[:40]}") from error


def _zoned(value: Any) -> int:
    if value in ("infinity", "-infinity"):
        return (2**63 - 1) * (1 if value == "infinity" else -1)
    found = _iso(value, "a time with a zone in ISO 8601")
    passed = found.replace(tzinfo=None) - _EPOCH  # a time in UTC may be outside of Python's years
    return (passed - (found.utcoffset() or timedelta())) // timedelta(microseconds=1)


def _iso_timestamp(value: Any) -> int:
    return (_iso(value, "a timestamp in ISO 8601").replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)


def _iso_date(value: Any) -> int:
    try:
        return (date.fromisoformat(str(value).removesuffix("Z")) - _EPOCH.date()).days
    except ValueError as error:
        raise Reject(f"expected a date in ISO 8601, found {str(value)[:40]}") from error


def _iso_time(value: Any) -> int:
    text = _FRACTION.sub(lambda part: "." + part[1][:6].ljust(6, "0"), str(value).removesuffix("Z"))
    try:
        found = time.fromisoformat(text)
    except ValueError as error:
        raise Reject(f"expected a time in ISO 8601, found {str(value)[:40]}") from error
    return ((found.hour * 60 + found.minute) * 60 + found.second) * 1_000_000 + found.microsecond


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Reject(f"not a text: {str(value)[:40]}")
    return value


def _document(value: Any) -> str:
    """Check the text of a JSON document, and return it unchanged."""
    text = _text(value)
    why = problem(text)
    if why:
        raise Reject(why)
    return text


def _shape(value: Any) -> bytes | None:
    """Return the well-known binary of a geometry; the SRID is left out."""
    if not isinstance(value, dict) or "wkb" not in value:
        raise Reject("expected the member wkb of a geometry")
    return None if value["wkb"] is None else as_bytes(value["wkb"])


_PLAIN: dict[str, tuple[Type, Convert]] = {
    _CONNECT + "Date": (_DATE, _days),
    _CONNECT + "Time": (_TIME, _of_day(1000)),
    _CONNECT + "Timestamp": (_TIMESTAMP, _moment(1000)),
    _TIMES + "Date": (_DATE, _days),
    _TIMES + "Time": (_TIME, _of_day(1000)),
    _TIMES + "MicroTime": (_TIME, _of_day(1)),
    _TIMES + "NanoTime": (_TIME, _of_day(-1000)),
    _TIMES + "Timestamp": (_TIMESTAMP, _moment(1000)),
    _TIMES + "MicroTimestamp": (_TIMESTAMP, _moment(1)),
    _TIMES + "NanoTimestamp": (_TIMESTAMP, _moment(-1000)),
    _TIMES + "ZonedTimestamp": (INSTANT, _zoned),
    _TIMES + "ZonedTime": (VARCHAR, _text),
    _TIMES + "IsoDate": (_DATE, _iso_date),
    _TIMES + "IsoTime": (_TIME, _iso_time),
    _TIMES + "IsoTimestamp": (_TIMESTAMP, _iso_timestamp),
    _TIMES + "Interval": (VARCHAR, _text),
    _TIMES + "MicroDuration": (_BIGINT, _integer),
    _TIMES + "NanoDuration": (_BIGINT, _integer),
    _TIMES + "Year": (_INTEGER, _int32),
    _DATA + "Uuid": (Scalar("UUID"), _text),
    _DATA + "Json": (Scalar("JSON"), _document),
    _DATA + "VariableScaleDecimal": (VARCHAR, _variable),
    **dict.fromkeys((_DATA + "geometry." + name for name in ("Geometry", "Geography", "Point")), (BLOB, _shape)),
    "bytes": (BLOB, as_bytes),
}
