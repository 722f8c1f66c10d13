"""The ledger in a table: lanes read, and swapped all or none by comparing for equality."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kpipe.batch import Commit
from kpipe.errors import DestinationError, LedgerMismatch
from kpipe.ledger import Lane, LaneChange, Ledger, check_seal, fenced
from kpipe.source import PartitionId, TopicId
from kpipe.verdict import check_lanes
from resources.destinations.relational.dialect import Connection
from resources.destinations.relational.tables import LANES, PIPELINES

__all__ = ["read", "swap", "unregistered"]

_KEY = ("cluster_id", "topic_id", "topic", "partition", "lane_start")
_SAME_KEY = " AND ".join(f"l.{name} = c.{name}" for name in _KEY)


def read(connection: Connection, pipeline: str) -> tuple[str, Ledger]:
    """Registration id ("" when there is none) and ledger of one pipeline. The tables are there.

    Raises:
        LedgerMismatch: the lanes, or the pipeline's row, are not those that commits have left.
    """
    row = connection.execute(
        f"SELECT pipeline_id, seq, dead_letters, seal FROM {PIPELINES.sql} WHERE pipeline_name = $1", [pipeline]
    ).fetchone()
    found = _lanes(connection, pipeline)
    if row is None:
        if found:
            raise unregistered(pipeline)
        return "", Ledger(pipeline)
    ledger = Ledger(pipeline, row[1], found, row[2])
    check_seal(ledger, row[3], LANES.name)
    return row[0], ledger


def unregistered(pipeline: str) -> LedgerMismatch:
    """The error of lanes whose pipeline is not known."""
    return LedgerMismatch(
        f"pipeline {pipeline}: its row in {PIPELINES.name} is gone, {LANES.name} still holds its lanes",
        "restore a backup; or go on under another pipeline name, with source.start where the table ends",
    )


def swap(connection: Connection, commit: Commit) -> None:
    """Make every lane change of the commit, or raise; the first thing that its transaction does.

    Updates and deletes that match fewer lanes than they should are no error to SQL, so what they return is counted. The
    columns that change are in no index, so DuckDB reports a concurrent change of the same lane as a conflict at once.

    Raises:
        Fenced: a lane is not what its change expects.
        DestinationError: the changes contradict themselves.
    """
    changes = commit.changes
    if len({change.key for change in changes}) < len(changes):
        raise DestinationError(f"batch {commit.id} changes a lane twice")
    gone = [change.expect for change in changes if change.expect and not change.become]
    moved = [(change.expect, change.become) for change in changes if change.expect and change.become]
    fresh = [change.become for change in changes if change.become and not change.expect]
    done = _delete(connection, commit, gone) + _update(connection, commit, moved)
    if done < len(gone) + len(moved):
        found = _lanes(connection, commit.pipeline)
        wrong = next((c for c in changes if c.expect and found.get(c.key) != c.expect), changes[0])
        raise fenced(commit.pipeline, wrong, found.get(wrong.key))
    known = _lanes(connection, commit.pipeline) if fresh else {}
    for lane in fresh:
        if lane.key in known:
            raise fenced(commit.pipeline, LaneChange(None, lane), known[lane.key])
    rows = [{"pipeline_name": commit.pipeline, **_values(lane), "batch_id": commit.id} for lane in fresh]
    LANES.insert(connection, rows)
    if fresh or any(expect.end != become.end for expect, become in moved):
        check_lanes(_lanes(connection, commit.pipeline).values(), commit)


def _values(lane: Lane) -> dict[str, Any]:
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
    }


def _lanes(connection: Connection, pipeline: str) -> dict[tuple[PartitionId, int], Lane]:
    rows = connection.execute(
        f"SELECT cluster_id, topic_id, topic, partition, lane_start, next_offset, lane_end, kind FROM {LANES.sql}"
        " WHERE pipeline_name = $1",
        [pipeline],
    ).fetchall()
    topics: dict[tuple[str, str, str], TopicId] = {}
    lanes = (
        Lane(PartitionId(topics.setdefault(row[:3], TopicId(*row[:3])), row[3]), *row[4:])  # one object for each topic
        for row in rows
    )
    return {lane.key: lane for lane in lanes}


def _delete(connection: Connection, commit: Commit, lanes: Sequence[Lane]) -> int:
    if not lanes:
        return 0
    names = [*_KEY, "next_offset", "lane_end", "kind"]
    values = [_values(lane) for lane in lanes]
    sql = (
        f"DELETE FROM {LANES.sql} AS l USING ({LANES.unnested(names)}) AS c WHERE l.pipeline_name = $9 AND {_SAME_KEY}"
        " AND l.next_offset = c.next_offset AND l.lane_end IS NOT DISTINCT FROM c.lane_end AND l.kind = c.kind RETURNING 1"
    )
    parameters = [[value[name] for value in values] for name in names]
    return len(connection.execute(sql, [*parameters, commit.pipeline]).fetchall())


def _update(connection: Connection, commit: Commit, pairs: Sequence[tuple[Lane, Lane]]) -> int:
    if not pairs:
        return 0
    names = [*_KEY, "next_offset", "lane_end", "kind"]
    before = [_values(expect) for expect, _ in pairs]
    after = [_values(become) for _, become in pairs]
    sql = (
        f"UPDATE {LANES.sql} AS l SET next_offset = c.to_next, lane_end = c.to_end, kind = c.to_kind, batch_id = $12"
        f" FROM ({LANES.unnested(names)}, unnest($9::BIGINT[]) AS to_next, unnest($10::BIGINT[]) AS to_end,"
        f" unnest($11::VARCHAR[]) AS to_kind) AS c WHERE l.pipeline_name = $13 AND {_SAME_KEY}"
        " AND l.next_offset = c.next_offset AND l.lane_end IS NOT DISTINCT FROM c.lane_end AND l.kind = c.kind RETURNING 1"
    )
    parameters = [[value[name] for value in before] for name in names]
    parameters += [[value[name] for value in after] for name in ("next_offset", "lane_end", "kind")]
    return len(connection.execute(sql, [*parameters, commit.id, commit.pipeline]).fetchall())
