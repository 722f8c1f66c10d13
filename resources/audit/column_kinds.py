"""Kinds of columns by their types, and the canonical texts of a column's values."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from kpipe.audit.canonical import BOOLEAN, DATE, DOCUMENT, DOUBLE, FLOAT, NUMBER, TEXT, TIME, TIMESTAMP, UUID, of_row
from resources.audit.normalize import plain

__all__ = ["POSTGRES", "arrow_kind", "duckdb_kind", "mysql_kind", "row_texts"]

#: Kinds by PostgreSQL's object ids of types (src/include/catalog/pg_type.dat).
POSTGRES: Mapping[int, str] = {
    16: BOOLEAN, 20: NUMBER, 21: NUMBER, 23: NUMBER, 1700: NUMBER, 701: DOUBLE, 700: FLOAT, 18: TEXT, 19: TEXT, 25: TEXT,
    1042: TEXT, 1043: TEXT, 2950: UUID, 1082: DATE, 1083: TIME, 1114: TIMESTAMP, 1184: TIMESTAMP, 114: DOCUMENT, 3802: DOCUMENT,
}  # fmt: skip
_DUCKDB = {"HUGEINT": NUMBER, "UHUGEINT": NUMBER, "BIGNUM": NUMBER, "UUID": UUID, "JSON": DOCUMENT}
_MYSQL = {
    "tinyint": NUMBER, "smallint": NUMBER, "mediumint": NUMBER, "int": NUMBER, "bigint": NUMBER, "decimal": NUMBER,
    "year": NUMBER, "float": FLOAT, "double": DOUBLE, "datetime": TIMESTAMP, "timestamp": TIMESTAMP, "date": DATE, "time": TIME,
    "char": TEXT, "varchar": TEXT, "tinytext": TEXT, "text": TEXT, "mediumtext": TEXT, "longtext": TEXT, "enum": TEXT,
    "set": TEXT, "json": DOCUMENT, "uuid": UUID,
}  # fmt: skip


def duckdb_kind(name: str) -> str:
    """Return the kind of a type whose Arrow type does not have all its values; empty: use `arrow_kind`."""
    return _DUCKDB.get(name, "")


def mysql_kind(name: str) -> str:
    """Return the kind of a type as SHOW COLUMNS prints it."""
    match = re.match(r"[a-z]+", name.lower())
    return _MYSQL.get(match[0], "") if match is not None else ""


def arrow_kind(kind: pa.DataType) -> str:
    """Return the kind of an Arrow type; empty: its values cannot be compared with those of a JSON document."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    for found, test in (
        (NUMBER, pa.types.is_integer), (NUMBER, pa.types.is_decimal), (DOUBLE, pa.types.is_float64),
        (FLOAT, pa.types.is_floating), (BOOLEAN, pa.types.is_boolean), (TIMESTAMP, pa.types.is_timestamp),
        (DATE, pa.types.is_date), (TIME, pa.types.is_time), (TEXT, _is_text),
    ):  # fmt: skip
        if test(kind):
            return found
    return DOCUMENT if pa.types.is_nested(kind) and _is_json(kind) else ""


def _is_text(kind: pa.DataType) -> bool:
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return bool(texts or pa.types.is_null(kind))


def _is_json(kind: pa.DataType) -> bool:
    """Return whether values have one form in JSON: numbers, texts, booleans, and structs and lists of them."""
    if pa.types.is_struct(kind):
        return all(_is_json(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_json(kind.value_type)
    exact = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_float64(kind) or pa.types.is_boolean(kind)
    return bool(exact or _is_text(kind))


def row_texts(values: pa.Array, kind: str) -> list[str | None]:
    """Return the canonical texts of a column of this kind; None: NULL."""
    values = plain(values)
    numbers = _integers(values, kind)
    if numbers is not None:
        found: list[str | None] = pc.cast(numbers, pa.string()).to_pylist()
        return found
    return list(map(of_row(kind), values.to_pylist()))


def _integers(values: pa.Array, kind: str) -> pa.Array | None:
    """Return the values as integers if their canonical texts are those of integers; None: they are not."""
    if pa.types.is_integer(values.type) and kind == NUMBER:
        return values
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(pa.int64())
    if pa.types.is_date(values.type):
        return values.cast(pa.date32()).cast(pa.int32())
    if pa.types.is_time(values.type):
        return values.cast(pa.time64("us"), safe=False).cast(pa.int64())
    return None
