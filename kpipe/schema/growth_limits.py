"""Limits on the columns and fields that records may add to a table, by type of destination."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kpipe.schema.columns import Scalar, Type

__all__ = ["Room", "room"]


@dataclass(frozen=True)
class Room:
    """Limits for one type of destination.

    Attributes:
        columns: number of columns of the table.
        names: number of columns, and of fields inside them.
        bytes: size of a row, counting the maximum size of each column in the row itself; None: no limit.
        destination: type of the destination (`into.type`), for its rules on names (kpipe/schema/column_names.py).
    """

    columns: int
    names: int = 4_000
    bytes: int | None = None
    destination: str = ""

    def size(self, kind: Type) -> int:
        """Return the maximum size of a column of the type in the row itself, in bytes."""
        if self.bytes is None:
            return 0
        fixed = _BYTES.get(kind.name) if isinstance(kind, Scalar) else None
        if isinstance(kind, Scalar) and kind.name.startswith("DECIMAL"):
            fixed = 20
        return _POINTER if fixed is None else fixed


# DuckDB, the lakes and the sinks set no limit; with 1,000 columns a batch of a few records takes about a second.
_ROOM = Room(1_000)
# PostgreSQL 17 manual, "PostgreSQL Limits" and "TOAST": a row must fit in 8,160 bytes of a page. A value of up to 24 bytes is
# never stored out of line, and a fixed-size one takes 16 with alignment. 330 x 24 bytes, plus 72 for header and NULL bits,
# plus 100 for coordinates.
_POSTGRES = Room(330)
# MySQL 8.4 manual, "Limits on Table Column Count and Row Size", and MariaDB, "InnoDB Limitations": 4,096 columns and 65,535
# bytes. InnoDB: 1,017 columns, and half a page of 16 kB for a row, in which each text takes up to 40 bytes.
_MYSQL = Room(900, bytes=7_600)
_POINTER = 41
_BYTES = {
    "BOOLEAN": 2, "TINYINT": 2, "UTINYINT": 2, "SMALLINT": 3, "USMALLINT": 3, "INTEGER": 5, "UINTEGER": 5, "BIGINT": 9,
    "UBIGINT": 9, "FLOAT": 5, "DOUBLE": 9, "DATE": 4, "TIME": 7, "TIMESTAMP": 9, "TIMESTAMP WITH TIME ZONE": 9, "HUGEINT": 20,
}  # fmt: skip


def room(destination: str) -> Room:
    """Return the limits of a type of destination (`into.type`)."""
    found = {"postgres": _POSTGRES, "mysql": _MYSQL, "singlestore": _MYSQL}.get(destination, _ROOM)
    return replace(found, destination=destination)
