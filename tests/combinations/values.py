"""JSON values for a column of each type, with what must become of a record that holds them.

Written from the table of docs/design.md 4.6 and from JSON and SQL themselves, by hand: nothing here is computed by kpipe.
Instants are microseconds since 1970, days are days since 1970, so that values beyond Python's years stay exact.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

__all__ = [
    "ANY", "BROKEN", "DEAD", "EMPTY", "FAR", "NAMELESS", "SHAPES", "STAMPS", "TYPES", "Cell", "breaks_check", "broken",
    "bytes_of", "days", "is_far", "is_refused", "shaped",
]  # fmt: skip


class _Mark:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


DEAD = _Mark("dead letter")
ANY = _Mark("any value")
FOREVER, NEVER = 2**63 - 1, 1 - 2**63  # how DuckDB and Arrow hold an infinite instant
DAY = 86_400_000_000


@dataclass(frozen=True)
class Cell:
    """A member's JSON text, and the outcomes that are right: values of its row, or `DEAD`.

    Attributes:
        text: as it stands in the record.
        want: alternatives; more than one where a destination decides.
    """

    text: str
    want: tuple[Any, ...]

    def __repr__(self) -> str:
        shown = self.text if len(self.text) < 60 else f"{self.text[:20]}...({len(self.text)} characters)...{self.text[-20:]}"
        return f"{shown} -> {' or '.join(map(repr, self.want))}"


def _cell(text: str, *want: Any) -> Cell:
    return Cell(text, want)


def _micros(year: int, month: int, day: int, seconds: float = 0) -> int:
    """Microseconds since 1970 of a day of the proleptic Gregorian calendar (Hinnant's days_from_civil), any year."""
    return days(year, month, day) * DAY + round(seconds * 1_000_000)


def days(year: int, month: int, day: int) -> int:
    """Days since 1970 of a day of the proleptic Gregorian calendar, any year."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


_MIDDAY = _micros(2024, 2, 29, 43_200.123456)

#: Beyond what Python's dates, and some destinations, can hold: a row there, or a dead letter that says why.
_FAR_INSTANTS = (
    _cell('"9999-12-31T23:59:59-05:00"', _micros(10_000, 1, 1, 17_999), DEAD),
    _cell('"0001-01-01T00:00:00+05:00"', _micros(1, 1, 1, -18_000), DEAD),
    _cell('"10000-01-01 00:00:00Z"', _micros(10_000, 1, 1), DEAD),
    _cell('"0044-03-15 (BC) 00:00:00"', ANY, DEAD),
    _cell('"infinity"', FOREVER, DEAD),
    _cell('"-infinity"', NEVER, DEAD),
    _cell('"294247-01-01 00:00:00Z"', ANY, DEAD),
    _cell('"290309-12-22 (BC) 00:00:00"', ANY, DEAD),
)
_ZEROS = "0" * 100_001
_DEEP = "[" * 150 + "]" * 150

TYPES: dict[str, tuple[Cell, ...]] = {
    "BIGINT": (
        _cell("5", 5),
        _cell("null", None),
        _cell("-9223372036854775808", -(2**63)),
        _cell("7.0", 7),
        _cell('"7"', 7),
        _cell("1.5", DEAD),
        _cell("true", DEAD),
        _cell("9223372036854775808", DEAD),
        _cell("1e400", DEAD),
        _cell("[]", DEAD),
        _cell('"x"', DEAD),
    ),
    "DOUBLE": (
        _cell("0.1", 0.1),
        _cell("null", None),
        _cell("-0.0", -0.0),
        _cell("1e308", 1e308),
        _cell("5e-324", 5e-324),
        _cell("1e400", math.inf, DEAD),
        _cell('"NaN"', math.nan, DEAD),
        _cell('"-Infinity"', -math.inf, DEAD),
        _cell("true", DEAD),
        _cell('"x"', DEAD),
        _cell("0.30000000000000004440892098500626161694526672363281250000000000000000001", 0.30000000000000004),
        _cell(f"0.{_ZEROS}1", 0.0),
        _cell(f"0.{_ZEROS}1e100003", 10.0, DEAD),
        _cell(f"1{_ZEROS}e-100001", 1.0, DEAD),
        _cell(f"1e{_ZEROS}5", 1e5, DEAD),
        _cell(f"1e-{_ZEROS}5", 1e-5, DEAD),
        _cell(f"0.{'0' * 150_000}25e150001", 2.5, DEAD),
        _cell(f"0.{_ZEROS}1e1000000000000000000003", math.inf, DEAD),
        _cell(f"0.{_ZEROS}5e-99999999999999999999", 0.0, DEAD),
    ),
    "VARCHAR": (
        _cell('"text"', "text"),
        _cell("null", None),
        _cell('""', ""),
        _cell("1.50", "1.50"),
        _cell("true", "true"),
        _cell("[1,2]", "[1,2]"),
        _cell('"\\u0000"', "\0", DEAD),
        _cell('"\\ud83d\\ude00"', "\U0001f600"),
        _cell('"\\ud800"', DEAD),
        _cell('"\\u001b[2J\\u2028"', "\x1b[2J\u2028"),
        _cell('"' + "x" * 70_000 + '"', "x" * 70_000),
    ),
    "BOOLEAN": (_cell("true", True), _cell("null", None), _cell("false", False), _cell("1", DEAD), _cell('"true"', DEAD)),
    "DECIMAL(38,9)": (
        _cell("1.5", Decimal("1.5")),
        _cell("null", None),
        _cell("-99999999999999999999999999999.999999999", Decimal("-99999999999999999999999999999.999999999")),
        _cell("1e29", DEAD),
        _cell('"x"', DEAD),
        _cell('"NaN"', DEAD),
        _cell('"12.25"', Decimal("12.25")),
        _cell("true", DEAD),
    ),
    "DATE": (
        _cell('"2024-02-29"', days(2024, 2, 29)),
        _cell("null", None),
        _cell('"9999-12-31"', days(9999, 12, 31)),
        _cell('"0001-01-01"', days(1, 1, 1)),
        _cell('"2023-02-29"', DEAD),
        _cell('"2024-02-29 12:00:00"', DEAD),
        _cell("20240229", DEAD),
        _cell('"10000-01-01"', days(10_000, 1, 1), DEAD),
        _cell('"infinity"', 2**31 - 1, DEAD),
        _cell('"-infinity"', 1 - 2**31, DEAD),
        _cell('"0044-03-15 (BC)"', days(-43, 3, 15), DEAD),
    ),
    "TIMESTAMP": (
        _cell('"2024-02-29T12:00:00.123456"', _MIDDAY),
        _cell("null", None),
        _cell('"2024-02-29"', _micros(2024, 2, 29)),
        _cell("1709208000", DEAD),
        _cell('"x"', DEAD),
        *_FAR_INSTANTS,
    ),
    "TIMESTAMP WITH TIME ZONE": (
        _cell('"2024-02-29T14:00:00.123456+02:00"', _MIDDAY),
        _cell("null", None),
        _cell('"2024-02-29 12:00:00.123456"', _MIDDAY),
        _cell("1709208000", DEAD),
        _cell('"x"', DEAD),
        *_FAR_INSTANTS,
    ),
    "JSON": (
        _cell('{"a":1,"b":[1.50,null]}', '{"a":1,"b":[1.50,null]}'),
        _cell("null", None),
        _cell("0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
        _cell('"text"', '"text"'),
        _cell("[]", "[]"),
        _cell('{"":"\\u0001"}', '{"":"\\u0001"}', DEAD),
        _cell('{"\\u0000":1}', ANY, DEAD),
        _cell(_DEEP, _DEEP, DEAD),
        _cell("[" * 3000 + "]" * 3000, DEAD),
        _cell('{"a":1,"a":2}', DEAD),
        _cell(json.dumps({f"m{at}": at for at in range(300)}), json.dumps({f"m{at}": at for at in range(300)})),
    ),
    "BIGINT[]": (
        _cell("[1,null,-3]", [1, None, -3]),
        _cell("null", None),
        _cell("[]", []),
        _cell("[1.5]", DEAD),
        _cell("{}", DEAD),
        _cell('"x"', DEAD),
    ),
    "STRUCT(a BIGINT, b VARCHAR)": (
        _cell('{"a":1,"b":"x"}', {"a": 1, "b": "x"}),
        _cell("null", None),
        _cell('{"b":null}', {"a": None, "b": None}),
        _cell('{"a":"y"}', DEAD),
        _cell("5", DEAD),
    ),
    "MAP(VARCHAR, BIGINT)": (
        _cell('{"a":1,"b":null}', {"a": 1, "b": None}),
        _cell("null", None),
        _cell("{}", {}),
        _cell('{"a":"7","b":7.0}', {"a": 7, "b": 7}),
        _cell('{"":1,"a":2,"A":3,"_kafka_offset":4}', {"": 1, "a": 2, "A": 3, "_kafka_offset": 4}),
        _cell('{"\\u0000":1}', {"\0": 1}, DEAD),
        _cell('{"a":1,"a":2}', DEAD),
        _cell('{"a":1.5}', DEAD),
        _cell('{"a":{}}', DEAD),
        _cell("[]", DEAD),
        _cell("5", DEAD),
    ),
    "UUID": (
        _cell('"550e8400-e29b-41d4-a716-446655440000"', "550e8400-e29b-41d4-a716-446655440000"),
        _cell("null", None),
        _cell('"x"', DEAD),
        _cell("5", DEAD),
    ),
}

#: Payloads that are no JSON object that a row can be made of.
BROKEN: tuple[bytes, ...] = (
    b"{",
    b"",
    b"[]",
    b"5",
    b"null",
    b"\xff\xfe{}",
    b'{"id": "\xc3\x28"}',
    b'{"id": NaN}',
    b'{"id": 1, "id": 2}',
    b'{"": 1}',
    b'{"a\\u0000b": 1}',
    b'{"id": 1}{"id": 2}',
    b'{"id": 1}\x00',
    b"[" * 5000,
    b'{"id":' + b"[" * 3000 + b"]" * 3000 + b"}",
)
#: Of these, objects that a mapping reads as any other: their only member cannot be a column.
NAMELESS = (b'{"": 1}', b'{"a\\u0000b": 1}')

#: Kafka timestamps that producers write by mistake: microseconds or nanoseconds in place of milliseconds, before 1970, the ends.
FAR: tuple[int, ...] = (1_700_000_000_000_000, 253_402_300_800_000, 9_223_372_036_854_775, 9_223_372_036_854_776, 2**63 - 1)
_LAST_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z


def bytes_of(number: int) -> bytes:
    """Bytes of a record's row, by its number: none of them is a text."""
    return bytes([255, 0, number % 256, number // 256 % 256])


def is_far(timestamp: int) -> bool:
    """Whether a timestamp in ms lies beyond the year 9999."""
    return timestamp > _LAST_MS


#: Values of a list that has no items, by text; without text there is no such member.
EMPTY: tuple[Cell, ...] = (_cell("[]", None), _cell("null", None), _cell("", None), _cell(" [ ]", None))

_LATE = _micros(2026, 11, 26, 64_800)
#: Texts of a member by their style, and what its column holds: by the record's number.
STAMPS: Mapping[str, Callable[[int], tuple[str, Any]]] = {
    "zone": lambda number: (f"2026-11-26T19:00:{number % 60:02}.5+01:00", _LATE + number % 60 * 1_000_000 + 500_000),
    "local": lambda number: (f"2026-11-26 18:00:{number % 60:02}", _LATE + number % 60 * 1_000_000),
    "text": lambda number: (f"26/Nov/2026 {number}", f"26/Nov/2026 {number}"),
}

_NUL = {"VARCHAR": (r'"\u0000"',), "JSON": (r'{"\u0000":1}',), "MAP(VARCHAR, BIGINT)": (r'{"\u0000":1}',)}
_BEFORE_ALL = ('"290309-12-22 (BC) 00:00:00"',)
_INSTANTS = tuple(cell.text for cell in _FAR_INSTANTS)
#: Values that a database does not have, though DuckDB has them, by type. PostgreSQL 17, "Date/Time Types": from 4713 BC, and
#: "Character Types", "JSON Types": no NUL. MySQL 8.4, "The DATE, DATETIME, and TIMESTAMP Types": years to 9999, here from 1;
#: "Floating-Point Types": neither NaN nor infinity.
_REFUSED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "duckdb": {},
    "postgres": {"TIMESTAMP": _BEFORE_ALL, "TIMESTAMP WITH TIME ZONE": _BEFORE_ALL, **_NUL},
    "mysql": {
        "TIMESTAMP": _INSTANTS,
        "TIMESTAMP WITH TIME ZONE": _INSTANTS,
        "DATE": ('"10000-01-01"', '"infinity"', '"-infinity"', '"0044-03-15 (BC)"'),
        "DOUBLE": ("1e400", '"NaN"', '"-Infinity"', f"0.{_ZEROS}1e1000000000000000000003"),
    },
}


def is_refused(destination: str, kind: str, cell: Cell) -> bool | None:
    """Whether a destination does not have a value that DuckDB has; None: not written down for that destination."""
    known = _REFUSED.get(destination)
    return None if known is None else cell.text in known.get(kind, ())


def breaks_check(destination: str, kind: str, cell: Cell) -> bool:
    """Whether a CHECK of the server rejects a value: MariaDB's JSON_VALID is false beyond 32 levels."""
    return destination == "mysql" and kind == "JSON" and cell.text == _DEEP


#: Options of the format by the shape of records.
SHAPES = {"array": {"explode": "%"}, "documents": {"documents": "many"}, "explode": {"explode": "x"}}


def shaped(value: bytes, shape: str) -> bytes:
    """An object twice, unless a list in it holds the rows."""
    if shape == "array":
        return b"[" + value + b"," + value + b"]"
    return value + b"\n" + value if shape == "documents" else value


def broken(payload: bytes, shape: str) -> bytes:
    """A payload of `BROKEN` that is broken in that shape, too (see `Definition.shape`)."""
    gives_rows = {"documents": (b"", b'{"id": 1}{"id": 2}'), "explode": (b"[]",)}
    if shape and payload in (*NAMELESS, *gives_rows.get(shape, ())):
        payload = b"{"
    return b'[{"id": 1},' + payload + b"]" if shape == "array" else payload
