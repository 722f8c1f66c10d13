"""Define what a database provides to `SqlDestination`: one engine for each database system."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kpipe.batch.batch import Commit
from kpipe.errors import NotAvailable
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.sql_dialect import Dialect
from resources.destinations.staged_file_check import Proven, Writes

__all__ = ["Engine", "ErrorClass", "StagedTable", "TargetTable", "Violation"]

#: Topic, partition, offset and reason of a staged row that a constraint rejects; topic and offset are None where it has none.
Violation = tuple[str | None, int, int | None, str]


@dataclass(frozen=True)
class TargetTable:
    """A table that a pipeline loads.

    Attributes:
        name: of the table.
        rule: how rows are merged by their key; None: rows are appended.
    """

    name: str
    rule: KeyRule | None = None


@dataclass(frozen=True)
class StagedTable:
    """The writes of a commit to one table.

    Attributes:
        table: the table.
        commit: the table's part of the commit.
        files: staged files of rows and of deletes, verified.
    """

    table: TargetTable
    commit: Commit
    files: Writes

    @property
    def all_files(self) -> tuple[Proven, ...]:
        """Return files of rows, then files of deletes."""
        return (*self.files.rows, *self.files.deletes)

    @property
    def is_written(self) -> bool:
        """Return whether the commit writes rows or deletes, or creates the table for its columns."""
        return bool(self.commit.only.columns or self.all_files)


@dataclass(frozen=True)
class ErrorClass:
    """The meaning of an error of the database client.

    Attributes:
        conflict: another transaction caused it; the attempt can be repeated.
        refused: the table rejects the columns or the rows.
        damage: the ledger's tables are missing or changed.
        busy: a hint, if the database was not available in time.
        taken: the key is a duplicate.
        rights: rejected because the account lacks rights, whatever the rows are.
        hint: what an operator can do; empty: run it again.
    """

    conflict: bool = False
    refused: bool = False
    damage: bool = False
    busy: str = ""
    taken: bool = False
    rights: bool = False
    hint: str = ""


class Engine(Protocol):
    """Connect to a database, and run the steps of a commit that differ between database systems.

    Subclass it. `hurry`, `define`, `check_deferred`, `violations`, `headers` and the methods that `is_keyed` names are optional.
    Connections come from `reading` and `writing`. Every method may raise the errors of the client: `SqlDestination` converts them
    by `classify`.
    """

    @property
    @abstractmethod
    def dialect(self) -> Dialect:
        """Return the SQL of this database. It may depend on the server's version: read it after a connection is open."""

    @property
    @abstractmethod
    def errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions of the database client."""

    @property
    @abstractmethod
    def recovery_hint(self) -> str:
        """Return the hint for an operator when the ledger's tables are damaged."""

    @property
    @abstractmethod
    def staging(self) -> tuple[Path, ...]:
        """Return the folders of staged files. Nothing outside of them is read."""

    @property
    def is_keyed(self) -> bool:
        """Return whether rows can be merged by a key: `primary_key`, `merge` and `insert_duplicates` are implemented."""
        return False

    # -- what was read before

    @property
    def remembers(self) -> bool:
        """Return whether `remember` and `recall` are implemented."""
        return False

    def remember(self, what: Hashable, value: Any) -> None:
        """Keep a value that was read over the open connection of `reading`, for `recall`."""
        return

    def recall(self, what: Hashable) -> Any:
        """Return the value that was kept under this name if the database has not changed since, else None."""
        return None

    # -- connections

    @abstractmethod
    def describe(self) -> str:
        """Return system and address, without secrets."""

    def hurry(self, seconds: float) -> None:
        """Limit the wait for the server to these seconds, over all connections; see `ServerTimeout`."""
        return

    @abstractmethod
    def exists(self) -> bool:
        """Return whether there is a database to connect to."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Any]:
        """Open a connection for reading."""

    def reading_fresh(self) -> AbstractContextManager[Any]:
        """Open a connection for reading that nothing else has used, as a read-back needs it: a kept one may lead to a server
        that is not the primary any more.
        """
        return self.reading()

    @abstractmethod
    def writing(self, keyed: bool, row_bytes: int = 0) -> AbstractContextManager[Any]:
        """Open a connection. Closing it rolls back what is not committed.

        Args:
            keyed: whether the transaction merges rows by a key. If not, it sees commits of others that end during it.
            row_bytes: mean size of the rows that will be inserted; 0: unknown, or small.
        """

    def batch_bytes(self, record_bytes: float) -> int | None:
        """Return the most bytes of a batch whose records have this mean size; None, by default: no bound."""
        return None

    @abstractmethod
    def classify(self, error: Exception, step: str) -> ErrorClass:
        """Return the meaning of an error.

        Args:
            error: one of `errors`.
            step: the step of the transaction that raised it; empty outside of a commit.
        """

    # -- transactions

    def define(self, connection: Any, pipeline: str, commit: Commit, parts: Sequence[StagedTable], /) -> None:
        """Create and widen tables before the transaction, where DDL commits at once. By default do nothing."""
        return

    @abstractmethod
    def begin(self, connection: Any, pipeline: str, tables: Sequence[TargetTable], /) -> tuple[bool, list[bool]]:
        """Begin the transaction of a commit, and take its locks.

        Returns:
            Whether the ledger's tables exist, and which of `tables` do.
        """

    @abstractmethod
    def begin_snapshot(self, connection: Any, /) -> None:
        """Begin a read-only transaction that sees one state of all tables."""

    @abstractmethod
    def commit(self, connection: Any, /) -> None:
        """Send COMMIT."""

    @abstractmethod
    def await_commits(self, connection: Any, pipeline: str, /) -> None:
        """Wait until no commit of the pipeline is in flight, including one whose answer was lost."""

    # -- catalog

    @abstractmethod
    def ledger_exists(self, connection: Any, /) -> bool:
        """Return whether the ledger's tables exist. Not inside of a transaction."""

    @abstractmethod
    def create_ledger(self, connection: Any, /) -> None:
        """Create the ledger's tables, inside the current transaction."""

    @abstractmethod
    def table_exists(self, connection: Any, table: str, /) -> bool:
        """Return whether a table of that name exists. Not inside of a transaction."""

    @abstractmethod
    def columns(self, connection: Any, table: str, /) -> Columns:
        """Return all columns of an existing table, coordinates included."""

    @abstractmethod
    def required(self, connection: Any, table: str, /) -> Collection[str]:
        """Return the payload columns of an existing table that are NOT NULL."""

    def primary_key(self, connection: Any, table: str, /) -> tuple[str, ...]:
        """Return the columns of the table's primary key; none if it has none or does not exist."""
        raise _without_keys(self)

    @abstractmethod
    def view_columns(self, connection: Any, view: str, /) -> list[tuple[str, bool]]:
        """Return the columns of a view, each with whether it is an instant."""

    # -- exchange of a rebuilt table

    @property
    def exchange_refusal(self) -> str:
        """Return why tables and ledger cannot be exchanged in one transaction; empty if they can."""
        return "it renames no tables in a transaction"

    def lost_by_exchange(self, connection: Any, live: str, rebuilt: str, /) -> Sequence[str]:
        """Return what belongs to the live table and not to the rebuilt one, and would be missing after the exchange."""
        return ()

    def grant_as(self, connection: Any, live: str, rebuilt: str, /) -> None:
        """Grant the privileges of the live table on the rebuilt one. By default there are none."""
        return

    # -- rows

    @abstractmethod
    def prepare(self, connection: Any, table: str, exists: bool, commit: Commit, files: Sequence[Proven], /) -> Columns:
        """Create or widen the table for the commit's columns, and return all of its columns afterwards."""

    @abstractmethod
    def insert(self, connection: Any, table: str, commit: Commit, files: Sequence[Proven], known: Columns, /) -> None:
        """Insert the staged rows, and count them."""

    def merge(self, connection: Any, batch: KeyedBatch, /) -> tuple[Commit, dict[Part, Holding]]:
        """Merge the writes of a batch by the key.

        Returns:
            The commit with the outcome of its writes, and the change of the table's rows by partition.
        """
        raise _without_keys(self)

    def check_deferred(self, connection: Any, /) -> None:
        """Check the constraints of the written rows that the database would check at COMMIT. By default there are none."""
        return

    @abstractmethod
    def insert_dead_letters(self, connection: Any, commit: Commit, files: Sequence[Proven], events: int, /) -> int:
        """Insert the staged dead letters, numbered after `events` error events, and return their number."""

    def insert_duplicates(self, connection: Any, commit: Commit, events: int, /) -> int:
        """Insert the duplicates that the last `merge` found as dead letters, numbered after `events`, and return their number."""
        raise _without_keys(self)

    def violations(
        self, connection: Any, table: str, commit: Commit, files: Sequence[Proven], known: Columns, /
    ) -> Sequence[Violation]:
        """Find the staged rows that a constraint of the existing table rejects. By default find none.

        The transaction is rolled back afterwards. `known` are all columns of the table.
        """
        return ()

    def headers(self, stored: Any) -> list[tuple[str, bytes | None]]:
        """Return the headers of a dead letter from the client's value of the column."""
        return [(item["name"], item["value"]) for item in stored]


def _without_keys(engine: Engine) -> NotAvailable:
    return NotAvailable(f"{engine.describe()}: rows cannot be merged by a key", "leave out into.key and into.on_conflict")
