"""Serialize a commit with the fields of its definition that decide its requests, so that another process can finish it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from kpipe.batch.batch import Commit, Counts, Mark, StagedFile, TableWrite
from kpipe.batch.table_write import ByLane
from kpipe.definition.pipeline import Into
from kpipe.ledger import format_version
from kpipe.ledger.ledger import Lane, LaneChange, Step
from kpipe.ledger.tail import Tail
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId

__all__ = ["FIXED", "STEPS", "block_bytes", "fixed", "from_text", "to_text"]

_T = TypeVar("_T")

#: Fields of `into` that decide a request's key or body. They are stored with the batch; an edited definition applies to the next
#: batch. `table` is part of the key. `max_records`, `max_bytes`, `concurrency` and the size of `body` decide which rows share a
#: request. URL, headers, credentials, time limits and `errors` decide neither key nor body, and may change.
FIXED = ("table", "body", "envelope", "max_records", "max_bytes", "concurrency")

_BLOCK_BYTES = "block_bytes"


def fixed(into: Into, text: str) -> Into:
    """Return the definition's fields, with those that were stored with the batch in that text.

    Raises:
        ValueError: the text was not written by `to_text`.
    """
    return into.model_copy(update=json.loads(text).get("into", {}))


def block_bytes(text: str) -> int | None:
    """Return the limit of bytes in a block of rows that was stored with the batch; None: it was begun without a limit.

    Rows of one request are of one window of blocks, so the limit decides keys as `FIXED` does.

    Raises:
        ValueError: the text was not written by `to_text`.
    """
    size: int | None = json.loads(text).get(_BLOCK_BYTES)
    return size


def to_text(commit: Commit, into: Into | None = None, size: int | None = None) -> str:
    """Serialize a commit, the fields of its definition that are stored with it, and the limit of `block_bytes`."""
    said = {
        format_version.MEMBER: format_version.FORMAT_VERSION,
        "id": commit.id, "pipeline": commit.pipeline, "kind": commit.kind,
        "changes": [[_lane(change.expect), _lane(change.become)] for change in commit.changes],
        "steps": [[_lane(step.lane), step.end, step.closed_by] for step in commit.steps],
        "tables": [_table(write) for write in commit.tables],
        "records": _by_lane(commit.records),
        "dead_letters": [asdict(file) for file in commit.dead_letters],
        "ends": [[_source(source), *ends] for source, ends in commit.ends.items()],
        "metadata": [[_source(source), dict(values)] for source, values in commit.metadata.items()],
        "run_id": commit.run_id, "version": commit.version, "started_ms": commit.started_ms, "seconds": commit.seconds,
        "task_seconds": [[_source(source), start, took] for (source, start), took in commit.task_seconds.items()],
        "note": commit.note, "several": commit.multi_topic,
        **({"into": {name: getattr(into, name) for name in FIXED}} if into is not None else {}),
        **({_BLOCK_BYTES: size} if size is not None else {}),
    }  # fmt: skip
    return json.dumps(said, default=str)


def from_text(text: str, where: str = "the outbox") -> Commit:
    """Parse the text of `to_text`.

    Raises:
        FormatTooNew: a newer kpipe wrote it.
        ValueError, LookupError, TypeError: the text is not a commit.
    """
    said: Mapping[str, Any] = format_version.upgraded(json.loads(text), where, STEPS)
    return Commit(
        id=said["id"],
        pipeline=said["pipeline"],
        changes=tuple(LaneChange(_lane_of(expect), _lane_of(become)) for expect, become in said["changes"]),
        kind=said["kind"],
        steps=tuple(Step(_known(lane), end, closed_by) for lane, end, closed_by in said["steps"]),
        tables=tuple(map(_table_of, said["tables"])),
        records=_by_lane_of(Counts, said["records"]),
        dead_letters=_files_of(said["dead_letters"]),
        ends={_source_of(source): (start, high) for source, start, high in said["ends"]},
        metadata={_source_of(source): values for source, values in said["metadata"]},
        # An outbox of an older kpipe does not contain it.
        task_seconds={(_source_of(source), start): took for source, start, took in said.get("task_seconds", ())},
        **{name: said[name] for name in ("run_id", "version", "started_ms", "seconds", "note")},
        multi_topic=said["several"],
    )


def _table(write: TableWrite) -> dict[str, Any]:
    return {
        "table": write.table,
        "columns": [[name, str(kind)] for name, kind in write.columns],
        **{name: [asdict(file) for file in getattr(write, name)] for name in ("files", "deletes")},
        **{name: _by_lane(getattr(write, name)) for name in ("counts", "marks")},
    }


def _table_of(said: Mapping[str, Any]) -> TableWrite:
    return TableWrite(
        said["table"],
        Columns.of(dict(said["columns"])),
        _files_of(said["files"]),
        _files_of(said["deletes"]),
        _by_lane_of(Counts, said["counts"]),
        _by_lane_of(Mark, said["marks"]),
    )


def _files_of(said: Sequence[Mapping[str, Any]]) -> tuple[StagedFile, ...]:
    return tuple(StagedFile(**file) for file in said)


def _by_lane(found: Mapping[ByLane, Any]) -> list[list[Any]]:
    return [[_source(source), start, asdict(item)] for (source, start), item in found.items()]


def _by_lane_of(kind: Callable[..., _T], said: Sequence[Any]) -> dict[ByLane, _T]:
    return {(_source_of(source), start): kind(**item) for source, start, item in said}


def _source(source: PartitionId) -> list[Any]:
    return [source.topic.cluster, source.topic.topic_id, source.topic.name, source.partition]


def _source_of(said: list[Any]) -> PartitionId:
    return PartitionId(TopicId(*said[:3]), said[3])


def _lane(lane: Lane | None) -> list[Any] | None:
    if lane is None:
        return None
    return [_source(lane.source), lane.start, lane.next, lane.end, lane.kind, lane.tail and lane.tail.text]


def _lane_of(said: list[Any] | None) -> Lane | None:
    return None if said is None else _known(said)


def _known(said: list[Any]) -> Lane:
    source, start, following, end, kind, *more = said  # before format 2, without a fingerprint
    return Lane(_source_of(source), start, following, end, kind, Tail.read(next(iter(more), None), following))


def _with_tables(said: dict[str, Any]) -> None:
    """Upgrade from format 0, in which the fields of the only table were among the others, with the counts of the ledger."""
    counts = [(source, start, Counts(**item)) for source, start, item in said.pop("counts")]
    table = {name: said.pop(name) for name in ("columns", "files", "deletes", "marks")}
    table["table"] = said.get("into", {}).get("table", "")
    table["counts"] = [[source, start, asdict(item.of_rows)] for source, start, item in counts]
    said["tables"] = [table]
    said["records"] = [[source, start, asdict(item.of_records)] for source, start, item in counts]


#: By the format that each upgrades from: the batch may have been begun by an older kpipe.
STEPS: dict[int, Callable[[dict[str, Any]], None]] = {0: _with_tables, 1: format_version.unchanged}
