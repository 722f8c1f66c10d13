"""Define the arguments of a merge: the writes of a batch to a table with a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kpipe.batch.batch import Commit
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from resources.destinations.sql.ledger.row_balance import TOPIC
from resources.destinations.sql.sql_dialect import quote
from resources.destinations.staged_file_check import Writes

__all__ = ["KeyedBatch", "same_key"]


@dataclass(frozen=True)
class KeyedBatch:
    """The writes of a batch to one table with a key.

    Attributes:
        table: name of the table.
        rule: how a write changes the row of its key.
        key: key columns, as the table spells them.
        known: all columns of the table.
        commit: the table's part of the commit.
        ledger: as it was before the commit.
        files: staged files of rows and of deletes.
        others: returns the other pipelines that have rows in the table.
    """

    table: str
    rule: KeyRule
    key: tuple[str, ...]
    known: Columns
    commit: Commit
    ledger: Ledger
    files: Writes
    others: Callable[[], Sequence[str]] = tuple

    @property
    def has_topics(self) -> bool:
        """Return whether the table's rows name their topic."""
        return TOPIC in self.known.names()


def same_key(key: Sequence[str]) -> str:
    """Return the condition that the write `w` and the table's row `t` have one key."""
    return " AND ".join(f"w.{quote(name)} = t.{quote(name)}" for name in key)
