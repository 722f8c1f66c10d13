"""Compare texts and binary values with the length of their column, where the column's own type would cut or reject them."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kpipe.errors import SchemaConflict
from resources.destinations.mysql.session import Session
from resources.destinations.sql.merge.merge_staging import GONE
from resources.destinations.sql.sql_dialect import quote

__all__ = ["Limit", "check_keys", "limits"]

_TYPES = ("varchar", "varbinary", "tinytext", "text", "mediumtext", "tinyblob", "blob", "mediumblob")


@dataclass(frozen=True)
class Limit:
    """The length of a column.

    Attributes:
        type: of the column, as SQL.
        wide: the type without a limit that compares values as the column does, as SQL.
        characters: most characters.
        bytes: most bytes.
    """

    type: str
    wide: str
    characters: int
    bytes: int

    def fits(self, column: str) -> str:
        """Return the condition that a value of type `wide` fits into the column."""
        return f"char_length({column}) <= {self.characters:d} AND length({column}) <= {self.bytes:d}"


def limits(session: Session, table: str) -> dict[str, Limit]:
    """Return the limit of each column that has one."""
    types = ", ".join(f"'{name}'" for name in _TYPES)
    rows = session.execute(
        "SELECT column_name, column_type, character_set_name, collation_name, character_maximum_length, character_octet_length"
        f" FROM information_schema.columns WHERE table_schema = database() AND table_name = $1 AND data_type IN ({types})",
        [table],
    ).fetchall()
    return {
        name: Limit(found, f"longtext CHARACTER SET {charset} COLLATE {collation}" if charset else "longblob", most, size)
        for name, found, charset, collation, most, size in rows
    }


def check_keys(session: Session, writes: str, table: str, most: Mapping[str, Limit]) -> None:
    """Check the keys of rows, and replace those of deletes that no row of the table can have by NULL, which matches no row.

    Args:
        session: inside a transaction.
        writes: the relation of writes with keys of type `Limit.wide`, as SQL.
        table: name of the table, for the message.
        most: of `limits`, for key columns.

    Raises:
        SchemaConflict: the key of a row is too long; the message names the column and the first record.
    """
    for name, limit in most.items():
        key = quote(name)
        row = session.execute(
            f"SELECT _kafka_partition, _kafka_offset, char_length({key}) FROM {writes}"
            f" WHERE NOT {GONE} AND NOT ({limit.fits(key)}) ORDER BY 1, 2 LIMIT 1"
        ).fetchone()
        if row is not None:
            raise SchemaConflict(
                f"table {table}, column {name!r}: the record at partition {row[0]}, offset {row[1]} has {row[2]} characters,"
                f" which {limit.type} cannot store; nothing was written",
                "give the column a longer type",
            )
        # Blanks at the end do not count in some collations. A lookup in an index would cut a longer key.
        start = f"left({key}, {limit.characters:d})"
        session.execute(
            f"UPDATE {writes} SET {key} = CASE WHEN {start} = {key} THEN {start} END"
            f" WHERE {GONE} AND char_length({key}) > {limit.characters:d}"
        )
