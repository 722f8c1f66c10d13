"""What differs from one SQL database to the next in statements that are else the same, and what a connection must do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Connection", "Dialect", "Result", "quote"]


def quote(*names: str) -> str:
    """Names as a qualified SQL identifier; always quoted, quotes inside doubled."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


class Result(Protocol):
    """What a statement has given."""

    def fetchone(self) -> Any:
        """The next row; None when there is none."""

    def fetchall(self) -> list[Any]:
        """All rows that are left."""


class Connection(Protocol):
    """A connection whose current schema is the one that holds the table and the ledger.

    Parameters are `$1`, `$2` and so on; a list is one parameter.
    """

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Result:
        """Run one statement."""


@dataclass(frozen=True)
class Dialect:
    """What differs.

    Attributes:
        schema: what stands before a table's name: `main.`, or nothing where the session has one schema only.
        types: types of the ledger's tables that are called otherwise.
        bigint: what a number is cast to that shall be an integer of 64 bits.
        database: the current database's name.
        instant: the instant that is `{0}` seconds after 1970 UTC.
        seconds: the seconds since 1970 UTC of the instant `{0}`.
        same: condition that `{0}` and `{1}` are equal, or both NULL.
        xor: the bits of `{0}`, a column, that differ from those of `{1}`, a parameter.
        lock: what makes a SELECT take the rows that it finds; empty where an UPDATE of rows that others have changed fails.
        share: clause of a SELECT that locks its rows against changes; empty where no other client can change them.
        place: what names the database in messages.
        drop_temporary: how a statement begins that drops a temporary table, and ends no transaction.
        create_view: how a statement begins that makes a view unless it is there.
        same_name: condition that two names of tables, `{0}` and `{1}`, are one table's.
        micros: microseconds since 1970 UTC of the instant `{0}`.
        hits: `SELECT id, at, n`: how many rows, n, of table `{table}` have the offset `at` that lies in the range `id` of
            `kpipe_ranges`, at or behind its start; `{topic}` is a condition that the row `t` and the range `b` are of one
            topic, or nothing.
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

    def name(self, table: str) -> str:
        """A table's name as SQL."""
        return self.schema + quote(table)

    def column(self, name: str, kind: str, key: bool) -> str:
        """The type of a column of the ledger's tables. `key`: it is of the primary key."""
        return self.types.get(kind, kind)

    def ending(self) -> str:
        """What stands behind the columns where a table of the ledger's is made."""
        return ""

    def rows(self, columns: Sequence[tuple[str, str]], first: int) -> str:
        """`SELECT` of rows with these names and types, which are parameters from `$<first>` on: those that `given` makes.

        Parameters are numbered in every statement of several clauses: `?` counts in another order in DuckDB 1.5 than in 2.0.
        """
        parts = [f"unnest(${at}::{kind}[]) AS {quote(name)}" for at, (name, kind) in enumerate(columns, start=first)]
        return f"SELECT {', '.join(parts)}"

    def given(self, rows: Sequence[Sequence[Any]], width: int) -> list[Any]:
        """The parameters of `rows`: here a list for each column."""
        return [[row[at] for row in rows] for at in range(width)]

    def update(self, table: str, sets: Mapping[str, str], source: str, where: str) -> str:
        """The statement that changes the rows `l` of a table by those of a relation `c`. Both stand in `where`."""
        assigned = ", ".join(f"{quote(name)} = {value}" for name, value in sets.items())
        return f"UPDATE {table} AS l SET {assigned} FROM ({source}) AS c WHERE {where}"  # noqa: S608

    def delete(self, table: str, source: str, where: str) -> str:
        """The statement that deletes the rows `l` of a table that meet those of a relation `c`."""
        return f"DELETE FROM {table} AS l USING ({source}) AS c WHERE {where}"  # noqa: S608

    def change(self, connection: Connection, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Run an UPDATE or DELETE; how many rows it has found."""
        return len(connection.execute(f"{statement} RETURNING 1", parameters).fetchall())

    def insert(self, connection: Connection, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows into some columns of a table."""
        named = list(columns.items())
        sql = f"INSERT INTO {table} ({', '.join(map(quote, columns))}) {self.rows(named, 1)}"
        connection.execute(sql, self.given(rows, len(named)))
