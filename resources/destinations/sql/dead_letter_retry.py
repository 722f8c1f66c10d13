"""Dead letters that become rows: the rows, what is left of the letters and the counts of their ranges in one transaction."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq

from kpipe.batch.batch import Committed
from kpipe.batch.dead_letters import DeadLetter, Replay, keyed
from kpipe.errors import Fenced, LedgerMismatch, SchemaConflict, StagingFailed
from kpipe.failpoints import reach
from kpipe.ledger.ledger import Ledger
from kpipe.topics import PartitionId, TopicId
from resources.destinations.commit_protocol import Failure, land
from resources.destinations.ledger_rows import commit_row
from resources.destinations.sql import history_tables, ledger_table, row_balance, row_rejections
from resources.destinations.sql.column_matching import missing
from resources.destinations.sql.destination import RelationalDestination
from resources.destinations.sql.sql_dialect import Connection, Dialect
from resources.destinations.sql.table_definitions import BATCHES, COMMITS, ERRORS, PIPELINES, TARGETS, Table
from resources.destinations.staged_file_check import Proven, Writes, verify

__all__ = ["ReplayingDestination"]

_PAGE_BYTES = 64 << 20  # of values, beyond which a page takes no more
# Beside these: with the starts of their ranges; what that changes of ranges; and what they become.
_PLACED, _MOVES, _BECOME = "kpipe_placed", "kpipe_moved", "kpipe_become"
#: What became of each letter: rows that it gave in the first table, and in all; or that it failed again.
_FATES = Table(
    "kpipe_replayed",
    {
        "error_id": "BIGINT", "batch_id": "VARCHAR", "topic": "VARCHAR", "partition": "INTEGER", "offset": "BIGINT",
        "n": "BIGINT", "gave": "BIGINT", "again": "BOOLEAN", "stage": "VARCHAR", "reason": "VARCHAR",
    },
)  # fmt: skip
#: Rows that it gave in each table.
_GAINED = Table("kpipe_gained", {"error_id": "BIGINT", "name": "VARCHAR", "n": "BIGINT"})
_Gains = Counter[tuple[int, int]]


def _range(dialect: Dialect, others: int, first: int) -> str:
    """The range that a dead letter belongs to: within a batch, a topic's name stands for one topic, and ranges are disjoint.

    Args:
        dialect: of the database.
        others: how many further tables there are.
        first: number of the parameter that is the first one's name, in lower case.
    """
    known = f"lower(s.target_table) IN ({', '.join(f'${first + at}' for at in range(others))})" if others else "false"
    return (
        "b.pipeline_name = $1 AND b.batch_id = e.batch_id AND b.topic = e.topic"
        ' AND b.batch_source_partition_id = e."partition"'
        ' AND e."offset" >= b.batch_earliest_offset AND e."offset" < b.batch_latest_offset'
        f" AND {dialect.same_name.format('b.target_table', '$2')}"
        # The range went into the same further tables.
        f" AND coalesce((SELECT sum(CASE WHEN {known} THEN 1 ELSE 9999 END)"
        f" FROM {TARGETS.sql} AS s WHERE s.batch_id = b.batch_id AND s.cluster_id = b.cluster_id AND s.topic_id = b.topic_id"
        "  AND s.topic = b.topic AND s.batch_source_partition_id = b.batch_source_partition_id"
        "  AND s.batch_earliest_offset = b.batch_earliest_offset AND lower(s.target_table) <> lower(b.target_table)), 0)"
        f" = {others:d}"
    )


def _page(dialect: Dialect, others: int) -> str:
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


class ReplayingDestination(RelationalDestination):
    """A destination that can move dead letters to rows (kpipe/batch/dead_letters.py)."""

    def letters(self, after: int, limit: int) -> Sequence[DeadLetter]:
        """See `Replaying`."""

        def read(connection: Any) -> Sequence[DeadLetter]:
            others = self._others()
            page = [self.pipeline, self.table, after, _PAGE_BYTES, limit, *others]
            found = connection.execute(_page(self.dialect, len(others)), page).fetchall()
            if found:
                self._check_unkeyed(connection)
            return [
                DeadLetter(
                    id=number,
                    batch=batch,
                    source=PartitionId(TopicId(cluster, topic_id, topic), partition),
                    offset=offset,
                    timestamp=-1 if micros is None else micros // 1000,
                    key=key,
                    value=value,
                    headers=None if headers is None else self._headers(headers),
                )
                for number, batch, cluster, topic_id, topic, partition, offset, micros, key, value, headers in found
            ]

        return self._read_registered(read, [])

    def _check_unkeyed(self, connection: Connection) -> None:
        """Refuse tables that were ever written with a key, edited out or not: newer rows or deletes may have come."""
        for place in self.tables:
            if row_balance.known(connection, place.table):
                raise keyed(self.pipeline, place.table)

    def _headers(self, kept: Any) -> list[tuple[str, bytes | None]]:
        """Headers of a dead letter, from what the client gives of its column."""
        return [(item["name"], item["value"]) for item in kept]

    def _others(self) -> list[str]:
        """Names of the further tables."""
        return [place.table.lower() for place in self.tables[1:]]

    def replay(self, replay: Replay) -> Committed:
        """See `Replaying`."""
        commit = replay.commit

        def read_back() -> tuple[int | None, Ledger]:
            return self._read_back(commit, [])

        return land(commit, self.describe(), lambda: self._replayed(replay), read_back)

    def _replayed(self, replay: Replay) -> Failure | None:
        """One transaction, as `_attempt` of a commit."""
        commit, step = replay.commit, ""

        def enter(name: str) -> None:
            nonlocal step
            step = name
            reach(f"commit.{name}")

        try:
            enter("verify")
            parts = self._parts(commit)
            staged, dead = [verify(part.files, self.staging) for _, part in parts], verify(commit.dead_letters, self.staging)
            history_tables.check_letters(dead)
            fates, gains = _fates(replay, staged, dead)
            enter("open")
            with self._writing() as connection:
                self._ready(connection, commit, [part for _, part in parts], [Writes(rows) for rows in staged])
                enter("begin")
                known, there = self._begin(connection)
                enter("ledger")  # the compare-and-swap: all of them still are dead letters of this registration
                if (ledger_table.read(connection, self.pipeline)[0] if known else "") != replay.registered:
                    raise _overtaken(self.pipeline, "it was registered anew")
                self._check_unkeyed(connection)
                self._decide(connection, replay, fates, gains)
                enter("register")
                seq, _ = history_tables.register(connection, self.dialect, commit, self.table, self.config)
                for exists, rows, (place, part) in zip(there, staged, parts, strict=True):
                    if not rows:
                        continue
                    enter("table")
                    if not exists and (said := place._said(connection, net=False)):
                        raise missing(self.pipeline, place.table, said)
                    place._put(connection, exists, part, None, Writes(rows, []), enter)
                enter("dead_letters")
                _take_away(connection, self.dialect, self.pipeline, commit.version)
                enter("history")
                _recount(connection, self.dialect, self.pipeline, replay.several)
                COMMITS.insert(connection, self.dialect, [commit_row(commit, self.table, seq)])
                enter("before")
                self._commit(connection)
                enter("after")
        except Exception as error:
            failure = self._failure(error, step, commit)
            if step == "data" and isinstance(failure.error, SchemaConflict):
                sources = {(letter.source.partition, letter.offset): letter.source for letter in replay.letters}
                writes = [Writes(rows) for rows in staged]
                failure.error.name(row_rejections.refused(self, parts, writes, lambda *at: sources.get(at)))
            return failure
        return None

    def _decide(self, connection: Connection, replay: Replay, fates: Sequence[dict[str, Any]], gains: Sequence[_Gains]) -> None:
        """What becomes of each letter, as a temporary table; and of the ranges that they belong to.

        Raises:
            Fenced: one of them is no dead letter any more.
            LedgerMismatch: the history does not have the range of one.
        """
        for table in (_FATES, _GAINED):
            columns = ", ".join(f'"{name}" {self.dialect.column(name, kind, False)}' for name, kind in table.columns.items())
            connection.execute(f"CREATE TEMPORARY TABLE {table.sql} ({columns}){self.dialect.ending()}")
        _FATES.insert(connection, self.dialect, fates)
        _GAINED.insert(connection, self.dialect, [
            {"error_id": letter.id, "name": place.table.lower(), "n": found[letter.source.partition, letter.offset]}
            for place, found in zip(self.tables, gains, strict=True)
            for letter in replay.letters
            if (letter.source.partition, letter.offset) in found
        ])  # fmt: skip
        same = " AND ".join(f'x."{name}" = e."{name}"' for name in ("error_id", "batch_id", "topic", "partition", "offset"))
        connection.execute(
            f"CREATE TEMPORARY TABLE {_PLACED} AS"
            " SELECT e.*, b.batch_earliest_offset AS start"
            f" FROM {_FATES.sql} AS e JOIN {ERRORS.sql} AS x ON {same} AND x.pipeline_name = $1 AND x.dead_letter"
            f" LEFT JOIN {BATCHES.sql} AS b ON {_range(self.dialect, len(self.tables) - 1, 3)}",
            [self.pipeline, self.table, *self._others()],
        )
        row = connection.execute(f"SELECT count(*), count(DISTINCT error_id), count(start) FROM {_PLACED}").fetchone()
        assert row is not None
        found, different, ranges = row
        if different < len(fates):
            raise _overtaken(
                self.pipeline, f"{len(fates) - different} of {len(fates)} are dead letters no more: another retry was first"
            )
        if found != different or ranges != different:
            raise LedgerMismatch(
                f"pipeline {self.pipeline}: the history does not have one range for each dead letter",
                "restore a backup; nothing was written",
            )


def _overtaken(pipeline: str, why: str) -> Fenced:
    return Fenced(
        f"pipeline {pipeline}: {why} since the dead letters were read; nothing of this replay was written", "run it again"
    )


def _fates(replay: Replay, rows: Sequence[Sequence[Proven]], dead: Sequence[Proven]) -> tuple[list[dict[str, Any]], list[_Gains]]:
    """What became of each letter, from the files; and by table, how many rows the record at a partition and offset gave.

    Raises:
        StagingFailed: the files speak of other records.
    """
    gains: list[_Gains] = []
    for files in rows:
        gains.append(Counter())
        for file in files:
            table = pq.read_table(file.path, columns=["_kafka_partition", "_kafka_offset"])
            counted = table.group_by(table.column_names).aggregate([([], "count_all")]).to_pylist()
            gains[-1].update({(row["_kafka_partition"], row["_kafka_offset"]): row["count_all"] for row in counted})
    gained = sum(gains, Counter())
    failed: dict[tuple[int, int], tuple[str, str]] = {}
    for file in dead:
        for row in pq.read_table(file.path, columns=["partition", "offset", "stage", "reason"]).to_pylist():
            failed[row["partition"], row["offset"]] = (row["stage"], row["reason"])
    tried = {(letter.source.partition, letter.offset) for letter in replay.letters}
    staged = sum(file.rows for files in rows for file in files), sum(file.rows for file in dead)
    found = sum(n for place, n in gained.items() if place in tried), len(failed.keys() & tried)
    both = len(gained.keys() & failed.keys())
    if found != staged or both:
        raise StagingFailed(
            f"replay {replay.commit.id}: {staged[0]} rows and {staged[1]} dead letters are staged, of the records that were tried"
            f" come {found[0]} and {found[1]}, both of {both}"
        )
    fates = [
        {
            "error_id": letter.id, "batch_id": letter.batch, "topic": letter.source.topic.name,
            "partition": letter.source.partition, "offset": letter.offset, "n": gains[0][place], "gave": gained[place],
            "again": place in failed,
            "stage": failed.get(place, (None, None))[0], "reason": failed.get(place, (None, None))[1],
        }
        for letter in replay.letters
        for place in [(letter.source.partition, letter.offset)]
    ]  # fmt: skip
    return fates, gains


def _take_away(connection: Connection, dialect: Dialect, pipeline: str, version: str) -> None:
    """Those that gave rows, or none on purpose, are dead letters no more; the others have a new reason."""
    sets = {"error_message": "c.reason", "stage": "c.stage", "version": "$2"}
    mine = "l.pipeline_name = $1 AND l.dead_letter AND l.error_id = c.error_id"
    again = f"SELECT error_id, reason, stage FROM {_PLACED} WHERE again"
    connection.execute(dialect.update(ERRORS.sql, sets, again, mine), [pipeline, version])
    connection.execute(dialect.delete(ERRORS.sql, f"SELECT error_id FROM {_PLACED} WHERE NOT again", mine), [pipeline])


def _recount(connection: Connection, dialect: Dialect, pipeline: str, several: bool) -> None:
    """Move their counts from dead letters to rows, or to filtered: in their ranges, in the commits of these, and in all.

    Where a record may give several rows, the range counts the records that were given beside the rows (kpipe.batch.batch.Counts);
    one that has not, as each of its records gave one row, begins to.
    """

    def whole(value: str) -> str:
        return f"CAST({value} AS {dialect.bigint})"

    connection.execute(
        f"CREATE TEMPORARY TABLE {_MOVES} AS"
        f' SELECT batch_id, topic, "partition", start, {whole("sum(n)")} AS n,'
        f" {whole('sum(CASE WHEN gave > 0 THEN 1 ELSE 0 END)')} AS answered,"
        f" {whole('sum(CASE WHEN gave = 0 THEN 1 ELSE 0 END)')} AS filtered, count(*) AS gone FROM {_PLACED} WHERE NOT again"
        ' GROUP BY batch_id, topic, "partition", start'
    )
    # First what the ranges become: MySQL's UPDATE would see its own changes.
    connection.execute(
        f'CREATE TEMPORARY TABLE {_BECOME} AS SELECT m.batch_id, m.topic, m."partition", m.start, t."rows" + m.n AS "rows",'
        " t.inserted + m.n AS inserted, t.dead_letters - m.gone AS dead_letters, t.filtered + m.filtered AS filtered,"
        ' CASE WHEN t.given > 0 THEN t.given + m.answered WHEN $2 THEN t."rows" + m.answered ELSE 0 END AS given,'
        " CASE WHEN t.given > 0 THEN t.set_aside_before - m.gone WHEN $2 THEN t.dead_letters - m.gone"
        "  ELSE t.set_aside_before END AS set_aside_before, t.batch_rows_written + m.n AS batch_rows_written,"
        " t.batch_partition_parsed_rows + m.n AS batch_partition_parsed_rows"
        f" FROM {BATCHES.sql} AS t JOIN {_MOVES} AS m ON t.batch_id = m.batch_id AND t.topic = m.topic"
        ' AND t.batch_source_partition_id = m."partition" AND t.batch_earliest_offset = m.start WHERE t.pipeline_name = $1',
        [pipeline, several],
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
            {"rows": 'l."rows" + c.n', "dead_letters": "l.dead_letters - c.gone"},
            f"SELECT {whole('coalesce(sum(n), 0)')} AS n, {whole('coalesce(sum(gone), 0)')} AS gone FROM {_MOVES}",
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
    for table in (_FATES.sql, _GAINED.sql, _PLACED, _MOVES, _BECOME):  # a pool may keep the connection
        connection.execute(f"{dialect.drop_temporary} {table}")
