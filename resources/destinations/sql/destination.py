"""Commit rows, dead letters and the ledger to an SQL database in one transaction; hooks.py has what differs by database."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kpipe.batch.batch import Batch, Commit, Committed
from kpipe.errors import DestinationBusy, DestinationError, KpipeError, LedgerMismatch, SchemaConflict, StagingFailed
from kpipe.failpoints import reach
from kpipe.interfaces import Destination, Publication
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from kpipe.verification.verify import Entry, Recount
from resources.destinations.commit_protocol import Failure, land
from resources.destinations.ledger_rows import clean
from resources.destinations.sql import history_tables, ledger_table, multi_table, publications, row_balance, row_rejections, views
from resources.destinations.sql import recount as counting
from resources.destinations.sql.column_matching import missing, spelled, unkeyed
from resources.destinations.sql.hooks import Hooks, Verdict
from resources.destinations.sql.sql_dialect import Connection
from resources.destinations.sql.table_definitions import COMMITS, ERRORS, PIPELINES
from resources.destinations.staged_file_check import Writes, added, check_totals, verify
from resources.type_compatibility import COORDINATES

__all__ = ["RelationalDestination"]

# Commits that meet in the shared tables: each round lets one of them through, so this many can meet.
_TRIES = 20
_T = TypeVar("_T")
_Enter = Callable[[str], None]


class RelationalDestination(Hooks):
    """One pipeline's tables in an SQL database. A connection is made for each call and closed at the end of it."""

    tables: tuple[RelationalDestination, ...]

    def columns(self) -> Columns | None:
        """Payload columns of the table; None if there is none.

        Raises:
            SchemaConflict: a column has a type that kpipe cannot write.
            LedgerMismatch: the table is gone although rows were written to it.
        """

        def read(connection: Connection) -> Columns | None:
            if self._exists(connection, self.table):
                return self._all_columns(connection).without(COORDINATES.names())
            self._check_gone(connection)
            return None

        return self._read(read, None)

    def ledger(self) -> tuple[str, Ledger]:
        """Registration id and ledger."""
        return self._read_registered(lambda connection: ledger_table.read(connection, self.pipeline), ("", Ledger(self.pipeline)))

    def further(self) -> Sequence[Destination]:
        """The further tables; see `Several`."""
        return self.tables[1:]

    def held(self) -> Mapping[str, int]:
        """Rows that the ledger says are in each further table; see `Several`."""
        return self._read_registered(lambda c: {it.table: it._said(c, net=True) for it in self.tables[1:]}, dict[str, int]())

    def _said(self, connection: Connection, net: bool) -> int:
        return multi_table.written(connection, self.dialect, self.pipeline, self.table, net)

    def commit(self, commit: Commit) -> Committed:
        """Make everything in the commit visible at once, or nothing; see `Destination.commit`."""
        landed: list[Commit] = []
        done = land(commit, self.describe(), lambda: self._attempt(commit), lambda: self._read_back(commit, landed))
        return replace(done, commit=landed[-1]) if self._keyed() else done

    def _parts(self, commit: Commit) -> list[tuple[RelationalDestination, Commit]]:
        """What is written to each table.

        Raises:
            StagingFailed: the commit speaks of other tables.
        """
        if commit.also and [portion.table for portion in commit.also] != [place.table for place in self.tables[1:]]:
            raise StagingFailed(f"batch {commit.id} is of other tables than {', '.join(place.table for place in self.tables)}")
        return list(zip(self.tables, (commit, *map(commit.alone, commit.also)), strict=False))

    def _attempt(self, commit: Commit) -> Failure | None:
        """One transaction. Its own answer is never believed: COMMIT of an aborted one may say OK."""
        step = ""

        def enter(name: str) -> None:
            nonlocal step
            step = name
            reach(f"commit.{name}")

        try:
            enter("verify")  # 1: every staged file is what was reported
            parts = self._parts(commit)
            dead = verify(commit.dead_letters, self.staging)
            staged = [Writes(verify(part.files, self.staging), verify(part.deletes, self.staging)) for _, part in parts]
            for _, part in parts:
                check_totals(part)
            enter("open")  # 2: late, because it may keep others out
            with self._writing() as connection:
                self._ready(connection, commit, [part for _, part in parts], staged)
                enter("begin")
                known, there = self._begin(connection)
                if not known:
                    self._create(connection)
                enter("ledger")  # 3: the compare-and-swap comes before anything that costs
                before = ledger_table.read(connection, self.pipeline)[1] if self._keyed() and commit.steps else None
                ledger_table.swap(connection, self.dialect, commit)
                enter("register")  # 4: the number of the commit
                seq, events = history_tables.register(connection, self.dialect, commit, self.table, self.config)
                landed: list[Commit] = []
                for exists, writes, (place, part) in zip(there, staged, parts, strict=False):
                    if part.columns or writes.rows or writes.deletes:
                        enter("table")  # 5: made or widened
                        if not exists and (said := place._said(connection, net=False)):
                            raise missing(self.pipeline, place.table, said)
                        part = place._put(connection, exists, part, before, writes, enter)
                    landed.append(part)
                done = landed[0].settled_also([part.counts for part in landed[1:]]) if commit.also else landed[0]
                row_rejections.check_limit(self.pipeline, [place.rule for place in self.tables], before, commit, done)
                if landed[0] is not commit:
                    history_tables.amend(connection, commit, done)
                enter("dead_letters")  # 7
                if dead:
                    history_tables.check_letters(dead)
                    history_tables.check_set_aside(commit, dead, self._set_aside(connection, commit, dead, events))
                if done.totals.dead_letters > commit.totals.dead_letters:
                    self._set_duplicates_aside(connection, done, events + commit.totals.dead_letters)
                enter("history")
                history_tables.history(connection, self.dialect, done, self.table, seq)
                multi_table.write(connection, self.dialect, done, self.table, seq)
                enter("before")  # 8
                self._commit(connection)
                enter("after")
        except Exception as error:
            failure = self._failure(error, step, commit)
            if step == "data" and isinstance(failure.error, SchemaConflict):
                failure.error.name(row_rejections.refused(self, parts, staged, row_rejections.by_steps(commit)))
            return failure
        return None

    def _put(
        self, connection: Connection, exists: bool, commit: Commit, before: Ledger | None, writes: Writes, enter: _Enter
    ) -> Commit:
        """Write rows to this table; the commit with what became of them."""
        keyed = self.rule is not None and before is not None
        if keyed:
            row_balance.begin(connection, self.dialect, self.table, self._all_columns(connection).names() if exists else None)
        columns = self._prepare(connection, exists, commit, (*writes.rows, *writes.deletes))
        enter("data")  # 6
        if keyed and before is not None and (writes.rows or writes.deletes):  # a table made for no rows has no coordinates yet
            key = spelled(self._key(connection), columns, self.table)
            done, delta = self._upsert(connection, commit, before, writes, key, columns)
            row_balance.move(connection, self.dialect, self.table, delta)
            return done
        self._insert(connection, commit, writes.rows, columns)
        if row_balance.known(connection, self.table):
            row_balance.move(connection, self.dialect, self.table, added(writes.rows))
        return commit

    def key(self) -> tuple[str, ...]:
        """Columns of the key; see `Keyed`."""
        return self._read(self._key, ()) or self._key(None)

    def _key(self, connection: Connection | None) -> tuple[str, ...]:
        named = self.rule.columns if self.rule is not None else ()
        found = named if named is not None else self._primary_key(connection) if connection is not None else ()
        if not found and self.rule is not None and connection is None:
            raise unkeyed(self.table)
        return found

    def _read_back(self, commit: Commit, landed: list[Commit]) -> tuple[int | None, Ledger]:
        """Sequence number of the commit if it is there, else the ledger, through a fresh connection.

        What became of its rows is in the ledger too, and is added to `landed`.
        """
        nothing: tuple[int | None, Ledger] = (None, Ledger(self.pipeline))

        def read(connection: Connection) -> tuple[int | None, Ledger]:
            self._settle(connection)
            if not self._present(connection):
                return nothing
            row = connection.execute(
                f"SELECT seq FROM {COMMITS.sql} WHERE batch_id = $1 AND pipeline_name = $2", [commit.id, self.pipeline]
            ).fetchone()
            if row is None:
                return None, ledger_table.read(connection, self.pipeline)[1]
            landed.append(
                multi_table.settled(connection, history_tables.settled(connection, commit)) if self._keyed() else commit
            )
            return row[0], nothing[1]

        reach("readback")
        return self._read(read, nothing)

    def _failure(self, error: Exception, step: str, commit: Commit) -> Failure:
        sent, at_table = step in ("before", "after"), step in ("table", "data")
        if isinstance(error, KpipeError):
            return Failure(error, sent)
        what = f"{self.describe()}: batch {commit.id}, step {step}: {error}"
        verdict = self._judge(error, step) if isinstance(error, self.failures) else Verdict()
        if verdict.busy:
            return Failure(DestinationBusy(f"{self.describe()}: {error}", verdict.busy), sent)
        if not at_table and verdict.damage:
            return Failure(self._damaged(error), sent)
        if (at_table or step == "open") and verdict.refused and not verdict.conflict:  # MySQL makes and widens tables in `open`
            reason, hint = (
                f"the table refuses it: {str(error).splitlines()[0]}",
                "change the table or the records; nothing was written",
            )
            return Failure(SchemaConflict(what, hint, reason, not verdict.rights), sent)
        # A key of the ledger's own tables can only be taken by a commit that was first.
        again = verdict.conflict or (verdict.taken and not at_table)
        return Failure(DestinationError(what, "nothing was written; run it again"), sent, again)

    def history(self) -> Sequence[Entry]:
        """Every committed range of the pipeline, in order of commit."""
        return self._read_registered(lambda connection: counting.entries(connection, self.pipeline), [])

    def recount(self) -> Recount:
        """Count the tables and the dead letters afresh, in one read transaction.

        Tables that an edit of the definition has left behind are counted too: their rows are in the ledger.
        """

        def read(connection: Connection) -> Recount:
            left = multi_table.former(connection, self.pipeline, [place.table for place in self.tables])
            places = [*self.tables, *(self.renamed(table) for table in left)]
            there = [self._exists(connection, place.table) for place in places]
            self._snapshot(connection)
            found = [place._counted(connection, exists, self.table) for place, exists in zip(places, there, strict=True)]
            return replace(found[0], also={place.table: mine for place, mine in zip(places[1:], found[1:], strict=True)})

        return self._read_registered(read, Recount())

    def _counted(self, connection: Connection, exists: bool, first: str) -> Recount:
        known = self._all_columns(connection).names() if exists else None
        key = self._key(connection) if exists else ()
        return counting.recount(connection, self.dialect, self.pipeline, self.table, known, key, first)

    def view(self, name: str, limit: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Rows of the view `kpipe_<name>` that belong to this pipeline, newest first; times are aware, UTC."""

        def read(connection: Connection) -> Sequence[Mapping[str, Any]]:
            described = self._described(connection, f"kpipe_{name}")
            return views.rows(connection, self.dialect, name, described, self.pipeline, limit)

        return self._read_registered(read, [])

    def record_state(self, state: str, error: str = "", kind: str = "", batch: Batch | None = None, stderr: str = "") -> None:
        """Note the pipeline's state and, when given, an error event. Nothing reads it back to decide."""

        def write(connection: Connection) -> None:
            connection.execute("BEGIN")
            connection.execute(
                f"UPDATE {PIPELINES.sql} SET state = $1, last_error = $2, updated = now() WHERE pipeline_name = $3",
                [state, clean(error) or None, self.pipeline],
            )
            if error:
                history_tables.error_event(connection, self.dialect, self.pipeline, clean(error), kind, batch, clean(stderr))
            connection.execute("COMMIT")

        if self._registered():
            self._write(write)

    def clear_errors(self) -> int:
        """Remove the pipeline's error events, and its last error; see `ErrorLog`."""

        def write(connection: Connection) -> int:
            connection.execute("BEGIN")
            statement = f"DELETE FROM {ERRORS.sql} WHERE pipeline_name = $1 AND NOT dead_letter"
            gone = self.dialect.change(connection, statement, [self.pipeline])
            connection.execute(f"UPDATE {PIPELINES.sql} SET last_error = NULL WHERE pipeline_name = $1", [self.pipeline])
            connection.execute("COMMIT")
            return gone

        return self._write(write) if self.ledger()[0] else 0

    def unpublished(self, limit: int = 1000) -> Sequence[Publication]:
        """Metadata of commits that have not been mirrored, oldest first."""
        return self._read_registered(lambda connection: publications.waiting(connection, self.pipeline, limit), [])

    def published(self, batches: Sequence[str]) -> Sequence[str]:
        """Mark them as mirrored; gives those that this very call marked."""
        if not batches or not self._registered():
            return []

        def write(connection: Connection) -> list[str]:
            connection.execute("BEGIN")
            mine = publications.mark(connection, self.dialect, self.pipeline, batches)
            connection.execute("COMMIT")
            return mine

        return self._write(write)

    def _registered(self) -> bool:
        def read(connection: Connection) -> bool:
            row = connection.execute(f"SELECT 1 FROM {PIPELINES.sql} WHERE pipeline_name = $1", [self.pipeline]).fetchone()
            return row is not None

        return self._read_registered(read, False)

    def _check_gone(self, connection: Connection) -> None:
        if self._present(connection) and (said := self._said(connection, net=False)):
            raise missing(self.pipeline, self.table, said)

    def _read_registered(self, work: Callable[[Connection], _T], otherwise: _T) -> _T:
        return self._read(lambda connection: work(connection) if self._present(connection) else otherwise, otherwise)

    def _read(self, work: Callable[[Connection], _T], otherwise: _T) -> _T:
        if not self._there():
            return otherwise
        try:
            with self._reading() as connection:
                return work(connection)
        except self.failures as error:
            if self._judge(error, "").damage:
                raise self._damaged(error) from error
            raise DestinationError(f"{self.describe()}: cannot be read: {error}") from error

    def _write(self, work: Callable[[Connection], _T]) -> _T:
        for attempt in range(_TRIES):
            try:
                with self._writing() as connection:
                    return work(connection)
            except self.failures as error:
                verdict = self._judge(error, "")
                if verdict.damage:
                    raise self._damaged(error) from error
                if verdict.busy:
                    raise DestinationBusy(f"{self.describe()}: {error}", verdict.busy) from error
                if not verdict.conflict or attempt == _TRIES - 1:
                    raise DestinationError(f"{self.describe()}: {error}", "run it again") from error
                time.sleep(random.uniform(0, 0.01 * (attempt + 1)))  # only so that two do not keep colliding
        raise AssertionError

    def _damaged(self, error: Exception) -> LedgerMismatch:
        return LedgerMismatch(
            f"{self.describe()}: kpipe's own tables were changed by hand, or are another version's: {str(error).splitlines()[0]}",
            self.rescue,
        )
