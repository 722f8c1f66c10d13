"""A commit as text, with the fields of the definition that decide its requests, so that another process can finish it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kpipe.batch.batch import Commit, Counts, Mark, StagedFile
from kpipe.definition.pipeline import Into
from kpipe.ledger.ledger import Lane, LaneChange, Step
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId

__all__ = ["FIXED", "fixed", "from_text", "to_text"]

#: Fields of `into` that decide a request's key or its body. They are stored with the batch, and an edited definition applies to
#: the next one. `table` is part of the key. `max_records`, `max_bytes` and `concurrency` decide which rows share a request, and
#: so does the size of `body`. URL, headers, credentials, time limits and `errors` decide neither, and may change.
FIXED = ("table", "body", "envelope", "max_records", "max_bytes", "concurrency")


def fixed(into: Into, text: str) -> Into:
    """Return the definition's fields with those that are stored with the batch of that text.

    Raises:
        ValueError: the text is not one of `to_text`.
    """
    return into.model_copy(update=json.loads(text).get("into", {}))


def to_text(commit: Commit, into: Into | None = None) -> str:
    """Write a commit without further tables, and the fields of its definition that are fixed with it."""
    assert not commit.also
    said = {
        "id": commit.id, "pipeline": commit.pipeline, "kind": commit.kind,
        "changes": [[_lane(change.expect), _lane(change.become)] for change in commit.changes],
        "steps": [[_lane(step.lane), step.end, step.closed_by] for step in commit.steps],
        "columns": [[name, str(kind)] for name, kind in commit.columns],
        **{name: [asdict(file) for file in getattr(commit, name)] for name in ("files", "dead_letters", "deletes")},
        "counts": [[_source(source), start, asdict(found)] for (source, start), found in commit.counts.items()],
        "marks": [[_source(source), start, asdict(found)] for (source, start), found in commit.marks.items()],
        "ends": [[_source(source), *ends] for source, ends in commit.ends.items()],
        "metadata": [[_source(source), dict(values)] for source, values in commit.metadata.items()],
        "run_id": commit.run_id, "version": commit.version, "started_ms": commit.started_ms, "seconds": commit.seconds,
        "note": commit.note, "several": commit.several,
        **({"into": {name: getattr(into, name) for name in FIXED}} if into is not None else {}),
    }  # fmt: skip
    return json.dumps(said, default=str)


def from_text(text: str) -> Commit:
    """The commit of `to_text`.

    Raises:
        ValueError, LookupError, TypeError: it is not one.
    """
    said: Mapping[str, Any] = json.loads(text)
    files: dict[str, Any] = {
        name: tuple(StagedFile(**file) for file in said[name]) for name in ("files", "dead_letters", "deletes")
    }  # fmt: skip
    return Commit(
        id=said["id"],
        pipeline=said["pipeline"],
        changes=tuple(LaneChange(_lane_of(expect), _lane_of(become)) for expect, become in said["changes"]),
        kind=said["kind"],
        steps=tuple(Step(_known(lane), end, closed_by) for lane, end, closed_by in said["steps"]),
        columns=Columns.of(dict(said["columns"])),
        counts={(_source_of(source), start): Counts(**found) for source, start, found in said["counts"]},
        marks={(_source_of(source), start): Mark(**found) for source, start, found in said["marks"]},
        ends={_source_of(source): (start, high) for source, start, high in said["ends"]},
        metadata={_source_of(source): values for source, values in said["metadata"]},
        **files,
        **{name: said[name] for name in ("run_id", "version", "started_ms", "seconds", "note", "several")},
    )


def _source(source: PartitionId) -> list[Any]:
    return [source.topic.cluster, source.topic.topic_id, source.topic.name, source.partition]


def _source_of(said: list[Any]) -> PartitionId:
    return PartitionId(TopicId(*said[:3]), said[3])


def _lane(lane: Lane | None) -> list[Any] | None:
    return None if lane is None else [_source(lane.source), lane.start, lane.next, lane.end, lane.kind]


def _lane_of(said: list[Any] | None) -> Lane | None:
    return None if said is None else _known(said)


def _known(said: list[Any]) -> Lane:
    source, start, following, end, kind = said
    return Lane(_source_of(source), start, following, end, kind)
