"""Dead letters that become rows: the rows, what is left of the letters and the counts of their ranges in one transaction."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kpipe.batch import Committed
from kpipe.errors import Fenced, LedgerMismatch, StagingFailed
from kpipe.faults import reach
from kpipe.ledger import Ledger
from kpipe.replay import DeadLetter, Replay
from kpipe.source import PartitionId, TopicId
from resources.destinations.duckdb.connection import Connection
from resources.destinations.duckdb.target import READ
from resources.destinations.outcome import Failure, land
from resources.destinations.relational import holdings, lanes, records
from resources.destinations.relational.destination import RelationalDestination
from resources.destinations.relational.matching import missing
from resources.destinations.relational.tables import BATCHES, COMMITS, ERRORS, PIPELINES
from resources.destinations.rows import commit_row
from resources.destinations.staged import Proven, added, verify

__all__ = ["ReplayingDestination"]

_PAGE_BYTES = 64 << 20  # of values, beyond which a page takes no more
_FATES, _MOVES = "temp.kpipe_replayed", "temp.kpipe_moved"

# The range that a dead letter belongs to: within a batch, a topic's name stands for one topic, and ranges are disjoint.
_RANGE = (
    "b.pipeline_name = $1 AND b.batch_id = e.batch_id AND b.topic = e.topic"
    ' AND b.batch_source_partition_id = e."partition"'
    ' AND e."offset" >= b.batch_earliest_offset AND e."offset" < b.batch_latest_offset'
    " AND lower(b.target_table) = lower($2)"
)
_PAGE = (
    "WITH e AS (SELECT e.*, b.cluster_id, b.topic_id,"
    '  row_number() OVER (PARTITION BY e."partition", e."offset" ORDER BY e.error_id) AS nth'
    f" FROM {ERRORS.sql} AS e JOIN {BATCHES.sql} AS b ON {_RANGE}"
    ' WHERE e.pipeline_name = $1 AND e.dead_letter AND e."offset" IS NOT NULL AND e.error_id > $3),'
    " w AS (SELECT *, max(nth) OVER before AS most, coalesce(octet_length(load_data_line), 0) AS size,"
    "  sum(coalesce(octet_length(load_data_line), 0)) OVER before AS sizes FROM e"
    "  WINDOW before AS (ORDER BY error_id ROWS UNBOUNDED PRECEDING))"
    ' SELECT error_id, batch_id, cluster_id, topic_id, topic, "partition", "offset",'
    ' coalesce(epoch_us(kafka_timestamp) // 1000, -1), "key", load_data_line, headers'
    " FROM w WHERE most = 1 AND sizes - size < $4 ORDER BY error_id LIMIT $5"
)


class ReplayingDestination(RelationalDestination):
    """A destination that can move dead letters to rows (kpipe/replay.py)."""

    def letters(self, after: int, limit: int) -> Sequence[DeadLetter]:
        """See `Replaying`."""

        def read(connection: Any) -> Sequence[DeadLetter]:
            found = connection.execute(_PAGE, [self.pipeline, self.table, after, _PAGE_BYTES, limit]).fetchall()
            return [
                DeadLetter(
                    id=number,
                    batch=batch,
                    source=PartitionId(TopicId(cluster, topic_id, topic), partition),
                    offset=offset,
                    timestamp=timestamp,
                    key=key,
                    value=value,
                    headers=None if headers is None else [(item["name"], item["value"]) for item in headers],
                )
                for number, batch, cluster, topic_id, topic, partition, offset, timestamp, key, value, headers in found
            ]

        return self._read_registered(read, [])

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
            rows, dead = verify(commit.files, self.staging), verify(commit.dead_letters, self.staging)
            records.check_letters(dead)
            enter("open")
            with self._writing() as connection:
                enter("begin")
                known, there = self._begin(connection)
                enter("ledger")  # the compare-and-swap: all of them still are dead letters of this registration
                registered = lanes.read(connection, self.pipeline)[0] if known else ""
                if registered != replay.registered:
                    raise _overtaken(self.pipeline, "it was registered anew")
                _decide(connection, self.pipeline, self.table, replay, rows, dead)
                enter("register")
                seq, written, _ = records.register(connection, commit, self.table, self.config)
                if rows:
                    enter("table")
                    if written and not there:
                        raise missing(self.pipeline, self.table, written)
                    columns = self._prepare(connection, there, commit, rows)
                    enter("data")
                    self._insert(connection, commit, rows, columns)
                    if holdings.known(connection, self.table):
                        holdings.move(connection, self.table, added(rows))
                enter("dead_letters")
                _take_away(connection, self.pipeline, commit.version)
                enter("history")
                _recount(connection, self.pipeline, replay.several)
                COMMITS.insert(connection, [commit_row(commit, self.table, seq)])
                enter("before")
                self._commit(connection)
                enter("after")
        except Exception as error:
            return self._failure(error, step, commit)
        return None


def _overtaken(pipeline: str, why: str) -> Fenced:
    return Fenced(
        f"pipeline {pipeline}: {why} since the dead letters were read; nothing of this replay was written", "run it again"
    )


def _decide(
    connection: Connection, pipeline: str, table: str, replay: Replay, rows: Sequence[Proven], dead: Sequence[Proven]
) -> None:
    """What becomes of each letter, by partition and offset, as a temporary table; and of the ranges that they belong to.

    Raises:
        Fenced: one of them is no dead letter any more.
        LedgerMismatch: the history does not have the range of one.
        StagingFailed: the files speak of other records.
    """
    letters = replay.letters
    nothing = 'SELECT NULL::INTEGER AS "partition", NULL::BIGINT AS "offset"'
    # Parameters of files stand behind those of the letters; a list that is empty is no list of files to DuckDB.
    given = (
        f'SELECT _kafka_partition AS "partition", _kafka_offset AS "offset" FROM {READ.format("$8")}'
        if rows
        else f"{nothing} WHERE len($8::VARCHAR[]) > 0"
    )
    again = (
        f'SELECT "partition", "offset", stage, reason FROM {READ.format("$9")}'
        if dead
        else f"{nothing}, NULL::VARCHAR AS stage, NULL::VARCHAR AS reason WHERE len($9::VARCHAR[]) > 0"
    )
    connection.execute(
        f"CREATE TEMP TABLE {_FATES.removeprefix('temp.')} AS"
        " WITH l AS (SELECT unnest($3::BIGINT[]) AS error_id, unnest($4::VARCHAR[]) AS batch_id,"
        '  unnest($5::VARCHAR[]) AS topic, unnest($6::INTEGER[]) AS "partition", unnest($7::BIGINT[]) AS "offset"),'
        f' g AS (SELECT "partition", "offset", count(*) AS n FROM ({given}) GROUP BY ALL),'
        f" d AS ({again}),"
        f" e AS (SELECT l.* FROM l JOIN {ERRORS.sql} AS x USING (error_id, batch_id, topic, \"partition\", \"offset\")"
        "  WHERE x.pipeline_name = $1 AND x.dead_letter)"
        " SELECT e.*, coalesce(g.n, 0) AS n, d.stage, d.reason, d.\"offset\" IS NOT NULL AS again,"
        " b.batch_earliest_offset AS start"
        ' FROM e LEFT JOIN g USING ("partition", "offset") LEFT JOIN d USING ("partition", "offset")'
        f" LEFT JOIN {BATCHES.sql} AS b ON {_RANGE}",
        [
            pipeline, table, [letter.id for letter in letters], [letter.batch for letter in letters],
            [letter.source.topic.name for letter in letters], [letter.source.partition for letter in letters],
            [letter.offset for letter in letters], [file.path for file in rows], [file.path for file in dead],
        ],
    )  # fmt: skip
    row = connection.execute(
        "SELECT count(*), count(DISTINCT error_id), count(start), coalesce(sum(n), 0)::BIGINT, count(*) FILTER (again),"
        f" count(*) FILTER (again AND n > 0) FROM {_FATES}"
    ).fetchone()
    assert row is not None
    found, different, ranges, gained, failed, both = row
    if different < len(letters):
        raise _overtaken(
            pipeline, f"{len(letters) - different} of {len(letters)} are dead letters no more: another retry was first"
        )
    if found != different or ranges != different:
        raise LedgerMismatch(
            f"pipeline {pipeline}: the history does not have one range for each dead letter",
            "restore a backup; nothing was written",
        )
    staged = sum(file.rows for file in rows), sum(file.rows for file in dead)
    if (gained, failed) != staged or both:
        raise StagingFailed(
            f"replay {replay.commit.id}: {staged[0]} rows and {staged[1]} dead letters are staged, of the records that were tried"
            f" come {gained} and {failed}, both of {both}"
        )


def _take_away(connection: Connection, pipeline: str, version: str) -> None:
    """Those that gave rows, or none on purpose, are dead letters no more; the others have a new reason."""
    connection.execute(
        f"UPDATE {ERRORS.sql} AS e SET error_message = f.reason, stage = f.stage, version = $2 FROM {_FATES} AS f"
        " WHERE e.pipeline_name = $1 AND e.dead_letter AND e.error_id = f.error_id AND f.again",
        [pipeline, version],
    )
    connection.execute(
        f"DELETE FROM {ERRORS.sql} AS e USING {_FATES} AS f"
        " WHERE e.pipeline_name = $1 AND e.dead_letter AND e.error_id = f.error_id AND NOT f.again",
        [pipeline],
    )


def _recount(connection: Connection, pipeline: str, several: bool) -> None:
    """Move their counts from dead letters to rows, or to filtered: in their ranges, in the commits of these, and in all.

    Where a record may give several rows, the range counts the records that were given beside the rows (kpipe.batch.Counts);
    one that has not, as each of its records gave one row, begins to.
    """
    connection.execute(
        f"CREATE TEMP TABLE {_MOVES.removeprefix('temp.')} AS"
        ' SELECT batch_id, topic, "partition", start, sum(n)::BIGINT AS n, count(*) FILTER (n > 0) AS answered,'
        f" count(*) FILTER (n = 0) AS filtered, count(*) AS gone FROM {_FATES} WHERE NOT again GROUP BY ALL"
    )
    moved = (
        '"rows" = t."rows" + m.n, inserted = t.inserted + m.n, dead_letters = t.dead_letters - m.gone,'
        " filtered = t.filtered + m.filtered,"
        ' given = CASE WHEN t.given > 0 THEN t.given + m.answered WHEN $2 THEN t."rows" + m.answered ELSE 0 END,'
        " set_aside_before = CASE WHEN t.given > 0 THEN t.set_aside_before - m.gone"
        " WHEN $2 THEN t.dead_letters - m.gone ELSE t.set_aside_before END"
    )
    connection.execute(
        f"UPDATE {BATCHES.sql} AS t SET {moved}, batch_rows_written = t.batch_rows_written + m.n,"
        f" batch_partition_parsed_rows = t.batch_partition_parsed_rows + m.n FROM {_MOVES} AS m"
        " WHERE t.pipeline_name = $1 AND t.batch_id = m.batch_id AND t.topic = m.topic"
        ' AND t.batch_source_partition_id = m."partition" AND t.batch_earliest_offset = m.start',
        [pipeline, several],
    )
    names = ("rows", "inserted", "dead_letters", "filtered", "given", "set_aside_before")
    sums = ", ".join(f'sum("{name}")::BIGINT AS "{name}"' for name in names)
    same = ", ".join(f'"{name}" = s."{name}"' for name in names)
    connection.execute(
        f"UPDATE {COMMITS.sql} AS t SET {same}"
        f" FROM (SELECT batch_id, {sums} FROM {BATCHES.sql} WHERE pipeline_name = $1"
        f" AND batch_id IN (SELECT batch_id FROM {_MOVES}) GROUP BY batch_id) AS s"
        " WHERE t.pipeline_name = $1 AND t.batch_id = s.batch_id",
        [pipeline],
    )
    connection.execute(
        f'UPDATE {PIPELINES.sql} AS t SET "rows" = t."rows" + s.n, dead_letters = t.dead_letters - s.gone'
        f" FROM (SELECT coalesce(sum(n), 0)::BIGINT AS n, coalesce(sum(gone), 0)::BIGINT AS gone FROM {_MOVES}) AS s"
        " WHERE t.pipeline_name = $1",
        [pipeline],
    )
