# ruff: noqa: E501 - values, one list a line
"""The records over which expressions are compared with a server: every column has the values that are hard for its type.

A row holds the values of one place of each list; lists of other lengths meet in more pairs. `t2`, `i2` ... are the same values,
shifted, as second arguments.
"""

from __future__ import annotations

from itertools import islice

__all__ = ["COLUMNS", "DUCKDB", "MARIADB", "ROWS", "TYPES"]

_TEXTS = [
    "abc", "", None, "0", "1", "-1", "12abc", " 42 ", "1.5", "-2.5e1", "1e400", "abc,def,,ghi", "Grüße aus Köln", "日本語", "ABC", "a%b_c",
    "a.b", "x\\y", "it's", "2024-02-29", "2024-02-29 13:14:15.678901", "2023-02-30", "20240131", "0000-00-00", "13:14:15",
    "-5", "9223372036854775808", "000120", "true", " leading and trailing ", "\ttab\n", "👍 ok", "1,234.50", "z",
    '{"a": 1}', "+7", ".5", "5.", "0x1F",
]  # fmt: skip
_INTEGERS = [0, 1, -1, None, 2, 7, -7, 10, 12, 100, 255, 256, -300, 1000000, 1795219200, 2147483647, -2147483648, 4294967296,
             9007199254740993, 9223372036854775807, -9223372036854775808, 13, 64, 3]  # fmt: skip
_DECIMALS = ["0.000", "1.000", "-1.000", None, "1.500", "2.500", "-2.500", "0.001", "-0.005", "12345.678", "99999999.999", "10.005", "3.142",
             "1000.000", "-7.250"]  # fmt: skip
_DOUBLES = [0.0, 1.0, -1.0, None, 0.1, 2.5, -2.5, 3.5, 1e15, 1e16, 123456.789, 1e-5, -1e-10, 1e100, 0.5, 1e20, 7.0]
_DATES = ["2024-02-29", "1970-01-01", None, "2023-12-31", "2024-01-01", "1999-11-05", "9999-12-31", "2026-11-22", "2000-02-29", "1000-01-01",
          "2021-01-03", "2020-12-28"]  # fmt: skip
_MOMENTS = ["2024-02-29 13:14:15.678901", "1970-01-01 00:00:00", None, "2023-12-31 23:59:59.999999", "2026-11-22 00:00:01", "1999-11-05 12:00:00",
            "2000-01-31 23:30:00.5", "9999-12-31 23:59:59", "1969-12-31 23:59:59", "2038-01-19 03:14:08", "2021-03-28 01:59:59.123"]  # fmt: skip
_TIMES = ["00:00:00", "13:14:15", None, "23:59:59.999999", "01:02:03.5", "12:00:00", "00:00:01"]
_BOOLEANS = [True, False, None]
_JSON = ['{"a": 1, "b": {"c": [10, "x\\"y", null, 2.5]}, "s": "text", "z": null}', "[1, 2, 3]", None, "{}", "[]", '"plain"', "5", "true", "null",
         '{"a": {"b": {"c": 1}}, "é": "ü", "k.q": 7}', '[{"a": 1}, {"a": "2"}, [3]]', '{"a": "1", "big": 9007199254740993, "n": -1.5}']  # fmt: skip

_BYTES = [b"\xff\x01", b"abc", None, b"", b"12\xff", "日本".encode(), b" 7", b"heartbeat 1", b"\xff", b"a%_\\"]

#: Name to the values, in order; a list shorter than the longest begins again.
COLUMNS: dict[str, list[object]] = {
    "t": [*_TEXTS], "t2": [*_TEXTS[5:], *_TEXTS[:5]], "i": [*_INTEGERS], "i2": [*_INTEGERS[3:], *_INTEGERS[:3]], "n": [0, 1, 2, 3, -1, -2, 5, None, 10],
    "d": [*_DECIMALS], "d2": [*_DECIMALS[4:], *_DECIMALS[:4]], "f": [*_DOUBLES], "f2": [*_DOUBLES[5:], *_DOUBLES[:5]],
    "b": [*_BOOLEANS], "dt": [*_DATES], "dt2": [*_DATES[2:], *_DATES[:2]], "at": [*_MOMENTS], "at2": [*_MOMENTS[3:], *_MOMENTS[:3]], "tm": [*_TIMES],
    "j": [*_JSON], "y": [*_BYTES],
}  # fmt: skip
TYPES = {"t": "VARCHAR", "i": "BIGINT", "n": "BIGINT", "d": "DECIMAL(12,3)", "f": "DOUBLE", "b": "BOOLEAN", "dt": "DATE", "at": "TIMESTAMP",
         "tm": "TIME", "j": "JSON", "y": "BLOB"}  # fmt: skip
_MARIA = {"VARCHAR": "VARCHAR(200)", "TIMESTAMP": "DATETIME(6)", "TIME": "TIME(6)", "JSON": "LONGTEXT", "BLOB": "VARBINARY(200)"}


def _cycled(values: list[object], count: int) -> list[object]:
    return list(islice((value for _ in range(count) for value in values), count))


_COUNT = max(map(len, COLUMNS.values()))
ROWS = list(zip(*(_cycled(values, _COUNT) for values in COLUMNS.values()), strict=True))
DUCKDB = ", ".join(f'"{name}" {TYPES[name.rstrip("2")]}' for name in COLUMNS)
MARIADB = ", ".join(f"{name} {_MARIA.get(TYPES[name.rstrip('2')], TYPES[name.rstrip('2')])}" for name in COLUMNS)
