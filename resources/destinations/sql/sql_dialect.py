"""Define the SQL that differs between databases, and the protocol of a connection. All other SQL is shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Connection", "Dialect", "Result", "quote"]


def quote(*names: str) -> str:
    """Return names as a qualified SQL identifier; always quoted, quotes inside doubled."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


class Result(Protocol):
    """The result of a statement."""

    @property
    def description(self) -> Any:
        """The columns, as tuples that begin with the name (PEP 249)."""

    def fetchone(self) -> Any:
        """Return the next row, or None at the end."""

    def fetchall(self) -> list[Any]:
        """Return all remaining rows."""


class Connection(Protocol):
    """A connection whose current schema contains the table and the ledger.

    Parameters are `$1`, `$2` and so on; a list is one parameter.
    """

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Result:
        """Run one statement."""


@dataclass(frozen=True)
class Dialect:
    """The SQL that differs between databases.

    Attributes:
        schema: prefix of a table's name: `main.`, or empty if the session has one schema only.
        types: types of the ledger's tables that have another name in this database.
        bigint: type of a CAST to an integer of 64 bits.
        database: the current database's name.
        instant: the instant that is `{0}` seconds after 1970 UTC.
        seconds: the seconds since 1970 UTC of the instant `{0}`.
        same: condition that `{0}` and `{1}` are equal, or both NULL.
        xor: the bits of `{0}`, a column, that differ from those of `{1}`, a parameter.
        lock: clause of a SELECT that locks its rows; empty if an UPDATE of rows that others have changed fails.
        share: clause of a SELECT that locks its rows against changes; empty if no other client can change them.
        place: expression of the database's name in messages.
        drop_temporary: start of a statement that drops a temporary table without ending the transaction.
        create_view: start of a statement that creates a view if it does not exist.
        key_text: a text column `{0}` of a key, with the collation by which its values are compared.
        same_name: condition that two table names, `{0}` and `{1}`, mean the same table.
        micros: microseconds since 1970 UTC of the instant `{0}`.
        hits: `SELECT id, at, n`: table `{table}` has n rows with the offset `at`, which is in the range `id` of `kpipe_ranges`.
            `{topic}` is a condition that the row `t` and the range `b` are of one topic, or empty.
        keys: whether tables have primary keys.
        sums: whether `hits` is `SELECT id, n, again, summed` instead: n rows, rows that repeat an offset (where `cover` batches
            have read the range: not 0 if an offset has more rows than that), the sum of the offsets.
    """

    schema: str
    create_view: str
    same_name: str
    micros: str
    hits: str
    types: Mapping[str, str] = field(default_factory=dict)
    bigint: str = "BIGINT"
    database: str = "current_database()"
    instant: str = "to_timestamp({0})"
    seconds: str = "extract(epoch FROM {0})::DOUBLE PRECISION"
    same: str = "{0} IS NOT DISTINCT FROM {1}"
    xor: str = "({0} | {1}::BIGINT) - ({0} & {1}::BIGINT)"
    lock: str = ""
    share: str = ""
    place: str = "current_database()"
    drop_temporary: str = "DROP TABLE"
    key_text: str = "{0}"
    sums: bool = False
    keys: bool = True

    def name(self, table: str) -> str:
        """Return a table's name as SQL."""
        return self.schema + quote(table)

    def fold(self, table: str) -> str:
        """Return the same text for all names that mean the same table; see `same_name`."""
        return table.lower() if "lower(" in self.same_name else table

    def key_part(self, column: str, text: bool) -> str:
        """Return a key column, as SQL, for a comparison; `text`: whether it is a text. See `key_text`."""
        return self.key_text.format(column) if text else column

    def column(self, name: str, kind: str, key: bool) -> str:
        """Return the type of a column of the ledger's tables. `key`: whether it is part of the primary key."""
        return self.types.get(kind, kind)

    def ending(self) -> str:
        """Return the end of a CREATE TABLE statement, after the columns."""
        return ""

    def add_column(self, connection: Any, table: str, name: str, kind: str) -> None:
        """Add a column to one of the ledger's tables, as its last one, unless the table has it."""
        column = f"{quote(name)} {self.column(name, kind, False)}"
        connection.execute(f"ALTER TABLE {quote(table)} ADD COLUMN IF NOT EXISTS {column}")

    def rows(self, columns: Sequence[tuple[str, str]], first: int) -> str:
        """Return a `SELECT` of rows with these names and types. Its parameters begin with `$<first>`; `given` returns them.

        Parameters are numbered in every statement of several clauses: `?` counts in another order in DuckDB 1.5 than in 2.0.
        """
        parts = [f"unnest(${at}::{kind}[]) AS {quote(name)}" for at, (name, kind) in enumerate(columns, start=first)]
        return f"SELECT {', '.join(parts)}"

    def given(self, rows: Sequence[Sequence[Any]], width: int) -> list[Any]:
        """Return the parameters of `rows`: here a list for each column."""
        return [[row[at] for row in rows] for at in range(width)]

    def update(self, table: str, sets: Mapping[str, str], source: str, where: str) -> str:
        """Return the UPDATE of the rows `l` of a table with those of a relation `c`; `where` joins them."""
        assigned = ", ".join(f"{quote(name)} = {value}" for name, value in sets.items())
        return f"UPDATE {table} AS l SET {assigned} FROM ({source}) AS c WHERE {where}"  # noqa: S608

    def delete(self, table: str, source: str, where: str) -> str:
        """Return the DELETE of the rows `l` of a table that match rows of a relation `c`; `where` joins them."""
        return f"DELETE FROM {table} AS l USING ({source}) AS c WHERE {where}"  # noqa: S608

    def change(self, connection: Connection, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Run an UPDATE or DELETE, and return the number of rows that it found."""
        return len(connection.execute(f"{statement} RETURNING 1", parameters).fetchall())

    def insert(self, connection: Connection, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows into some columns of a table."""
        named = list(columns.items())
        sql = f"INSERT INTO {table} ({', '.join(map(quote, columns))}) {self.rows(named, 1)}"
        connection.execute(sql, self.given(rows, len(named)))
