"""How many columns and fields records may add to a table, by the type of its destination."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kpipe.schema.columns import Scalar, Type

__all__ = ["Room", "room"]


@dataclass(frozen=True)
class Room:
    """How far records may widen a table of one type of destination.

    Attributes:
        columns: of the table.
        names: of columns and of fields inside of them.
        bytes: of a row, as far as columns take their part of it whatever they hold; None: no such bound.
        destination: its type (`into.type`), whose rules the names of columns keep (kpipe/schema/column_names.py).
    """

    columns: int
    names: int = 4_000
    bytes: int | None = None
    destination: str = ""

    def size(self, kind: Type) -> int:
        """Return the bytes that a column of the type takes of a row, at most."""
        if self.bytes is None:
            return 0
        fixed = _BYTES.get(kind.name) if isinstance(kind, Scalar) else None
        if isinstance(kind, Scalar) and kind.name.startswith("DECIMAL"):
            fixed = 20
        return _POINTER if fixed is None else fixed


# DuckDB, the lakes and the sinks have no limit of their own; with 1,000 columns a batch of a few records takes about a second.
_ROOM = Room(1_000)
# PostgreSQL 17 manual, "PostgreSQL Limits" and "TOAST": a row must fit a page, 8,160 bytes of it. A value of up to 24 bytes is
# never stored out of line, a fixed one takes 16 with what aligns it. 330 x 24 bytes, 72 of header and NULL bits, 100 of
# coordinates.
_POSTGRES = Room(330)
# MySQL 8.4 manual, "Limits on Table Column Count and Row Size", and MariaDB, "InnoDB Limitations": 4,096 columns and 65,535
# bytes, of InnoDB 1,017 columns, and half a page of 16 kB for a row, of which each text takes up to 40 bytes.
_MYSQL = Room(900, bytes=7_600)
_POINTER = 41
_BYTES = {
    "BOOLEAN": 2, "TINYINT": 2, "UTINYINT": 2, "SMALLINT": 3, "USMALLINT": 3, "INTEGER": 5, "UINTEGER": 5, "BIGINT": 9,
    "UBIGINT": 9, "FLOAT": 5, "DOUBLE": 9, "DATE": 4, "TIME": 7, "TIMESTAMP": 9, "TIMESTAMP WITH TIME ZONE": 9, "HUGEINT": 20,
}  # fmt: skip


def room(destination: str) -> Room:
    """Return the bounds of a type of destination (`into.type`)."""
    found = {"postgres": _POSTGRES, "mysql": _MYSQL, "singlestore": _MYSQL}.get(destination, _ROOM)
    return replace(found, destination=destination)
