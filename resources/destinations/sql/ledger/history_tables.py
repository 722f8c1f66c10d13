"""Write the records of a commit: the pipeline's row, history, cursors, dead letters, error events."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timezone
from typing import Any

from kpipe.batch.batch import Batch, Commit, Counts
from kpipe.batch.table_write import ByLane
from kpipe.errors import DestinationError, Fenced, RecordRejected, StagingFailed
from kpipe.ledger.ledger import checksum
from resources.destinations.ledger_rows import DEAD_LETTER, SKIPS, commit_row, end_rows, event_row, range_rows
from resources.destinations.sql.ledger.ledger_table import unregistered
from resources.destinations.sql.ledger.table_definitions import BATCHES, COMMITS, ERRORS, PARTITIONS, PIPELINES
from resources.destinations.sql.sql_dialect import Connection, Dialect, quote
from resources.destinations.staged_file_check import Proven

__all__ = ["RANGES", "amend", "check_letters", "check_set_aside", "error_event", "history", "letters", "register", "settled"]

#: Columns of the batch's ranges by topic and partition, which are parameters of `letters`.
RANGES = (("topic", "VARCHAR"), ("number", "INTEGER"), ("first_offset", "BIGINT"), ("last_offset", "BIGINT"))


def register(connection: Connection, dialect: Dialect, commit: Commit, table: str, config: Mapping[str, Any]) -> tuple[int, int]:
    """Count the commit in the pipeline's row, which the first commit creates.

    Every commit of a pipeline changes this row, so two concurrent commits always conflict here.

    Returns:
        Sequence number of the commit, and number of error events before it.

    Raises:
        Fenced: the pipeline is registered again, or not any more, since the commit was planned (`Commit.registered`).
        LedgerMismatch: the pipeline's row is missing, but its lanes exist.
    """
    counts, now = commit.totals, datetime.now(timezone.utc)
    skipped = int(commit.kind in SKIPS)
    sealed = checksum(lane for change in commit.changes for lane in (change.expect, change.become))
    changed = dialect.change(
        connection,
        f'UPDATE {PIPELINES.sql} SET seq = seq + 1, skipped_batches = skipped_batches + $1, config_json = $2,'
        ' target_table = $3, "rows" = "rows" + $4, dead_letters = dead_letters + $5, error_events = error_events + $6,'
        f" last_batch_id = $7, updated = $8, seal = {dialect.xor.format('seal', '$10')} WHERE pipeline_name = $9",
        [
            skipped, json.dumps(config), table, counts.rows, counts.dead_letters, counts.dead_letters,
            commit.id, now, commit.pipeline, sealed,
        ],
    )  # fmt: skip
    if changed:
        row = connection.execute(
            f"SELECT seq, error_events, pipeline_id FROM {PIPELINES.sql} WHERE pipeline_name = $1", [commit.pipeline]
        ).fetchone()
        if (commit.registered or row[2]) != row[2]:
            raise _replaced(commit)
        return row[0], row[1] - counts.dead_letters
    if any(change.expect for change in commit.changes):
        raise unregistered(commit.pipeline)
    if commit.registered:
        raise _replaced(commit)
    first = {
        "database_name": _database(connection, dialect),
        "pipeline_name": commit.pipeline,
        "pipeline_id": str(uuid.uuid4()),
        "config_json": json.dumps(config),
        "state": "running",
        "skipped_batches": skipped,
        "seq": 1,
        "seal": sealed,
        "target_table": table,
        "rows": counts.rows,
        "dead_letters": counts.dead_letters,
        "error_events": counts.dead_letters,
        "last_batch_id": commit.id,
        "created": now,
        "updated": now,
    }
    PIPELINES.insert(connection, dialect, [first])
    return 1, 0


def _replaced(commit: Commit) -> Fenced:
    """Return the error of a commit whose ledger was replaced since its plan, such as by that of a rebuilt table."""
    return Fenced(f"batch {commit.id}: its ledger was replaced by another one since its plan", "run it again")


def history(
    connection: Connection, dialect: Dialect, commit: Commit, table: str, seq: int, tables: Mapping[ByLane, str] | None = None
) -> None:
    """Write the commit, its ranges with their tables (see `range_rows`), and the ends of the partitions.

    Raises:
        DestinationError: the batch is committed already, where neither a key nor a lane shows it.
    """
    if not dialect.keys and not commit.changes and _is_committed(connection, commit.id):
        raise DestinationError(f"batch {commit.id} is committed already")
    COMMITS.insert(connection, dialect, [commit_row(commit, table, seq)])
    BATCHES.insert(connection, dialect, range_rows(commit, table, seq, _database(connection, dialect), tables))
    _ends(connection, dialect, commit)


def _is_committed(connection: Connection, batch: str) -> bool:
    return connection.execute(f"SELECT 1 FROM {COMMITS.sql} WHERE batch_id = $1", [batch]).fetchone() is not None


def _ends(connection: Connection, dialect: Dialect, commit: Commit) -> None:
    rows = end_rows(commit)
    if not rows:
        return
    columns = [(name, PARTITIONS.columns[name]) for name in rows[0]]
    told = [name for name in rows[0] if name not in PARTITIONS.key]
    sql = dialect.update(
        PARTITIONS.sql,
        {name: f"c.{quote(name)}" for name in told},
        dialect.rows(columns, 1),
        " AND ".join(f"l.{quote(name)} = c.{quote(name)}" for name in PARTITIONS.key),
    )
    if dialect.change(connection, sql, dialect.given([list(row.values()) for row in rows], len(columns))) == len(rows):
        return
    found = connection.execute(
        f"SELECT {', '.join(map(quote, PARTITIONS.key))} FROM {PARTITIONS.sql} WHERE pipeline_name = $1", [commit.pipeline]
    ).fetchall()
    known = set(found)
    PARTITIONS.insert(connection, dialect, [row for row in rows if tuple(row[name] for name in PARTITIONS.key) not in known])


def amend(connection: Connection, planned: Commit, done: Commit) -> None:
    """Correct the counts of `register` by the outcome of the rows: `rows` are inserted rows minus deleted rows."""
    before, after = planned.totals, done.totals
    connection.execute(
        f'UPDATE {PIPELINES.sql} SET "rows" = "rows" + $1, dead_letters = dead_letters + $2, error_events = error_events + $2'
        " WHERE pipeline_name = $3",
        [after.inserted - after.deleted - before.rows, after.dead_letters - before.dead_letters, planned.pipeline],
    )


def settled(connection: Connection, commit: Commit) -> Commit:
    """Return a landed commit with the outcome of its rows, as the ledger records it."""
    names = tuple(field.name for field in fields(Counts))
    rows = connection.execute(
        f"SELECT cluster_id, topic_id, topic, batch_source_partition_id, batch_earliest_offset, {', '.join(map(quote, names))}"
        f" FROM {BATCHES.sql} WHERE batch_id = $1 AND pipeline_name = $2",
        [commit.id, commit.pipeline],
    ).fetchall()
    found = {tuple(row[:5]): Counts(*row[5:]) for row in rows}
    counts = dict(commit.counts)
    for step in commit.steps:
        topic = step.source.topic
        key = (topic.cluster, topic.topic_id, topic.name, step.source.partition, step.range.start)
        counts[step.lane.key] = found.get(key, counts.get(step.lane.key, Counts()))
    return commit.stored(counts)


def check_letters(staged: Sequence[Proven]) -> None:
    """Check that staged dead letters have the required columns.

    Raises:
        StagingFailed: a file has other columns.
    """
    for file in staged:
        if {name.lower() for name in file.names} != set(DEAD_LETTER):
            raise StagingFailed(f"staged file {file.path!r}: wrong columns for dead letters: {', '.join(file.names)}")


def letters(dialect: Dialect, commit: Commit, events: int, source: str, parameters: Sequence[Any] = ()) -> tuple[str, list[Any]]:
    """Return the statement that inserts dead letters, and its parameters.

    Args:
        dialect: of the database.
        commit: the commit.
        events: number of error events of the pipeline before the dead letters.
        source: the dead letters, as SQL after FROM, with the columns of DEAD_LETTER. It may use `RANGES`, which begin with $7;
            its own parameters follow these.
        parameters: of `source`.
    """
    names = [
        "database_name", "pipeline_name", "error_unix_timestamp", "error_type", "error_code", "error_kind", "batch_id",
        "version", "dead_letter", "error_id", "error_message", "load_data_line", "batch_source_partition_id",
        "batch_earliest_offset", "batch_latest_offset", "stage", "topic", "partition", "offset", "kafka_timestamp",
        "key", "headers",
    ]  # fmt: skip
    ranges = {step.source: [s.range for s in commit.steps if s.source == step.source] for step in commit.steps}
    rows = [
        [source.topic.name, source.partition, min(r.start for r in found), max(r.end for r in found)]
        for source, found in ranges.items()
    ]
    statement = (
        f"INSERT INTO {ERRORS.sql} ({', '.join(map(quote, names))})"
        f" SELECT {dialect.database}, $1, $2, 'Warning', $3, 'External', $4, $5, true, $6 + row_number() OVER (),"
        ' d.reason, d."value", d."partition", c.first_offset, c.last_offset, d.stage, d.topic, d."partition", d."offset",'
        ' d."timestamp", d."key", d.headers'
        f" FROM {source} AS d"
        f" LEFT JOIN ({dialect.rows(RANGES, 7)}) AS c"
        ' ON c.topic = d.topic AND c.number = d."partition"'
    )
    known = [commit.pipeline, time.time(), RecordRejected.__name__, commit.id, commit.version, events]
    return statement, [*known, *dialect.given(rows, len(RANGES)), *parameters]


def check_set_aside(commit: Commit, expected: int, inserted: int) -> None:
    """Check that as many dead letters were inserted as are staged, or as `merge` found.

    Raises:
        StagingFailed: the numbers differ.
    """
    if inserted != expected:
        raise StagingFailed(f"batch {commit.id}: expected {expected} inserted dead letters, found {inserted}")


def error_event(
    connection: Connection, dialect: Dialect, pipeline: str, error: str, kind: str, batch: Batch | None, stderr: str
) -> None:
    """Write the error that stopped a batch. The pipeline's row must exist."""
    statement = f"UPDATE {PIPELINES.sql} SET error_events = error_events + 1 WHERE pipeline_name = $1"
    if not dialect.change(connection, statement, [pipeline]):
        raise DestinationError(f"pipeline {pipeline} is not registered")
    row = connection.execute(f"SELECT error_events FROM {PIPELINES.sql} WHERE pipeline_name = $1", [pipeline]).fetchone()
    event = event_row(pipeline, error, kind, batch, stderr, row[0], _database(connection, dialect))
    ERRORS.insert(connection, dialect, [event])


def _database(connection: Connection, dialect: Dialect) -> str:
    row = connection.execute(f"SELECT {dialect.database}").fetchone()
    assert row is not None
    return str(row[0])
