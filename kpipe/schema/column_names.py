"""Rules of destinations for column names: invalid names, and names that are duplicates.

Sources: PostgreSQL 17 manual, "Identifiers and Key Words" and "System Columns"; MySQL 8.4 manual, "Schema Object Names" and
"InnoDB Limits"; the Iceberg table spec names fields by dotted names, and its libraries reject a schema with duplicates.
"""

from __future__ import annotations

from collections.abc import Iterator

from kpipe.schema.columns import ListOf, MapOf, Struct, Type

__all__ = ["RENAME", "Path", "claims", "clashes", "fault", "rules"]

#: Hint in the reason of a dead letter.
RENAME = "rename it with format.mapping, `select` or a program, or set schema: ignore"
Path = tuple[str, ...]

_POSTGRES_BYTES, _MYSQL_CHARACTERS = 63, 64
_POSTGRES_SYSTEM = frozenset(("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"))
_INNODB = frozenset(("db_row_id", "db_trx_id", "db_roll_ptr", "fts_doc_id"))
# Of the tables in which DuckLake keeps few rows; of upper and lower case (DuckLake 1.0: "reserved by DuckLake").
_DUCKLAKE = frozenset(("row_id", "begin_snapshot", "end_snapshot", "_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"))
_MYSQL_TYPES = ("mysql", "singlestore")
_BY_ROW_NUMBER = ("duckdb", "ducklake")  # a merge by key finds rows by DuckDB's `rowid`, which a column of that name hides
_KEYED = " with a key"
_SPACES = " \t\n\v\f\r"


def rules(destination: str, keyed: bool) -> str:
    """Return the name of the rules for the columns of a table, which the functions here take as `destination`.

    Args:
        destination: `into.type`.
        keyed: whether the table's rows have a key.
    """
    return destination + _KEYED if keyed and destination in _BY_ROW_NUMBER else destination


def fault(destination: str, name: str) -> str:
    """Return the rule that a column's name breaks in a destination (`rules`); empty if it breaks no rule."""
    if destination.endswith(_KEYED) and name.lower() == "rowid":
        return "it is the name of DuckDB's row number, by which a merge finds rows"
    if destination.removesuffix(_KEYED) == "ducklake" and name.lower() in _DUCKLAKE:
        return "it is the name of a column that is reserved by DuckLake"
    if destination == "postgres":
        if len(name.encode()) > _POSTGRES_BYTES:
            return f"a column's name has {_POSTGRES_BYTES} bytes of UTF-8 at most in PostgreSQL"
        if name in _POSTGRES_SYSTEM:
            return "it is the name of a system column in PostgreSQL"
    elif destination in _MYSQL_TYPES:
        if len(name) > _MYSQL_CHARACTERS:
            return f"a column's name has {_MYSQL_CHARACTERS} characters at most in MySQL"
        if name.endswith(tuple(_SPACES)):
            return "a column's name does not end with a space in MySQL"
        if any(ord(char) > 0xFFFF for char in name):
            return "a column's name has no character beyond U+FFFF in MySQL"
        if name.lower() in _INNODB:
            return "it is the name of a column of InnoDB's own in MySQL"
    return ""


def claims(destination: str, path: Path, kind: Type) -> Iterator[str]:
    """Yield the names that a column or field claims in addition to its own: no other column or field may claim them.

    Args:
        destination: type of the destination (`into.type`).
        path: path of the column or field, in lower case; items of a list are `element`.
        kind: its type.
    """
    if destination in _MYSQL_TYPES:
        if len(path) == 1:
            yield path[0].replace("i\u0307", "i")  # MySQL treats U+0130, in lower case, as an i
    elif destination == "iceberg":
        yield ".".join(path)
        if isinstance(kind, Struct):
            for name, item in kind.fields:
                yield from claims(destination, (*path, name.lower()), item)
        elif isinstance(kind, ListOf):
            yield from claims(destination, (*path, "element"), kind.item)
        elif isinstance(kind, MapOf):
            yield ".".join((*path, "key"))
            yield from claims(destination, (*path, "value"), kind.item)


def clashes(destination: str) -> str:
    """Return the reason why a column whose name is claimed already cannot be added."""
    if destination == "iceberg":
        return "the table has another column or field with that dotted name, and Iceberg takes the two for one"
    return "the table has a column whose name differs by the dot of an i only, and MySQL takes the two for one"
