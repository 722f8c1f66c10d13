"""Retry dead letters: write their rows, the remaining letters and the counts of their ranges in one transaction."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kpipe.batch.batch import Committed
from kpipe.batch.dead_letter_replay import DeadLetter, Replay, keyed
from kpipe.batch.table_write import of_also, of_into
from kpipe.definition.table_template import OF_TOPIC
from kpipe.errors import Fenced, LedgerMismatch, StagingFailed
from kpipe.topics import PartitionId, TopicId
from resources.destinations.commit_protocol import Failure, Steps, land
from resources.destinations.ledger_rows import commit_row
from resources.destinations.sql import row_rejections
from resources.destinations.sql.batch_commit import read_back, split, write_rows
from resources.destinations.sql.engine import StagedTable
from resources.destinations.sql.ledger import history_tables, ledger_table, row_balance
from resources.destinations.sql.ledger.table_definitions import BATCHES, COMMITS, ERRORS, PIPELINES, TARGETS, Table
from resources.destinations.sql.sql_dialect import Connection, Dialect
from resources.destinations.sql.store import Store
from resources.destinations.staged_file_check import Proven, Writes, verify

__all__ = ["letters", "replay"]

_PAGE_BYTES = 64 << 20  # of values: a page ends with the letter that exceeds it
# Temporary tables: `_FATES` with the starts of their ranges; the changes of the ranges; the new counts of the ranges.
_PLACED, _MOVES, _BECOME = "kpipe_placed", "kpipe_moved", "kpipe_become"
#: Outcome of each letter: its number of rows in the first table, and in all tables; or that it failed again.
_FATES = Table(
    "kpipe_replayed",
    {
        "error_id": "BIGINT", "batch_id": "VARCHAR", "topic": "VARCHAR", "partition": "INTEGER", "offset": "BIGINT",
        "n": "BIGINT", "gave": "BIGINT", "again": "BOOLEAN", "stage": "VARCHAR", "reason": "VARCHAR",
    },
)  # fmt: skip
#: Number of rows of each letter in each table.
_GAINED = Table("kpipe_gained", {"error_id": "BIGINT", "name": "VARCHAR", "n": "BIGINT"})
#: Name of a range's table, as `fill` of kpipe/definition/table_template.py returns it; $2 is the template, or a name.
_TABLE = f"replace($2, '{OF_TOPIC}', replace(replace(b.topic, '.', '_'), '-', '_'))"
_Gains = Counter[tuple[int, int]]


def _range(dialect: Dialect, others: int, first: int) -> str:
    """Return the join condition of a dead letter and its range: in a batch, a topic has one name, and ranges are disjoint.

    Args:
        dialect: of the database.
        others: number of further tables of the pipeline.
        first: number of the parameter with the first of their names, in lower case.
    """
    known = f"lower(s.target_table) IN ({', '.join(f'${first + at}' for at in range(others))})" if others else "false"
    return (
        "b.pipeline_name = $1 AND b.batch_id = e.batch_id AND b.topic = e.topic"
        ' AND b.batch_source_partition_id = e."partition"'
        ' AND e."offset" >= b.batch_earliest_offset AND e."offset" < b.batch_latest_offset'
        f" AND {dialect.same_name.format('b.target_table', _TABLE)}"
        # The range was written to the same further tables.
        f" AND coalesce((SELECT sum(CASE WHEN {known} THEN 1 ELSE 9999 END)"
        f" FROM {TARGETS.sql} AS s WHERE s.batch_id = b.batch_id AND s.cluster_id = b.cluster_id AND s.topic_id = b.topic_id"
        "  AND s.topic = b.topic AND s.batch_source_partition_id = b.batch_source_partition_id"
        "  AND s.batch_earliest_offset = b.batch_earliest_offset AND lower(s.target_table) <> lower(b.target_table)), 0)"
        f" = {others:d}"
    )


def _page(dialect: Dialect, others: int) -> str:
    """Return the query of a page, with each partition number and offset once, whatever the topic: they name the rows."""
    return (
        "WITH e AS (SELECT e.*, b.cluster_id, b.topic_id,"
        '  row_number() OVER (PARTITION BY e."partition", e."offset" ORDER BY e.error_id) AS nth'
        f" FROM {ERRORS.sql} AS e JOIN {BATCHES.sql} AS b ON {_range(dialect, others, 6)}"
        ' WHERE e.pipeline_name = $1 AND e.dead_letter AND e."offset" IS NOT NULL AND e.error_id > $3),'
        " w AS (SELECT e.*, max(nth) OVER earlier AS most, coalesce(octet_length(load_data_line), 0) AS size,"
        "  sum(coalesce(octet_length(load_data_line), 0)) OVER earlier AS sizes FROM e"
        "  WINDOW earlier AS (ORDER BY error_id ROWS UNBOUNDED PRECEDING))"
        ' SELECT error_id, batch_id, cluster_id, topic_id, topic, "partition", "offset",'
        f' {dialect.micros.format("kafka_timestamp")}, "key", load_data_line, headers'
        " FROM w WHERE most = 1 AND sizes - size < $4 ORDER BY error_id LIMIT $5"
    )


def letters(store: Store, after: int, limit: int) -> Sequence[DeadLetter]:
    """Return dead letters with greater ids, in order of their ids; see `Replaying.letters`."""

    def read(connection: Connection) -> Sequence[DeadLetter]:
        others = _others(store)
        page = [store.pipeline, store.table, after, _PAGE_BYTES, limit, *others]
        found = connection.execute(_page(store.engine.dialect, len(others)), page).fetchall()
        if found:
            _check_unkeyed(store, connection)
        return [
            DeadLetter(
                id=number,
                batch=batch,
                source=PartitionId(TopicId(cluster, topic_id, topic), partition),
                offset=offset,
                timestamp=-1 if micros is None else micros // 1000,
                key=key,
                value=value,
                headers=None if headers is None else store.engine.headers(headers),
            )
            for number, batch, cluster, topic_id, topic, partition, offset, micros, key, value, headers in found
        ]

    return store.read_ledger(read, [])


def replay(store: Store, replay: Replay) -> Committed:
    """Commit the outcome of retried dead letters; see `Replaying.replay`."""
    commit = replay.commit
    store = store.of_commit(commit)
    return land(commit, store.describe(), lambda: _attempt(store, replay), lambda: read_back(store, commit, []))


def _others(store: Store) -> list[str]:
    """Return the names of the tables of `also`, in lower case."""
    if store.by_topic:
        return []
    return [table.name.lower() for table in of_also(store.tables)]


def _check_unkeyed(store: Store, connection: Connection) -> None:
    """Reject tables that were ever written with a key, even if an edit removed it: there may be newer rows or deletes."""
    for table in store.tables:
        if row_balance.known(connection, table.name):
            raise keyed(store.pipeline, table.name)


def _attempt(store: Store, replay: Replay) -> Failure | None:
    """Run one transaction, as for a batch."""
    steps, parts = Steps(), list[StagedTable]()
    try:
        _transaction(store, replay, steps, parts)
    except Exception as error:
        sources = {(letter.source.partition, letter.offset): letter.source for letter in replay.letters}
        failure = store.failure(error, steps.current, replay.commit)
        return row_rejections.with_records(failure, steps, store, parts, lambda _, *at: sources.get(at))
    return None


def _transaction(store: Store, replay: Replay, steps: Steps, parts: list[StagedTable]) -> None:
    """Run the steps. The verified files are appended to `parts`."""
    engine, commit, pipeline = store.engine, replay.commit, store.pipeline
    steps.enter("verify")
    parts += [StagedTable(table, part, Writes(verify(part.only.files, engine.staging))) for table, part in split(store, commit)]
    dead = verify(commit.dead_letters, engine.staging)
    history_tables.check_letters(dead)
    fates, gains = _fates(replay, [part.files.rows for part in parts], dead, store.by_topic)
    steps.enter("open")
    with store.writing() as connection:
        engine.define(connection, pipeline, commit, parts)
        steps.enter("begin")
        known, there = engine.begin(connection, pipeline, store.tables)
        steps.enter("ledger")  # the compare-and-swap: all letters still exist, and belong to this registration
        if (ledger_table.read(connection, pipeline)[0] if known else "") != replay.registered:
            raise _overtaken(pipeline, "it was registered again")
        _check_unkeyed(store, connection)
        _decide(store, connection, replay, fates, gains)
        steps.enter("register")
        seq, _ = history_tables.register(connection, engine.dialect, commit, store.table, store.config)
        for exists, part in zip(there, parts, strict=True):
            if part.files.rows:
                write_rows(store, connection, exists, part, None, steps)
        if any(part.files.rows for part in parts):
            engine.check_deferred(connection)
        steps.enter("dead_letters")
        _take_away(connection, engine.dialect, pipeline, commit.version)
        steps.enter("history")
        _recount(connection, engine.dialect, pipeline, replay.fan_out)
        COMMITS.insert(connection, engine.dialect, [commit_row(commit, store.table, seq)])
        steps.enter("before")
        engine.commit(connection)
        steps.enter("after")


def _decide(
    store: Store, connection: Connection, replay: Replay, fates: Sequence[dict[str, Any]], gains: Sequence[_Gains]
) -> None:
    """Create temporary tables of the outcome of each letter, and of its range.

    Raises:
        Fenced: a letter does not exist any more.
        LedgerMismatch: the history does not have the range of a letter.
    """
    dialect = store.engine.dialect
    for table in (_FATES, _GAINED):
        columns = ", ".join(f'"{name}" {dialect.column(name, kind, False)}' for name, kind in table.columns.items())
        connection.execute(f"CREATE TEMPORARY TABLE {table.sql} ({columns}){dialect.ending()}")
    _FATES.insert(connection, dialect, fates)
    _GAINED.insert(connection, dialect, [
        {"error_id": letter.id, "name": place.name.lower(), "n": found[letter.source.partition, letter.offset]}
        for place, found in zip(store.tables, gains, strict=True)
        for letter in replay.letters
        if (letter.source.partition, letter.offset) in found
    ])  # fmt: skip
    same = " AND ".join(f'x."{name}" = e."{name}"' for name in ("error_id", "batch_id", "topic", "partition", "offset"))
    connection.execute(
        f"CREATE TEMPORARY TABLE {_PLACED} AS"
        " SELECT e.*, b.batch_earliest_offset AS start"
        f" FROM {_FATES.sql} AS e JOIN {ERRORS.sql} AS x ON {same} AND x.pipeline_name = $1 AND x.dead_letter"
        f" LEFT JOIN {BATCHES.sql} AS b ON {_range(dialect, len(_others(store)), 3)}",
        [store.pipeline, store.table, *_others(store)],
    )
    row = connection.execute(f"SELECT count(*), count(DISTINCT error_id), count(start) FROM {_PLACED}").fetchone()
    assert row is not None
    found, different, ranges = row
    if different < len(fates):
        raise _overtaken(store.pipeline, f"{len(fates) - different} of {len(fates)} dead letters were resolved by another retry")
    if found != different or ranges != different:
        raise LedgerMismatch(
            f"pipeline {store.pipeline}: the history does not contain exactly one range for each dead letter",
            "restore a backup; nothing was written",
        )


def _overtaken(pipeline: str, why: str) -> Fenced:
    return Fenced(f"pipeline {pipeline}: {why} since this retry read the dead letters; nothing was written", "run it again")


def _fates(
    replay: Replay, rows: Sequence[Sequence[Proven]], dead: Sequence[Proven], by_topic: bool
) -> tuple[list[dict[str, Any]], list[_Gains]]:
    """Return the outcome of each letter, from the files; and for each table the number of rows by partition and offset.

    Raises:
        StagingFailed: the files contain other records than those of the retry.
    """
    from pyarrow import parquet

    gains: list[_Gains] = []
    for files in rows:
        gains.append(Counter())
        for file in files:
            table = parquet.read_table(file.path, columns=["_kafka_partition", "_kafka_offset"])
            counted = table.group_by(table.column_names).aggregate([([], "count_all")]).to_pylist()
            gains[-1].update({(row["_kafka_partition"], row["_kafka_offset"]): row["count_all"] for row in counted})
    gained = sum(gains, Counter())
    failed: dict[tuple[int, int], tuple[str, str]] = {}
    for file in dead:
        for row in parquet.read_table(file.path, columns=["partition", "offset", "stage", "reason"]).to_pylist():
            failed[row["partition"], row["offset"]] = (row["stage"], row["reason"])
    tried = {(letter.source.partition, letter.offset) for letter in replay.letters}
    staged = sum(file.rows for files in rows for file in files), sum(file.rows for file in dead)
    found = sum(n for place, n in gained.items() if place in tried), len(failed.keys() & tried)
    both = len(gained.keys() & failed.keys())
    if found != staged or both:
        raise StagingFailed(
            f"replay {replay.commit.id}: wrong staged files: {staged[0]} rows and {staged[1]} dead letters; of the retried"
            f" records {found[0]} and {found[1]}; {both} records have both"
        )
    first = gained if by_topic else of_into(gains)  # rows as the ledger's ranges count them
    fates = [
        {
            "error_id": letter.id, "batch_id": letter.batch, "topic": letter.source.topic.name,
            "partition": letter.source.partition, "offset": letter.offset, "n": first[place], "gave": gained[place],
            "again": place in failed,
            "stage": failed.get(place, (None, None))[0], "reason": failed.get(place, (None, None))[1],
        }
        for letter in replay.letters
        for place in [(letter.source.partition, letter.offset)]
    ]  # fmt: skip
    return fates, gains


def _take_away(connection: Connection, dialect: Dialect, pipeline: str, version: str) -> None:
    """Delete the letters that gave rows or were filtered; store the new reason of those that failed again."""
    sets = {"error_message": "c.reason", "stage": "c.stage", "version": "$2"}
    mine = "l.pipeline_name = $1 AND l.dead_letter AND l.error_id = c.error_id"
    again = f"SELECT error_id, reason, stage FROM {_PLACED} WHERE again"
    connection.execute(dialect.update(ERRORS.sql, sets, again, mine), [pipeline, version])
    connection.execute(dialect.delete(ERRORS.sql, f"SELECT error_id FROM {_PLACED} WHERE NOT again", mine), [pipeline])


def _recount(connection: Connection, dialect: Dialect, pipeline: str, fan_out: bool) -> None:
    """Move the counts of resolved letters from dead letters to rows or filtered: in ranges, commits and the pipeline.

    If a record may give several rows, a range counts its records with rows separately, as `given` (kpipe.batch.batch.Counts). A
    range in which each record gave one row has no such count yet: it begins here.
    """

    def whole(value: str) -> str:
        return f"CAST({value} AS {dialect.bigint})"

    connection.execute(
        f"CREATE TEMPORARY TABLE {_MOVES} AS"
        f' SELECT batch_id, topic, "partition", start, {whole("sum(n)")} AS n,'
        f" {whole('sum(CASE WHEN gave > 0 THEN 1 ELSE 0 END)')} AS answered,"
        f" {whole('sum(CASE WHEN gave = 0 THEN 1 ELSE 0 END)')} AS filtered, count(*) AS resolved FROM {_PLACED} WHERE NOT again"
        ' GROUP BY batch_id, topic, "partition", start'
    )
    # First compute the new counts: MySQL's UPDATE would see its own changes.
    connection.execute(
        f'CREATE TEMPORARY TABLE {_BECOME} AS SELECT m.batch_id, m.topic, m."partition", m.start, t."rows" + m.n AS "rows",'
        " t.inserted + m.n AS inserted, t.dead_letters - m.resolved AS dead_letters, t.filtered + m.filtered AS filtered,"
        ' CASE WHEN t.given > 0 THEN t.given + m.answered WHEN $2 THEN t."rows" + m.answered ELSE 0 END AS given,'
        " CASE WHEN t.given > 0 THEN t.set_aside_before - m.resolved WHEN $2 THEN t.dead_letters - m.resolved"
        "  ELSE t.set_aside_before END AS set_aside_before, t.batch_rows_written + m.n AS batch_rows_written,"
        " t.batch_partition_parsed_rows + m.n AS batch_partition_parsed_rows"
        f" FROM {BATCHES.sql} AS t JOIN {_MOVES} AS m ON t.batch_id = m.batch_id AND t.topic = m.topic"
        ' AND t.batch_source_partition_id = m."partition" AND t.batch_earliest_offset = m.start WHERE t.pipeline_name = $1',
        [pipeline, fan_out],
    )
    names = ("rows", "inserted", "dead_letters", "filtered", "given", "set_aside_before")
    become = {name: f'c."{name}"' for name in (*names, "batch_rows_written", "batch_partition_parsed_rows")}
    same = (
        "l.pipeline_name = $1 AND l.batch_id = c.batch_id AND l.topic = c.topic"
        ' AND l.batch_source_partition_id = c."partition" AND l.batch_earliest_offset = c.start'
    )
    connection.execute(dialect.update(BATCHES.sql, become, f"SELECT * FROM {_BECOME}", same), [pipeline])
    sums = ", ".join(f'{whole(f"""sum("{name}")""")} AS "{name}"' for name in names)
    connection.execute(
        dialect.update(
            COMMITS.sql,
            {name: f'c."{name}"' for name in names},
            f"SELECT batch_id, {sums} FROM {BATCHES.sql} WHERE pipeline_name = $1"
            f" AND batch_id IN (SELECT batch_id FROM {_MOVES}) GROUP BY batch_id",
            "l.pipeline_name = $1 AND l.batch_id = c.batch_id",
        ),
        [pipeline],
    )
    connection.execute(
        dialect.update(
            PIPELINES.sql,
            {"rows": 'l."rows" + c.n', "dead_letters": "l.dead_letters - c.resolved"},
            f"SELECT {whole('coalesce(sum(n), 0)')} AS n, {whole('coalesce(sum(resolved), 0)')} AS resolved FROM {_MOVES}",
            "l.pipeline_name = $1",
        ),
        [pipeline],
    )
    more = {"rows": "n", "inserted": "n", "records": "records", "offsets": "offsets"}
    connection.execute(
        dialect.update(
            TARGETS.sql,
            {name: f'l."{name}" + c.{value}' for name, value in more.items()},
            f'SELECT f.batch_id, f.topic, f."partition" AS number, f.start, g.name, {whole("sum(g.n)")} AS n,'
            ' count(*) AS records, sum(g.n * CAST(f."offset" AS DECIMAL(38,0))) AS offsets'
            f" FROM {_PLACED} AS f JOIN {_GAINED.sql} AS g ON g.error_id = f.error_id WHERE NOT f.again"
            ' GROUP BY f.batch_id, f.topic, f."partition", f.start, g.name',
            "l.pipeline_name = $1 AND l.batch_id = c.batch_id AND l.topic = c.topic AND l.batch_source_partition_id = c.number"
            " AND l.batch_earliest_offset = c.start AND lower(l.target_table) = c.name",
        ),
        [pipeline],
    )
    for table in (_FATES.sql, _GAINED.sql, _PLACED, _MOVES, _BECOME):  # a pool may reuse the connection
        connection.execute(f"{dialect.drop_temporary} {table}")
