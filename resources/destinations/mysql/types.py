"""Map kpipe's types to MariaDB and MySQL. A type without an equivalent is stored in another type, and recorded.

`json` here is a text with a CHECK, as MariaDB's JSON is. MySQL's own type JSON would change values: numbers become DOUBLE,
members are sorted, and repeated ones removed (MySQL 9.7 manual, "The JSON Data Type").
"""

from __future__ import annotations

import re

from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import ListOf, MapOf, Scalar, Struct, Type, parse_type

__all__ = ["defined", "kpipe_type", "noted", "sql_type"]

_SAME = {
    "BOOLEAN": "tinyint(1)", "TINYINT": "tinyint", "SMALLINT": "smallint", "INTEGER": "int", "BIGINT": "bigint",
    "UTINYINT": "tinyint unsigned", "USMALLINT": "smallint unsigned", "UINTEGER": "int unsigned", "UBIGINT": "bigint unsigned",
    "FLOAT": "float", "DOUBLE": "double", "VARCHAR": "longtext", "BLOB": "longblob", "DATE": "date", "TIME": "time(6)",
    "TIMESTAMP": "datetime(6)", "JSON": "json",
}  # fmt: skip
_NOTED = {"HUGEINT": "decimal(39,0)", "TIMESTAMP WITH TIME ZONE": "datetime(6)", "UUID": "char(36)"}
_BACK = {
    **{there: here for here, there in _SAME.items()},
    "text": "VARCHAR", "mediumtext": "VARCHAR", "tinytext": "VARCHAR", "blob": "BLOB", "mediumblob": "BLOB", "tinyblob": "BLOB",
    "timestamp(6)": "TIMESTAMP WITH TIME ZONE", "uuid": "UUID",
}  # fmt: skip


def sql_type(kind: Type) -> str:
    """Return the database's type for kpipe's type."""
    if isinstance(kind, (ListOf, MapOf, Struct)):
        return "json"
    decimal = re.fullmatch(r"DECIMAL(\(\d+,\d+\))", kind.name)
    return f"decimal{decimal[1]}" if decimal else _SAME.get(kind.name) or _NOTED[kind.name]


def defined(name: str, kind: Type, ending: str = "") -> str:
    """Return the definition of a column.

    Args:
        name: of the column, quoted.
        kind: its type.
        ending: what follows the type of a text.
    """
    found = sql_type(kind)
    if found == "json":
        return f"{name} longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin CHECK (json_valid({name}))"
    return f"{name} {found}{ending if kind == Scalar('VARCHAR') else ''}"


def noted(kind: Type) -> bool:
    """Return whether kpipe's type is ambiguous by the database's type, so that it must be recorded."""
    return isinstance(kind, (ListOf, MapOf, Struct)) or kind.name in _NOTED


def kpipe_type(found: str, note: str) -> Type | None:
    """Return kpipe's type for the database's type and the recorded type (or empty); None if kpipe cannot write it."""
    plain = _plain(found)
    if note:
        try:
            kind = parse_type(note)
        except InvalidPipeline:
            kind = None  # changed by hand
        if kind is not None and sql_type(kind) == plain:
            return kind
    if plain in _BACK:
        return Scalar(_BACK[plain])
    if re.fullmatch(r"varchar\(\d+\)", plain):
        return Scalar("VARCHAR")
    if re.fullmatch(r"varbinary\(\d+\)", plain):
        return Scalar("BLOB")
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", plain)
    if decimal and int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
        return Scalar(f"DECIMAL({decimal[1]},{decimal[2]})")
    return None


def _plain(found: str) -> str:
    """Remove the widths of integers that MariaDB shows. Only that of `tinyint(1)` has a meaning."""
    text = found.lower().strip()
    return text if text == "tinyint(1)" else re.sub(r"^((?:tiny|small|big)?int)\(\d+\)", r"\1", text)
