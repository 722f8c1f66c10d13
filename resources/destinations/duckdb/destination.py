"""A DuckDB file as a destination: rows, dead letters and ledger change in one transaction (docs/design.md, section 5)."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from kpipe.audit import Entry, Recount
from kpipe.batch import Batch, Commit, Committed
from kpipe.errors import DestinationBusy, DestinationError, KpipeError, LedgerMismatch, OutcomeUnknown, SchemaConflict
from kpipe.faults import reach
from kpipe.ledger import Ledger
from kpipe.ports import Publication
from kpipe.schema import Columns
from kpipe.verdict import applied
from resources.destinations.duckdb import lanes, layout, publications, records, target, views
from resources.destinations.duckdb import recount as counting
from resources.destinations.duckdb.connection import Connection, Database
from resources.destinations.fitting import COORDINATES
from resources.destinations.rows import clean
from resources.destinations.staged import check_totals, verify

__all__ = ["DuckDBDestination"]

# Commits of one process that meet in the shared tables: each round lets one of them through, so this many can meet.
_TRIES = 20
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Failure:
    """Why an attempt raised.

    Attributes:
        error: for the caller, if the batch turns out not to have landed.
        sent: whether COMMIT had been sent.
        again: whether another transaction was merely in the way.
    """

    error: KpipeError
    sent: bool
    again: bool = False


class DuckDBDestination:
    """One pipeline's table in a DuckDB file.

    The file is opened for each call and closed at the end of it, so other programs can read between batches.

    Args:
        path: the file; made at the first commit.
        table: name of the table in schema main.
        pipeline: name of the pipeline.
        config_json: the pipeline's definition for people, without secrets.
        staging: folders that staged files lie in; nothing else on the machine can be read through the connection.
        lock_timeout_s: longest wait for another process that has the file open.
    """

    def __init__(
        self,
        path: Path,
        table: str,
        pipeline: str,
        config_json: Mapping[str, Any] | None = None,
        staging: Sequence[Path] = (),
        lock_timeout_s: float = 30,
    ) -> None:
        self.database = Database(path, staging, lock_timeout_s)
        self.staging = tuple(staging)
        self.table, self.pipeline, self.config = table, pipeline, dict(config_json or {})

    def describe(self) -> str:
        """Kind, place and table."""
        return f"DuckDB {self.database.path}, table {self.table}"

    def columns(self) -> Columns | None:
        """Payload columns of the table; None if there is none.

        Raises:
            SchemaConflict: a column has a type that kpipe cannot write.
            LedgerMismatch: the table is gone although rows were written to it.
        """

        def read(connection: Connection) -> Columns | None:
            if layout.exists(connection, self.table):
                return target.columns(connection, self.table).without(COORDINATES.names())
            self._check_gone(connection)
            return None

        return self._read(read, None)

    def ledger(self) -> tuple[str, Ledger]:
        """Registration id and ledger."""
        return self._read(lambda connection: lanes.read(connection, self.pipeline), ("", Ledger(self.pipeline)))

    def commit(self, commit: Commit) -> Committed:
        """Make everything in the commit visible at once, or nothing; see `Destination.commit`."""
        failure = None
        for attempt in range(_TRIES):
            failure = self._attempt(commit)  # 1 to 8
            if failure and isinstance(failure.error, DestinationBusy):
                raise failure.error
            seq, ledger = self._read_back(commit, failure)  # 9
            if seq is not None:  # 10: found means landed
                return Committed(commit, seq)
            applied(ledger, commit)  # not found, and the lanes moved: Fenced
            if failure is None:
                raise DestinationError(
                    f"{self.describe()}: batch {commit.id} was answered as committed and is not there",
                    "run it again; nothing of it was written",
                )
            if not failure.again:
                raise failure.error
            time.sleep(random.uniform(0, 0.01 * (attempt + 1)))  # only so that two do not keep colliding
        assert failure is not None
        raise failure.error

    def _attempt(self, commit: Commit) -> _Failure | None:
        """One transaction. Its own answer is never believed: COMMIT of an aborted one says OK."""
        step = ""

        def enter(name: str) -> None:
            nonlocal step
            step = name
            reach(f"commit.{name}")

        try:
            enter("verify")  # 1: every staged file is what was reported
            rows, dead = verify(commit.files, self.staging), verify(commit.dead_letters, self.staging)
            check_totals(commit)
            enter("open")  # 2: late, because it keeps everybody else out
            with self.database.write() as connection:
                enter("begin")
                known, there = layout.present(connection), layout.exists(connection, self.table)
                connection.execute("BEGIN")
                if not known:
                    layout.create(connection)
                enter("ledger")  # 3: the compare-and-swap comes before anything that costs
                lanes.swap(connection, commit)
                enter("register")  # 4: the number of the commit
                seq, written, events = records.register(connection, commit, self.table, self.config)
                if commit.columns or rows:
                    enter("table")  # 5: made or widened
                    if written and not there:
                        raise target.missing(self.pipeline, self.table, written)
                    columns = target.prepare(connection, self.table, there, commit, rows)
                    enter("data")  # 6
                    target.insert(connection, self.table, commit, rows, columns)
                enter("dead_letters")  # 7
                records.set_aside(connection, commit, dead, events)
                enter("history")
                records.history(connection, commit, self.table, seq)
                enter("before")  # 8
                connection.execute("COMMIT")
                enter("after")
        except Exception as error:
            return self._failure(error, step, commit)
        return None

    def _read_back(self, commit: Commit, failure: _Failure | None) -> tuple[int | None, Ledger]:
        """Sequence number of the commit if it is there, else the ledger, through a fresh connection.

        Raises:
            OutcomeUnknown: COMMIT was sent, and the file cannot be read.
            KpipeError: the file cannot be read, and the attempt had failed before COMMIT.
        """
        nothing: tuple[int | None, Ledger] = (None, Ledger(self.pipeline))

        def read(connection: Connection) -> tuple[int | None, Ledger]:
            if not layout.present(connection):
                return nothing
            row = connection.execute(
                f"SELECT seq FROM {layout.COMMITS.sql} WHERE batch_id = $1 AND pipeline_name = $2", [commit.id, self.pipeline]
            ).fetchone()
            return (row[0], nothing[1]) if row else (None, lanes.read(connection, self.pipeline)[1])

        try:
            reach("readback")
            return self._read(read, nothing)
        except Exception as error:
            if failure is not None and not failure.sent:
                raise failure.error from error
            raise OutcomeUnknown(
                f"{self.describe()}: batch {commit.id} was sent and cannot be read back: {error}",
                "run it again when the file can be read: the ledger says whether it landed",
            ) from error

    def _failure(self, error: Exception, step: str, commit: Commit) -> _Failure:
        sent = step in ("before", "after")
        if isinstance(error, KpipeError):
            return _Failure(error, sent)
        if step not in ("table", "data") and layout.is_damage(error):
            return _Failure(self._damaged(error), sent)
        conflict = isinstance(error, duckdb.TransactionException) and ("onflict" in str(error) or "UNIQUE" in str(error))
        # Made between the look and the transaction, by another commit of this process.
        conflict = conflict or (isinstance(error, duckdb.CatalogException) and "already exists" in str(error))
        # A key of the ledger's own tables can only be taken by a commit that was first.
        ours = isinstance(error, duckdb.ConstraintException) and step not in ("table", "data")
        what = f"{self.describe()}: batch {commit.id}, step {step}: {error}"
        refused = (duckdb.ConstraintException, duckdb.ConversionException, duckdb.CatalogException, duckdb.DependencyException)
        if (
            not conflict
            and step in ("table", "data")
            and isinstance(error, (*refused, duckdb.ParserException, duckdb.BinderException))
        ):
            return _Failure(SchemaConflict(what, "change the table or the records; nothing was written"), sent)
        return _Failure(DestinationError(what, "nothing was written; run it again"), sent, conflict or ours)

    def history(self) -> Sequence[Entry]:
        """Every committed range of the pipeline, in order of commit."""
        return self._read_registered(lambda connection: counting.entries(connection, self.pipeline), [])

    def recount(self) -> Recount:
        """The table and the dead letters counted afresh, in one read transaction."""

        def read(connection: Connection) -> Recount:
            there = layout.exists(connection, self.table)
            connection.execute("BEGIN TRANSACTION READ ONLY")
            return counting.recount(connection, self.pipeline, self.table, there)

        return self._read_registered(read, Recount())

    def view(self, name: str, limit: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Rows of the view `kpipe_<name>` that belong to this pipeline, newest first; times are aware, UTC."""
        return self._read_registered(lambda connection: views.rows(connection, name, self.pipeline, limit), [])

    def record_state(self, state: str, error: str = "", kind: str = "", batch: Batch | None = None, stderr: str = "") -> None:
        """Note the pipeline's state and, when given, an error event. Nothing reads it back to decide."""

        def write(connection: Connection) -> None:
            connection.execute("BEGIN")
            connection.execute(
                f"UPDATE {layout.PIPELINES.sql} SET state = $1, last_error = $2, updated = now() WHERE pipeline_name = $3",
                [state, clean(error) or None, self.pipeline],
            )
            if error:
                records.error_event(connection, self.pipeline, clean(error), kind, batch, clean(stderr))
            connection.execute("COMMIT")

        if self._registered():
            self._write(write)

    def clear_errors(self) -> int:
        """Remove the pipeline's error events, and its last error; see `ErrorLog`."""

        def write(connection: Connection) -> int:
            connection.execute("BEGIN")
            gone = connection.execute(
                f"DELETE FROM {layout.ERRORS.sql} WHERE pipeline_name = $1 AND NOT dead_letter RETURNING 1", [self.pipeline]
            ).fetchall()
            connection.execute(f"UPDATE {layout.PIPELINES.sql} SET last_error = NULL WHERE pipeline_name = $1", [self.pipeline])
            connection.execute("COMMIT")
            return len(gone)

        return self._write(write) if self.ledger()[0] else 0

    def unpublished(self, limit: int = 1000) -> Sequence[Publication]:
        """Metadata of commits that have not been mirrored, oldest first."""
        return self._read_registered(lambda connection: publications.waiting(connection, self.pipeline, limit), [])

    def published(self, batches: Sequence[str]) -> Sequence[str]:
        """Mark them as mirrored; gives those that this very call marked."""
        if not batches or not self._registered():
            return []
        return self._write(lambda connection: publications.mark(connection, self.pipeline, batches))

    def _registered(self) -> bool:
        def read(connection: Connection) -> bool:
            row = connection.execute(f"SELECT 1 FROM {layout.PIPELINES.sql} WHERE pipeline_name = $1", [self.pipeline]).fetchone()
            return row is not None

        return self._read_registered(read, False)

    def _check_gone(self, connection: Connection) -> None:
        if layout.present(connection):
            row = connection.execute(
                f'SELECT "rows" FROM {layout.PIPELINES.sql} WHERE pipeline_name = $1 AND lower(target_table) = lower($2)',
                [self.pipeline, self.table],
            ).fetchone()
            if row and row[0]:
                raise target.missing(self.pipeline, self.table, row[0])

    def _read_registered(self, work: Callable[[Connection], _T], otherwise: _T) -> _T:
        return self._read(lambda connection: work(connection) if layout.present(connection) else otherwise, otherwise)

    def _read(self, work: Callable[[Connection], _T], otherwise: _T) -> _T:
        if not self.database.exists():
            return otherwise
        try:
            with self.database.read() as connection:
                return work(connection)
        except duckdb.Error as error:
            if layout.is_damage(error):
                raise self._damaged(error) from error
            raise DestinationError(f"{self.describe()}: cannot be read: {error}") from error

    def _write(self, work: Callable[[Connection], _T]) -> _T:
        for attempt in range(_TRIES):
            try:
                with self.database.write() as connection:
                    return work(connection)
            except duckdb.TransactionException as error:
                if attempt == _TRIES - 1:
                    raise DestinationError(f"{self.describe()}: {error}", "run it again") from error
                time.sleep(random.uniform(0, 0.01 * (attempt + 1)))  # only so that two do not keep colliding
            except duckdb.Error as error:
                raise (
                    self._damaged(error) if layout.is_damage(error) else DestinationError(f"{self.describe()}: {error}")
                ) from error
        raise AssertionError

    def _damaged(self, error: Exception) -> LedgerMismatch:
        return LedgerMismatch(
            f"{self.describe()}: kpipe's own tables were changed by hand: {str(error).splitlines()[0]}",
            "restore a backup of the file; or go on in another file (into.database)",
        )
