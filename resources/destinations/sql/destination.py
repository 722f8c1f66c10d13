"""Load tables of an SQL database: one destination for all of them, given an engine."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

from kpipe.batch.batch import Batch, Commit, Committed
from kpipe.batch.dead_letter_replay import DeadLetter, Replay
from kpipe.errors import NotAvailable
from kpipe.interfaces import Destination, Publication
from kpipe.ledger.ledger import Ledger
from kpipe.ledger.totals import Totals
from kpipe.provenance.facts import Facts, Found, RowSources
from kpipe.rebuild.exchange import Coordinates, Exchange, TableNames
from kpipe.schema.columns import Columns
from kpipe.verification.clearing import Cleared
from kpipe.verification.evidence import Evidence
from kpipe.verification.verify import Entry, Recount, TableRecount
from resources.destinations.ledger_rows import clean
from resources.destinations.sql import clearing, dead_letter_retry, provenance
from resources.destinations.sql import exchange as exchanging
from resources.destinations.sql.batch_commit import COLUMNS, LEDGER, commit_batch, key_columns, remember_columns, remember_ledger
from resources.destinations.sql.column_matching import missing, unkeyed
from resources.destinations.sql.dead_letter_pages import PagedLetters
from resources.destinations.sql.engine import Engine, TargetTable
from resources.destinations.sql.ledger import history_tables, history_totals, ledger_table, multi_table, views
from resources.destinations.sql.ledger import recount as counting
from resources.destinations.sql.ledger.adopted import adopted_offsets
from resources.destinations.sql.ledger.publications import mark, waiting
from resources.destinations.sql.ledger.table_definitions import ERRORS, PIPELINES
from resources.destinations.sql.sql_dialect import Connection
from resources.destinations.sql.store import Store
from resources.destinations.sql.written_tables import WrittenTables

__all__ = ["SqlDestination"]

_E = TypeVar("_E", bound=Engine)


class SqlDestination(PagedLetters, WrittenTables, Generic[_E]):
    """One pipeline's tables in an SQL database. Each call opens a connection and closes it.

    It can be `Constrained`, `Keyed`, `MultiTable`, `ErrorLog`, `Replaying`, `Clearing`, `Exchanging`, `Traceable` and
    `Attributing`.

    Args:
        engine: of the database.
        pipeline: name of the pipeline.
        tables: that it loads, in the order of the definition.
        config: the pipeline's definition, for display, without secrets.

    Raises:
        NotAvailable: a table has a rule, and the engine merges no rows by a key.
    """

    def __init__(self, engine: _E, pipeline: str, tables: Sequence[TargetTable], config: Mapping[str, Any] | None = None) -> None:
        self.engine, self.pipeline = engine, pipeline
        self.store = Store(engine, pipeline, tuple(tables), dict(config or {}))
        if self.store.is_keyed and not engine.is_keyed:
            what = f"pipeline {pipeline}: this database does not support into.key and into.on_conflict"
            raise NotAvailable(what, "leave them out")

    def describe(self) -> str:
        """Return system, address and table, without secrets."""
        return self.store.describe()

    def hurry(self, seconds: float) -> None:
        """Limit the wait for the server to these seconds, over all connections; see `ServerTimeout`."""
        self.engine.hurry(seconds)

    # -- the table

    def batch_bytes(self, record_bytes: float) -> int | None:
        """See `Sized` in kpipe/ingest/batch_size.py."""
        return self.store.engine.batch_bytes(record_bytes)

    def columns(self) -> Columns | None:
        """Return the payload columns of the table; None if it does not exist.

        Raises:
            SchemaConflict: a column has a type that kpipe cannot write.
            LedgerMismatch: the table is missing although rows were written to it.
        """

        def read(connection: Connection) -> Columns | None:
            if self.engine.table_exists(connection, self.store.table):
                return remember_columns(self.engine, connection, self.store.table)
            self.check_missing(connection, self.store.table)
            return None

        known: Columns | None = self.engine.recall((COLUMNS, self.store.table))
        return self.store.read(read, None) if known is None else known

    def required(self) -> Collection[str]:
        """Return the payload columns that are NOT NULL; see `Constrained`."""

        def read(connection: Connection) -> Collection[str]:
            exists = self.engine.table_exists(connection, self.store.table)
            return self.engine.required(connection, self.store.table) if exists else ()

        nothing: Collection[str] = ()
        return self.store.read(read, nothing)

    def key(self) -> tuple[str, ...]:
        """Return the key columns; see `Keyed`."""
        table = self.store.tables[0]
        nothing: tuple[str, ...] = ()
        found = self.store.read(lambda connection: key_columns(self.engine, connection, table), nothing)
        if found or table.rule is None:
            return found
        if not table.rule.columns:
            raise unkeyed(table.name)
        return table.rule.columns

    def check_missing(self, connection: Connection, table: str) -> None:
        """Check that no rows were written to a table that does not exist.

        Raises:
            LedgerMismatch: the ledger records rows of it.
        """
        if not self.engine.ledger_exists(connection):
            return
        if rows := multi_table.written(connection, self.engine.dialect, self.pipeline, table, net=False):
            raise missing(self.pipeline, table, rows)

    # -- several tables

    @property
    def tables(self) -> Sequence[Destination]:
        """Return a destination for each table; see `MultiTable`."""
        return [SqlDestination(self.engine, self.pipeline, [table], self.store.config) for table in self.store.tables]

    def rows_left(self) -> Mapping[str, int]:
        """Return the number of rows of each table according to the ledger; see `MultiTable`."""

        def read(connection: Connection) -> dict[str, int]:
            names = [table.name for table in self.store.tables]
            return {name: multi_table.written(connection, self.engine.dialect, self.pipeline, name) for name in names}

        return self.store.read_ledger(read, dict[str, int]())

    def columns_of(self, tables: Sequence[str]) -> Sequence[Columns | None]:
        """Return the payload columns of tables by topic; see `TopicTables`."""
        known: dict[str, Columns | None] = {name: self.engine.recall((COLUMNS, name)) for name in tables}

        def read(connection: Connection) -> None:
            for name in (name for name in tables if known[name] is None):
                if self.engine.table_exists(connection, name):
                    known[name] = remember_columns(self.engine, connection, name)
                else:
                    self.check_missing(connection, name)

        if None in known.values():
            self.store.read(read, None)
        return list(known.values())

    # -- the ledger

    def ledger(self) -> tuple[str, Ledger]:
        """Return the registration id and the ledger."""
        nothing = "", Ledger(self.pipeline)
        known: tuple[str, Ledger] | None = self.engine.recall((LEDGER, self.pipeline))
        return (
            self.store.read_ledger(lambda connection: remember_ledger(self.store, connection), nothing)
            if known is None
            else known
        )

    def commit(self, commit: Commit) -> Committed:
        """Make everything in the commit visible at once, or nothing; see `Destination.commit`."""
        return commit_batch(self.store, commit)

    def history(self) -> Sequence[Entry]:
        """Return every committed range of the pipeline, in order of commit."""
        return self.store.read_ledger(lambda connection: counting.entries(connection, self.pipeline), [])

    def recount(self) -> Recount:
        """Count the tables and the dead letters in one read transaction."""
        return self.evidence().recount

    def evidence(self) -> Evidence:
        """Read ledger and history, and count the tables and the dead letters, in one read transaction.

        Also count the tables that were loaded before an edit of the definition: their rows are in the ledger.
        """

        def read(connection: Connection) -> Evidence:
            store = self._as_written(connection)
            former = multi_table.former(connection, self.engine.dialect, self.pipeline, [table.name for table in store.tables])
            tables = [*store.tables, *map(TargetTable, former)]
            exist = [self.engine.table_exists(connection, table.name) for table in tables]
            self.engine.begin_snapshot(connection)
            found = {table.name: count(connection, table, exists) for table, exists in zip(tables, exist, strict=True)}
            recount = Recount(found, counting.dead_letters(connection, self.pipeline), store.by_topic or store.by_field)
            return Evidence(*ledger_table.read(connection, self.pipeline), counting.entries(connection, self.pipeline), recount)

        def count(connection: Connection, table: TargetTable, exists: bool) -> TableRecount:
            columns = self.engine.columns(connection, table.name) if exists else None
            key = key_columns(self.engine, connection, table) if exists else ()
            dialect = self.engine.dialect
            foreign = adopted_offsets(connection, dialect, self.pipeline, table.name)
            more = list[str]()
            if self.store.by_field and columns is not None and not foreign:
                names, rule = (self.pipeline, table.name, self.store.table), table.rule
                more += counting.misplaced(connection, dialect, *names, columns, () if rule is None else rule.update)
            return counting.recount(connection, dialect, self.pipeline, table.name, columns, key, foreign, more)

        return self.store.read_ledger(read, Evidence("", Ledger(self.pipeline)))

    def _as_written(self, connection: Connection) -> Store:
        """Return the store with the tables that were written, if its name is a template."""
        if not (self.store.by_topic or self.store.by_field):
            return self.store
        return self.store.of_tables(multi_table.of_template(connection, self.engine.dialect, self.pipeline, self.store.table))

    def view(self, name: str, limit: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Return the rows of the view `kpipe_<name>` of this pipeline, newest first; times are aware, UTC."""

        def read(connection: Connection) -> Sequence[Mapping[str, Any]]:
            described = self.engine.view_columns(connection, f"kpipe_{name}")
            return views.rows(connection, self.engine.dialect, name, described, self.pipeline, limit)

        return self.store.read_ledger(read, [])

    def totals(self, seq: int) -> Totals:
        """Return the sums over the pipeline's history; see `Totaling`."""
        dialect = self.engine.dialect
        return self.store.read_ledger(lambda connection: history_totals.totals(connection, dialect, self.pipeline, seq), Totals())

    # -- state and errors

    def record_state(self, state: str, error: str = "", kind: str = "", batch: Batch | None = None, stderr: str = "") -> None:
        """Record the pipeline's state and, if there is an error, an error event. No decision depends on it."""

        def write(connection: Connection) -> None:
            connection.execute("BEGIN")
            connection.execute(
                f"UPDATE {PIPELINES.sql} SET state = $1, last_error = $2, updated = now() WHERE pipeline_name = $3",
                [state, clean(error) or None, self.pipeline],
            )
            if error:
                dialect, words = self.engine.dialect, clean(error)
                history_tables.error_event(connection, dialect, self.pipeline, words, kind, batch, clean(stderr))
            connection.execute("COMMIT")

        if self.store.is_registered():
            self.store.write(write)

    def clear_errors(self) -> int:
        """Remove the pipeline's error events, and its last error; see `ErrorLog`."""

        def write(connection: Connection) -> int:
            connection.execute("BEGIN")
            statement = f"DELETE FROM {ERRORS.sql} WHERE pipeline_name = $1 AND NOT dead_letter"
            removed = self.engine.dialect.change(connection, statement, [self.pipeline])
            connection.execute(f"UPDATE {PIPELINES.sql} SET last_error = NULL WHERE pipeline_name = $1", [self.pipeline])
            connection.execute("COMMIT")
            return removed

        return self.store.write(write) if self.ledger()[0] else 0

    # -- publications

    def unpublished(self, limit: int = 1000) -> Sequence[Publication]:
        """Return the metadata of commits that have not been published, oldest first."""
        return self.store.read_ledger(lambda connection: waiting(connection, self.pipeline, limit), [])

    def published(self, publications: Sequence[Publication]) -> Sequence[str]:
        """Mark batches as published, and return those that this call marked."""
        if not publications or not self.store.is_registered():
            return []

        def write(connection: Connection) -> list[str]:
            connection.execute("BEGIN")
            marked = mark(connection, self.engine.dialect, self.pipeline, [item.batch for item in publications])
            connection.execute("COMMIT")
            return marked

        return self.store.write(write)

    # -- provenance

    def trace(self, topic: str, partition: int, offset: int) -> Facts:
        """Return what is recorded about an offset; see `Traceable`."""
        return provenance.trace(self.store, topic, partition, offset)

    def rows_at(self, table: str, where: Mapping[str, str], limit: int) -> Sequence[Found]:
        """Return the coordinates of rows; see `Traceable`."""
        return provenance.rows_at(self.store, table, where, limit)

    def row_sources(self, table: str) -> RowSources:
        """Return how the rows of a table name the source of their records; see `Attributing`."""
        return provenance.row_sources(self.store, table)

    # -- retry of dead letters, clearing, and exchange

    def letters(self, after: int, limit: int) -> Sequence[DeadLetter]:
        """Return a page of dead letters; see `Replaying`."""
        return dead_letter_retry.letters(self.store, after, limit)

    def replay(self, replay: Replay) -> Committed:
        """Commit the outcome of retried dead letters; see `Replaying`."""
        return dead_letter_retry.replay(self.store, replay)

    def check_clear(self, tables: Sequence[str], only: Collection[str]) -> None:
        """Check that the tables can be cleared; see `Clearing`."""
        clearing.check_clear(self.store, tables, only)

    def clear(self, tables: Sequence[str], who: str, only: Collection[str] | None = None) -> Cleared:
        """Delete all rows of tables, and rewind the ledgers of their pipelines; see `Clearing`."""
        return clearing.clear(self.store, tables, who, only)

    def check_exchange(self) -> None:
        """Check that tables and ledgers can be exchanged; see `Exchanging`."""
        exchanging.check_able(self.store)

    def check_rebuild(self, pipelines: TableNames, tables: Sequence[TableNames]) -> None:
        """Check that a rebuild can begin; see `Exchanging`."""
        exchanging.check_rebuild(self.store, pipelines, tables)

    def exchange(self, work: Exchange) -> int:
        """Exchange the tables with rebuilt ones; see `Exchanging`."""
        return exchanging.exchange(self.store, work)

    def exchanged(self, id: str) -> bool:
        """Return whether an exchange has been committed; see `Exchanging`."""
        return exchanging.exchanged(self.store, id)

    def discard(self, pipeline: str, tables: Sequence[str]) -> None:
        """Drop tables of a pipeline with its ledger; see `Exchanging`."""
        exchanging.discard(self.store, pipeline, tables)

    def differences(self, names: TableNames, limit: int) -> Coordinates:
        """Return coordinates that only one of two tables has; see `Exchanging`."""
        return exchanging.differences(self.store, names, limit)

    def writers(self, table: str) -> list[str]:
        """Return the pipelines that have written the table; see `Clearing`."""
        return clearing.writers(self.store, table)

    def other_rows(self, table: str) -> int:
        """Return how many rows of the table no pipeline has written; see `Clearing`."""
        return clearing.other_rows(self.store, table)
