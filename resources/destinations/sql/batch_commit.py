"""Commit rows, dead letters and the ledger of a batch in one transaction."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from kpipe.batch.batch import Commit, Committed
from kpipe.batch.counts import Counts, total
from kpipe.batch.table_write import ByLane
from kpipe.errors import KpipeError, StagingFailed
from kpipe.failpoints import failpoint
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from resources.destinations.commit_protocol import Failure, Steps, land
from resources.destinations.sql import row_rejections
from resources.destinations.sql.column_matching import missing, spelled
from resources.destinations.sql.engine import Engine, StagedTable, TargetTable
from resources.destinations.sql.ledger import history_tables, ledger_table, multi_table, opening_balance, row_balance
from resources.destinations.sql.ledger.table_definitions import COMMITS
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.sql_dialect import Connection
from resources.destinations.sql.store import Store
from resources.destinations.staged_file_check import Writes, added, check_totals, row_bytes, verify
from resources.type_compatibility import COORDINATES

__all__ = [
    "COLUMNS",
    "LEDGER",
    "commit_batch",
    "key_columns",
    "read_back",
    "remember_columns",
    "remember_ledger",
    "split",
    "write_rows",
]

#: Names of what an engine remembers, with the table or the pipeline.
COLUMNS, LEDGER = "columns", "ledger"


def commit_batch(store: Store, commit: Commit) -> Committed:
    """Make everything in the commit visible at once, or nothing; see `Destination.commit`."""
    landed: list[Commit] = []
    store = store.of_commit(commit)
    done = land(commit, store.describe(), lambda: _attempt(store, commit), lambda: read_back(store, commit, landed))
    return replace(done, commit=landed[-1]) if store.is_keyed else done


def split(store: Store, commit: Commit) -> list[tuple[TargetTable, Commit]]:
    """Return each table with its part of the commit; none for a ledger-only commit.

    Raises:
        StagingFailed: the commit writes to other tables.
    """
    names = [table.name for table in store.tables]
    if commit.tables and [write.table or store.table for write in commit.tables] != names:
        raise StagingFailed(f"batch {commit.id}: wrong tables: expected {', '.join(names)}")
    return list(zip(store.tables, map(commit.alone, commit.tables), strict=False))


def key_columns(engine: Engine, connection: Connection, table: TargetTable) -> tuple[str, ...]:
    """Return the key columns of the table: those of its rule, else its primary key; none if rows are appended."""
    if table.rule is None:
        return ()
    return table.rule.columns if table.rule.columns is not None else engine.primary_key(connection, table.name)


def read_back(store: Store, commit: Commit, landed: list[Commit]) -> tuple[int | None, Ledger]:
    """Return the sequence number of the commit if it is in the ledger, else the ledger. Use a new connection.

    If it is, append the commit with the outcome of its rows, as the ledger records it, to `landed`.
    """
    nothing: tuple[int | None, Ledger] = (None, Ledger(store.pipeline))

    def read(connection: Connection) -> tuple[int | None, Ledger]:
        store.engine.await_commits(connection, store.pipeline)
        if not store.engine.ledger_exists(connection):
            return nothing
        row = connection.execute(
            f"SELECT seq FROM {COMMITS.sql} WHERE batch_id = $1 AND pipeline_name = $2", [commit.id, store.pipeline]
        ).fetchone()
        if row is None:
            return None, ledger_table.read(connection, store.pipeline)[1]
        _remember(store, connection)
        landed.append(multi_table.settled(connection, history_tables.settled(connection, commit)) if store.is_keyed else commit)
        return row[0], nothing[1]

    failpoint("readback")
    return store.read(read, nothing, fresh=True)


def remember_columns(engine: Engine, connection: Connection, table: str) -> Columns:
    """Return the columns of an existing table without coordinates, and let the engine remember them."""
    found = engine.columns(connection, table).without(COORDINATES.names())
    engine.remember((COLUMNS, table), found)
    return found


def remember_ledger(store: Store, connection: Connection) -> tuple[str, Ledger]:
    """Return registration id and ledger, and let the engine remember them."""
    found = ledger_table.read(connection, store.pipeline)
    store.engine.remember((LEDGER, store.pipeline), found)
    return found


def _remember(store: Store, connection: Connection) -> None:
    """Read what the next pass needs while the connection is open, where the engine keeps it until the database changes."""
    if store.engine.remembers:
        with suppress(KpipeError, *store.engine.errors):  # the next pass reads it again, and reports the error
            remember_ledger(store, connection)
            for table in store.tables:
                remember_columns(store.engine, connection, table.name)


def write_rows(
    store: Store, connection: Connection, exists: bool, part: StagedTable, before: Ledger | None, steps: Steps
) -> Mapping[ByLane, Counts]:
    """Write the staged rows and deletes of one table, and return their counts by range.

    Args:
        store: of the pipeline.
        connection: inside the transaction of the commit.
        exists: whether the table existed when the transaction began.
        part: the staged files of the table.
        before: the ledger before the commit; None: rows are appended, whatever the table's rule is.
        steps: of the transaction.

    Raises:
        LedgerMismatch: the table is missing although the ledger records rows of it.
    """
    engine, dialect, table, files = store.engine, store.engine.dialect, part.table.name, part.files
    steps.enter("table")  # 5: create or widen it
    if not exists and (rows := multi_table.written(connection, dialect, store.pipeline, table, net=False)):
        raise missing(store.pipeline, table, rows)
    rule = part.table.rule if before is not None else None
    if rule is not None:
        names = engine.columns(connection, table).names() if exists else None
        opening_balance.begin(connection, dialect, store.pipeline, table, names)
    columns = engine.prepare(connection, table, exists, part.commit, part.all_files)
    steps.enter("data")  # 6
    if rule is not None and before is not None and part.all_files:  # a table created without rows has no coordinates yet
        key = spelled(key_columns(engine, connection, part.table), columns, table)
        if store.by_topic:  # the table has rows of the commit's topic only
            before = before.of_topics({step.source.topic.name for step in part.commit.steps})
        others = partial(multi_table.others, connection, dialect, store.pipeline, table)
        done, delta = engine.merge(connection, KeyedBatch(table, rule, key, columns, part.commit, before, files, others))
        row_balance.move(connection, dialect, table, delta)
        return done.only.counts
    engine.insert(connection, table, part.commit, files.rows, columns)
    if row_balance.known(connection, table):
        row_balance.move(connection, dialect, table, added(files.rows))
    return part.commit.only.counts


def _write_duplicates(
    store: Store, connection: Connection, part: StagedTable, counts: Mapping[ByLane, Counts], events: int
) -> int:
    """Insert the duplicates of a table as dead letters, and return their number. The next table's merge forgets them.

    Raises:
        StagingFailed: their number differs from the outcome of the merge.
    """
    found = total(counts.values()).dead_letters - total(part.commit.only.counts.values()).dead_letters
    if found:
        inserted = store.engine.insert_duplicates(connection, part.commit, events)
        history_tables.check_set_aside(part.commit, found, inserted)
    return found


def _attempt(store: Store, commit: Commit) -> Failure | None:
    """Run one transaction. Its success proves nothing: COMMIT of an aborted transaction may return OK."""
    steps, parts = Steps(), list[StagedTable]()
    try:
        _transaction(store, commit, steps, parts)
    except Exception as error:
        failure = store.failure(error, steps.current, commit)
        return row_rejections.with_records(failure, steps, store, parts, row_rejections.by_steps(commit))
    return None


def _transaction(store: Store, commit: Commit, steps: Steps, parts: list[StagedTable]) -> None:
    """Run the numbered steps. The verified files are appended to `parts`."""
    engine = store.engine
    steps.enter("verify")  # 1: every staged file matches its report
    split_commit = split(store, commit)
    dead = verify(commit.dead_letters, engine.staging)
    parts += [
        StagedTable(table, part, Writes(*(verify(files, engine.staging) for files in (part.only.files, part.only.deletes))))
        for table, part in split_commit
    ]
    check_totals(commit)
    steps.enter("open")  # 2: late, because an open connection may block other clients
    with store.writing(row_bytes([part.all_files for part in parts])) as connection:
        engine.define(connection, store.pipeline, commit, parts)
        steps.enter("begin")
        known, there = engine.begin(connection, store.pipeline, store.tables)
        if not known:
            engine.create_ledger(connection)
        steps.enter("ledger")  # 3: the compare-and-swap comes before any expensive step
        before = ledger_table.read(connection, store.pipeline)[1] if store.is_keyed and commit.steps else None
        ledger_table.swap(connection, engine.dialect, commit)
        steps.enter("register")  # 4: the sequence number of the commit
        seq, events = history_tables.register(connection, engine.dialect, commit, store.table, store.config)
        if commit.by_field:
            multi_table.check_names(commit, store.names.current(connection, engine.dialect, store.pipeline))
        landed, numbered = list[Mapping[ByLane, Counts]](), events + commit.totals.dead_letters
        for exists, part in zip(there, parts, strict=False):
            counts = write_rows(store, connection, exists, part, before, steps) if part.is_written else part.commit.only.counts
            numbered += _write_duplicates(store, connection, part, counts, numbered)
            landed.append(counts)
        if any(part.is_written for part in parts):  # with all tables, which may refer to each other
            engine.check_deferred(connection)
        done = commit.settled(landed)
        row_rejections.check_limit(store.pipeline, [table.rule for table in store.tables], before, commit, done)
        if done.counts != commit.counts:
            history_tables.amend(connection, commit, done)
        steps.enter("dead_letters")  # 7
        if dead:
            history_tables.check_letters(dead)
            inserted = engine.insert_dead_letters(connection, commit, dead, events)
            history_tables.check_set_aside(commit, sum(file.rows for file in dead), inserted)
        steps.enter("history")
        own = done.table_by_lane() if store.by_topic else None
        history_tables.history(connection, engine.dialect, done, store.table, seq, own)
        multi_table.write(connection, engine.dialect, done, store.table, seq)
        steps.enter("before")  # 8
        engine.commit(connection)
        steps.enter("after")
