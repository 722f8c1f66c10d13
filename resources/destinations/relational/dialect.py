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
        create_view: how a statement begins that makes a view unless it is there.
        same_name: condition that two names of tables, `{0}` and `{1}`, are one table's.
        micros: microseconds since 1970 UTC of the instant `{0}`.
        hits: `SELECT id, at, n`: how many rows, n, of table `{table}` have the offset `at` that lies in the range `id` of
            the ranges `b`, at or behind its start; `{topic}` is a condition that `t` and `b` are of one topic, or nothing.
    """

    schema: str
    create_view: str
    same_name: str
    micros: str
    hits: str
    types: Mapping[str, str] = field(default_factory=dict)

    def name(self, table: str) -> str:
        """A table's name as SQL."""
        return self.schema + quote(table)
