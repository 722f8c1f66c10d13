"""Read the lanes from a table, and swap them by compare-and-swap: all or none."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError, LedgerMismatch
from kpipe.ledger.ledger import Conflict, Lane, LaneChange, Ledger, verify_checksum
from kpipe.ledger.tail import Tail
from kpipe.topics import PartitionId, TopicId
from resources.destinations.sql.ledger.table_definitions import LANES, PIPELINES
from resources.destinations.sql.sql_dialect import Connection, Dialect, quote

__all__ = ["lane_row", "read", "swap", "unregistered"]

_KEY = ("cluster_id", "topic_id", "topic", "partition", "lane_start")
_LANE = (*_KEY, "next_offset", "lane_end", "kind", "tail")
_GIVEN = [(name, LANES.columns[name]) for name in _LANE]


def read(connection: Connection, pipeline: str) -> tuple[str, Ledger]:
    """Return the registration id ("" if the pipeline is not registered) and the ledger of one pipeline. The tables exist.

    Raises:
        LedgerMismatch: the lanes, or the pipeline's row, were changed by other means than commits.
    """
    row = connection.execute(
        f"SELECT pipeline_id, seq, dead_letters, seal FROM {PIPELINES.sql} WHERE pipeline_name = $1", [pipeline]
    ).fetchone()
    found = lanes(connection, pipeline)
    if row is None:
        if found:
            raise unregistered(pipeline)
        return "", Ledger(pipeline)
    ledger = Ledger(pipeline, row[1], found, row[2])
    verify_checksum(ledger, row[3], LANES.name)
    return row[0], ledger


def unregistered(pipeline: str) -> LedgerMismatch:
    """Return the error of lanes whose pipeline is not registered."""
    return LedgerMismatch(
        f"pipeline {pipeline}: its row in {PIPELINES.name} is missing, but {LANES.name} contains its lanes",
        "restore a backup; or use another pipeline name, with source.start at the end of the table",
    )


def swap(connection: Connection, dialect: Dialect, commit: Commit) -> None:
    """Apply every lane change of the commit, or raise, as the first step of its transaction.

    SQL does not fail if an UPDATE or DELETE matches fewer lanes than expected, so their rows are counted. The columns that
    change are in no index, so DuckDB reports a concurrent change of the same lane as a conflict at once.

    Raises:
        Fenced: a lane differs from what its change expects.
        DestinationError: the changes contradict each other.
    """
    changes = commit.changes
    if len({change.key for change in changes}) < len(changes):
        raise DestinationError(f"batch {commit.id} changes a lane twice")
    gone = [change.expect for change in changes if change.expect and not change.become]
    moved = [(change.expect, change.become) for change in changes if change.expect and change.become]
    fresh = [change.become for change in changes if change.become and not change.expect]
    done = _delete(connection, dialect, commit, gone) + _update(connection, dialect, commit, moved)
    if done < len(gone) + len(moved):
        found = lanes(connection, commit.pipeline)
        stale = [change for change in changes if change.expect]
        # Prefer a lane that this commit has not changed.
        wrong = next((change for change in stale if found.get(change.key) != change.become), stale[0])
        raise Conflict(commit.pipeline, wrong, found.get(wrong.key)).error(commit.id)
    known = lanes(connection, commit.pipeline) if fresh else {}
    for lane in fresh:
        if lane.key in known:
            raise Conflict(commit.pipeline, LaneChange(None, lane), known[lane.key]).error(commit.id)
    rows = [{"pipeline_name": commit.pipeline, **lane_row(lane), "batch_id": commit.id} for lane in fresh]
    LANES.insert(connection, dialect, rows)
    if fresh or any(expect.end != become.end for expect, become in moved):
        conflict = Ledger(commit.pipeline, lanes=lanes(connection, commit.pipeline)).overlap(changes)
        if conflict is not None:
            raise conflict.error(commit.id)


def lane_row(lane: Lane) -> dict[str, Any]:
    """Return the columns of a lane."""
    topic = lane.source.topic
    return {
        "cluster_id": topic.cluster,
        "topic_id": topic.topic_id,
        "topic": topic.name,
        "partition": lane.source.partition,
        "lane_start": lane.start,
        "next_offset": lane.next,
        "lane_end": lane.end,
        "kind": lane.kind,
        "tail": lane.tail and lane.tail.text,
    }


def lanes(connection: Connection, pipeline: str) -> dict[tuple[PartitionId, int], Lane]:
    """Read the lanes of a pipeline. Before format 2, the table has no fingerprints.

    Raises:
        LedgerMismatch: they were changed by other means than commits.
    """
    result = connection.execute(f"SELECT * FROM {LANES.sql} WHERE pipeline_name = $1", [pipeline])
    names = [column[0] for column in result.description]
    try:
        places = [names.index(name) for name in _LANE if name in names or name != "tail"]
        rows = [[row[at] for at in places] for row in result.fetchall()]
        topics: dict[tuple[str, str, str], TopicId] = {}
        lanes = {}
        for cluster, topic_id, name, partition, start, following, end, kind, *tail in rows:
            id = (cluster, topic_id, name)
            source = PartitionId(topics.setdefault(id, TopicId(*id)), partition)  # one object per topic
            lanes[source, start] = Lane(source, start, following, end, kind, Tail.read(tail[0], following) if tail else None)
    except (ValueError, TypeError) as error:
        what = f"pipeline {pipeline}: the ledger in {LANES.name} was changed by hand: {error}"
        raise LedgerMismatch(what, "restore a backup") from None
    return lanes


def _delete(connection: Connection, dialect: Dialect, commit: Commit, lanes: Sequence[Lane]) -> int:
    if not lanes:
        return 0
    rows = [list(lane_row(lane).values()) for lane in lanes]
    sql = dialect.delete(LANES.sql, dialect.rows(_GIVEN, 2), f"l.pipeline_name = $1 AND {_expected(dialect)}")
    return dialect.change(connection, sql, [commit.pipeline, *dialect.given(rows, len(_GIVEN))])


def _update(connection: Connection, dialect: Dialect, commit: Commit, pairs: Sequence[tuple[Lane, Lane]]) -> int:
    if not pairs:
        return 0
    to = [("to_next", "BIGINT"), ("to_end", "BIGINT"), ("to_kind", "VARCHAR"), ("to_tail", "VARCHAR")]
    rows = [
        [*lane_row(expect).values(), become.next, become.end, become.kind, become.tail and become.tail.text]
        for expect, become in pairs
    ]
    sql = dialect.update(
        LANES.sql,
        {"next_offset": "c.to_next", "lane_end": "c.to_end", "kind": "c.to_kind", "tail": "c.to_tail", "batch_id": "$2"},
        dialect.rows(_GIVEN + to, 3),
        f"l.pipeline_name = $1 AND {_expected(dialect)}",
    )
    return dialect.change(connection, sql, [commit.pipeline, commit.id, *dialect.given(rows, len(_GIVEN) + len(to))])


def _expected(dialect: Dialect) -> str:
    """Return the condition that a lane of the table equals a lane of the parameters."""
    key = " AND ".join(f"l.{quote(name)} = c.{quote(name)}" for name in _KEY)
    same = [dialect.same.format(f"l.{name}", f"c.{name}") for name in ("lane_end", "tail")]
    return f"{key} AND l.next_offset = c.next_offset AND l.kind = c.kind AND {' AND '.join(same)}"
