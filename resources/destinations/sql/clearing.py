"""Delete all rows of tables, and reverse them in the ledgers of the pipelines that wrote them, in one transaction."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from kpipe.batch.batch import Commit
from kpipe.errors import Fenced, NotAvailable
from kpipe.ledger.ledger import Ledger, checksum
from kpipe.run_events import ledger_only
from kpipe.topics import PartitionId, TopicId
from kpipe.verification.clearing import CLEARED, Cleared, TakenBack, take_back
from resources.destinations.commit_protocol import Failure, Steps, land
from resources.destinations.ledger_rows import STATES, commit_row, range_rows
from resources.destinations.sql.engine import TargetTable
from resources.destinations.sql.ledger import ledger_table, row_balance
from resources.destinations.sql.ledger import recount as counting
from resources.destinations.sql.ledger.multi_table import WRITTEN
from resources.destinations.sql.ledger.table_definitions import BATCHES, COMMITS, ERRORS, HOLDINGS, PIPELINES, TARGETS
from resources.destinations.sql.sql_dialect import Connection, Dialect
from resources.destinations.sql.store import Store

__all__ = ["check_clear", "clear", "other_rows", "unwritten", "writers", "written_by"]

_ELSEWHERE = "load into another table, by a pipeline of another name, and drop this one"

# Columns of a range about its reading. A range that clears read nothing: they are 0.
_SHOWN = (
    "batch_rows_written", "batch_partition_parsed_rows", "batch_partition_extracted_bytes", "batch_partition_extracted_rows",
)  # fmt: skip
# Columns that identify a range. A batch may have ranges of several topics, each in a table of its own.
_RANGE = (
    "pipeline_name", "batch_id", "cluster_id", "topic_id", "topic", "batch_source_partition_id", "batch_earliest_offset",
)  # fmt: skip


def clear(store: Store, tables: Sequence[str], who: str, only: Collection[str] | None = None) -> Cleared:
    """Delete all rows of tables, and rewind the ledgers of their pipelines; see `Clearing.clear`."""
    marker = Commit(uuid.uuid4().hex, store.pipeline, (), kind="clear")
    done: list[Cleared] = []

    def attempt() -> Failure | None:
        done.clear()
        if not store.engine.exists():
            done.append(Cleared(dict.fromkeys(tables, 0)))
            return None
        steps = Steps()
        try:
            _transaction(store, marker, tables, who, only, steps, done)
        except Exception as error:
            if done and not done[0].pipelines:  # no ledger records whether the rows are deleted
                done.clear()
            return store.failure(error, steps.current, marker)
        return None

    def read_back() -> tuple[int | None, Ledger]:
        def read(connection: Connection) -> int | None:
            if done and not done[0].pipelines:  # no ledger records the rows
                return 0
            found = f"SELECT seq FROM {COMMITS.sql} WHERE batch_id = $1"
            exists = store.engine.ledger_exists(connection)
            row = connection.execute(found, [marker.id]).fetchone() if exists else None
            return None if row is None else int(row[0])

        return store.read(read, 0 if done else None, fresh=True), Ledger(store.pipeline)

    land(marker, store.describe(), attempt, read_back)
    return done[0]


def check_clear(store: Store, tables: Sequence[str], only: Collection[str]) -> None:
    """Check that tables can be cleared, without locks or changes; see `Clearing.check_clear`."""

    def check(connection: Connection) -> None:
        _check_names(connection, store.engine.dialect, tables)
        for name in written_by(connection, store.engine.dialect, tables):
            _take_back(connection, store.engine.dialect, name, tables, only)

    store.read_ledger(check, None)


def writers(store: Store, table: str) -> list[str]:
    """Return the pipelines that have written the table; see `Clearing.writers`."""
    nothing: list[str] = []
    return store.read_ledger(lambda connection: written_by(connection, store.engine.dialect, [table]), nothing)


def other_rows(store: Store, table: str) -> int:
    """Return how many rows of the table no pipeline has written; see `Clearing.other_rows`."""

    def read(connection: Connection) -> int:
        return unwritten(connection, store.engine.dialect, table) if store.engine.table_exists(connection, table) else 0

    return store.read_ledger(read, 0)


def unwritten(connection: Connection, dialect: Dialect, table: str) -> int:
    """Return how many rows of a table no pipeline has written. The table and the ledger's tables must exist."""
    row = connection.execute(f"SELECT count(*) FROM {dialect.name(table)}").fetchone()
    return max(0, int(row[0]) - row_balance.written(connection, table))


def _transaction(
    store: Store,
    marker: Commit,
    tables: Sequence[str],
    who: str,
    only: Collection[str] | None,
    steps: Steps,
    done: list[Cleared],
) -> None:
    """Run one transaction. It appends the cleared rows and ranges to `done` before it commits."""
    engine = store.engine
    steps.enter("open")
    # DELETE applies to the current rows, so the transaction must also see the current history.
    with engine.writing(keyed=False) as connection:
        dialect = engine.dialect
        steps.enter("begin")
        # Before the transaction, the commit of another run could still create a table.
        named = {table.name: table for table in (*map(TargetTable, tables), *store.tables)}
        known, exist = engine.begin(connection, store.pipeline, list(named.values()))
        there = [table for table, exists in zip(named, exist, strict=True) if exists and table in tables]
        steps.enter("ledger")
        found_writers = written_by(connection, dialect, tables) if known else []
        if known:
            _check_names(connection, dialect, tables)
        found = _taken_back(connection, dialect, found_writers, tables, only)
        for at, (name, back) in enumerate(found.items()):
            _record(connection, dialect, name, back, who, tables, marker.id if not at else uuid.uuid4().hex)
        if known:
            for table in tables:
                # The table is empty. A new count would include rows that are inserted by hand later.
                connection.execute(
                    f'UPDATE {HOLDINGS.sql} SET "rows" = 0, offsets = 0, baseline = 0 WHERE target_table = lower($1)',
                    [table],
                )
        steps.enter("data")
        rows = dict.fromkeys(tables, 0)
        for table in there:
            row = connection.execute(f"SELECT count(*) FROM {dialect.name(table)}").fetchone()
            connection.execute(f"DELETE FROM {dialect.name(table)}")
            rows[table] = int(row[0])
        if known and written_by(connection, dialect, tables) != found_writers:
            raise Fenced(f"table {', '.join(tables)}: another pipeline wrote to it during the clearing", "run it again")
        ranges = {
            name: [f"{source} {item}" for source, ranges in back.gone.items() for item in ranges] for name, back in found.items()
        }
        done.append(Cleared(rows, ranges))
        steps.enter("before")
        engine.commit(connection)
        steps.enter("after")


def _taken_back(
    connection: Connection, dialect: Dialect, writers: Sequence[str], tables: Sequence[str], only: Collection[str] | None
) -> dict[str, TakenBack]:
    """Return the ranges to reverse, by pipeline that has rows in the tables. Lock the pipelines' rows in the ledger first.

    Raises:
        NotAvailable: another pipeline, or another table of the same records, would be affected.
    """
    result: dict[str, TakenBack] = {}
    for name in writers:
        connection.execute(f"UPDATE {PIPELINES.sql} SET seq = seq WHERE pipeline_name = $1", [name])
        if (back := _take_back(connection, dialect, name, tables, only)) is not None:
            result[name] = back
    return result


def _take_back(
    connection: Connection, dialect: Dialect, name: str, tables: Sequence[str], only: Collection[str] | None
) -> TakenBack | None:
    """Return the ranges of a pipeline to reverse; None if it has no rows in the tables. Raises as `_taken_back`."""
    beside = _beside(connection, dialect, name, tables)
    if beside:
        raise NotAvailable(
            f"pipeline {name} has written table {', '.join(beside)} from the same records: they cannot be read again for"
            f" {' and '.join(tables)} alone",
            _all_of(name, beside, only),
        )
    back = take_back(ledger_table.read(connection, name)[1], counting.entries(connection, name), tables)
    if back is None and _targets(connection, dialect, name, tables):
        raise NotAvailable(
            f"pipeline {name} has written table {' and '.join(tables)} by a field's value: other tables have rows of the same"
            " ranges",
            f"RESET PIPELINE {name} clears all tables of its template, and reads them again",
        )
    if back is not None and only is not None and name not in only:
        raise NotAvailable(
            f"table {', '.join(back.parts)} also contains rows of pipeline {name}",
            f"RESET PIPELINE {', '.join([*only, name])} reads the rows of all of them again",
        )
    return back


def _all_of(pipeline: str, beside: Sequence[str], only: Collection[str] | None) -> str:
    """Return the hint how to clear all tables of the same records. RESET PIPELINE, which passes `only`, was not enough."""
    if only is None:
        return f"RESET PIPELINE {pipeline} clears all tables that its definition names, and reads them again"
    if pipeline not in only:
        return f"RESET PIPELINE {', '.join([*only, pipeline])} reads the rows of all of them again"
    return f"add table {', '.join(beside)} to the definition of pipeline {pipeline} again, then RESET PIPELINE {', '.join(only)}"


def _check_names(connection: Connection, dialect: Dialect, tables: Sequence[str]) -> None:
    """Reject tables whose name differs from another table's in case only: the history does not distinguish the two.

    Raises:
        NotAvailable: such a table exists.
    """
    for table in tables:
        found = connection.execute(
            f"SELECT DISTINCT target_table FROM {WRITTEN} AS w WHERE lower(target_table) = lower($1)"
            f" AND NOT ({dialect.same_name.format('target_table', '$2')})",
            [table, table],
        ).fetchall()
        if found:
            names = " and ".join(sorted([table, *(name for (name,) in found)]))
            raise NotAvailable(f"tables {names}: their names differ in case only", _ELSEWHERE)


def written_by(connection: Connection, dialect: Dialect, tables: Sequence[str]) -> list[str]:
    """Return the pipelines that have written one of the tables."""
    named = _named(dialect, "w", tables, 1)
    found = connection.execute(f"SELECT DISTINCT pipeline_name FROM {WRITTEN} AS w WHERE {named}", list(tables)).fetchall()
    return sorted(name for (name,) in found)


def _beside(connection: Connection, dialect: Dialect, pipeline: str, tables: Sequence[str]) -> list[str]:
    """Return the other tables of the ranges that are cleared, without tables that were cleared since."""
    ranges = []
    # Ranges of tables by a field name the template.
    for table, alias in ((TARGETS, "y"), (BATCHES, "z")):
        same = " AND ".join(f"{alias}.{name} = x.{name}" for name in _RANGE)
        ranges.append(f"EXISTS (SELECT 1 FROM {table.sql} AS {alias} WHERE {same} AND ({_named(dialect, alias, tables, 2)}))")
    found = connection.execute(
        f"SELECT DISTINCT x.target_table FROM {TARGETS.sql} AS x WHERE x.pipeline_name = $1 AND {_standing(dialect, 'x')}"
        f" AND ({' OR '.join(ranges)})",
        [pipeline, *tables],
    ).fetchall()
    cleared = {table.lower() for table in tables}
    return sorted(name for (name,) in found if name.lower() not in cleared)


def _named(dialect: Dialect, alias: str, tables: Sequence[str], first: int) -> str:
    """Return the condition that a row is of one of the tables, which are the parameters from number `first`."""
    same = dialect.same_name
    return " OR ".join(same.format(f"{alias}.target_table", f"${at}") for at in range(first, first + len(tables)))


def _standing(dialect: Dialect, alias: str) -> str:
    """Return the condition that a row of pipeline $1 was written since its table was cleared."""
    same = dialect.same_name.format("g.target_table", f"{alias}.target_table")
    return (
        f"{alias}.seq > (SELECT coalesce(max(g.seq), 0) FROM {WRITTEN} AS g WHERE g.pipeline_name = $1"
        f" AND g.closed_by = '{CLEARED}' AND {same})"
    )


def _record(
    connection: Connection, dialect: Dialect, pipeline: str, back: TakenBack, who: str, tables: Sequence[str], number: str
) -> None:
    """Swap the lanes, and write the history with the batch id `number`."""
    words = ", ".join(f"{source} {item}" for source, ranges in back.gone.items() for item in ranges)
    note = f"clear: {', '.join(tables)}: {words or 'nothing that is read'}; {who}"
    commit = ledger_only(pipeline, "clear", back.changes, note, (), "sql", "", number)
    ledger_table.swap(connection, dialect, commit)
    letters = _letters_gone(connection, dialect, pipeline, list(back.parts))
    sums, sealed = back.counts, checksum(lane for change in back.changes for lane in (change.expect, change.become))
    dialect.change(
        connection,
        f'UPDATE {PIPELINES.sql} SET seq = seq + 1, "rows" = "rows" + $1, dead_letters = dead_letters - $2,'
        f" last_batch_id = $3, updated = $4, seal = {dialect.xor.format('seal', '$6')} WHERE pipeline_name = $5",
        [sums.inserted - sums.deleted, letters, number, datetime.now(timezone.utc), pipeline, sealed],
    )
    row = connection.execute(f"SELECT seq, database_name FROM {PIPELINES.sql} WHERE pipeline_name = $1", [pipeline]).fetchone()
    seq, database = int(row[0]), str(row[1])
    _record_targets(connection, dialect, commit, back, _targets(connection, dialect, pipeline, tables), seq)
    for at, (table, items) in enumerate(back.parts.items()):
        steps, counts = tuple(step for step, _ in items), {step.lane.key: found for step, found in items}
        part = replace(commit, steps=steps, records=counts)
        if not at:
            COMMITS.insert(connection, dialect, [{**commit_row(commit, table, seq), **vars(sums)}])
        rows = [{**row, **dict.fromkeys(_SHOWN, 0)} for row in range_rows(part, table, seq, database)]
        BATCHES.insert(connection, dialect, rows)


def _letters_gone(connection: Connection, dialect: Dialect, pipeline: str, tables: Sequence[str]) -> int:
    """Stop counting the dead letters of cleared ranges, and return their number. They stay readable in the table of errors."""
    gone = 0
    for table in tables:
        gone += dialect.change(
            connection,
            f"UPDATE {ERRORS.sql} AS e SET dead_letter = false WHERE e.pipeline_name = $1 AND e.dead_letter AND EXISTS"
            f" (SELECT 1 FROM {BATCHES.sql} AS b WHERE b.pipeline_name = $2 AND b.batch_id = e.batch_id AND b.topic = e.topic"
            ' AND b.batch_source_partition_id = e."partition"'
            # Output of a program has no offset.
            ' AND (e."offset" IS NULL OR (e."offset" >= b.batch_earliest_offset AND e."offset" < b.batch_latest_offset))'
            f" AND {dialect.same_name.format('b.target_table', '$3')})",
            [pipeline, pipeline, table],
        )
    return gone


def _targets(connection: Connection, dialect: Dialect, pipeline: str, tables: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return what each table received since it was cleared, by partition; empty if every record gave one row to one table.

    Each row is the table, cluster, topic id, topic and partition, and sums of rows, inserted, updated, deleted and ignored.
    """
    named = _named(dialect, "t", tables, 2)
    several = connection.execute(
        f"SELECT 1 FROM {TARGETS.sql} AS t WHERE t.pipeline_name = $1 AND ({named}) AND {_standing(dialect, 't')} LIMIT 1",
        [pipeline, *tables],
    ).fetchall()
    if not several:
        return []
    return connection.execute(
        f"SELECT t.target_table, t.cluster_id, t.topic_id, t.topic, t.batch_source_partition_id,"
        ' sum(t."rows"), sum(t.inserted), sum(t.updated), sum(t.deleted), sum(t.ignored)'
        f" FROM {WRITTEN} AS t WHERE t.pipeline_name = $1 AND ({named}) AND {_standing(dialect, 't')}"
        " GROUP BY t.target_table, t.cluster_id, t.topic_id, t.topic, t.batch_source_partition_id",
        [pipeline, *tables],
    ).fetchall()


def _record_targets(
    connection: Connection, dialect: Dialect, commit: Commit, back: TakenBack, found: Sequence[tuple[Any, ...]], seq: int
) -> None:
    """Reverse the counts of each table, if rows of these ranges went into several tables or a record gave several rows."""
    ranges = {step.source: step.range for items in back.parts.values() for step, _ in reversed(items)}
    rows: list[dict[str, Any]] = []
    for table, cluster, topic_id, topic, number, *sums in found:
        range_ = ranges.get(PartitionId(TopicId(cluster, topic_id, topic), number))
        if range_ is None:  # nothing of this partition was read
            continue
        rows.append({
            "pipeline_name": commit.pipeline, "batch_id": commit.id, "seq": seq, "cluster_id": cluster,
            "topic_id": topic_id, "topic": topic, "batch_source_partition_id": number,
            "batch_earliest_offset": range_.start, "batch_latest_offset": range_.end, "closed_by": CLEARED,
            "batch_state": STATES["clear"], "target_table": table,
            **dict(zip(("rows", "inserted", "updated", "deleted", "ignored"), (-int(n) for n in sums), strict=True)),
        })  # fmt: skip
    if rows:
        TARGETS.insert(connection, dialect, rows)
