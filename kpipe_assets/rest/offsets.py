"""/connectors/NAME/offsets: read and change positions, by KIP-875. Changes are decisions that the ledger records."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from fastapi import APIRouter

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidStatement
from kpipe.planning.start_offsets import moments
from kpipe.sql import statements as s
from kpipe.topics import Part, PartitionId
from kpipe_assets.rest.problems import Problem, Safe
from kpipe_assets.rest.status import status
from kpipe_assets.rest.worker import Worker
from resources.destinations import open_destination

__all__ = ["parse", "router"]

_TOPIC, _PARTITION, _OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DONE = "The offsets for this connector have been {} successfully"
_REREAD = "add ?reread=true to read them again, which duplicates their rows"


def parse(offsets: Any) -> dict[tuple[str, int], int | None]:
    """Read the `offsets` of a body: the next offset by topic and partition; None: that of a new pipeline.

    Raises:
        Problem: an entry has another form, in the words of Connect.
    """
    if not isinstance(offsets, list) or not offsets:
        raise Problem(400, "Partitions / offsets need to be provided for an alter offsets request")
    found: dict[tuple[str, int], int | None] = {}
    for entry in offsets:
        if not isinstance(entry, Mapping) or set(entry) - {"partition", "offset"}:
            raise Problem(400, 'offsets: expected {"partition": ..., "offset": ...}')
        key, value = _partition(entry.get("partition")), _offset(entry.get("offset"))
        if key in found and found[key] != value:
            raise Problem(400, f"offsets: partition {key[1]} of topic {key[0]} is given twice")
        found[key] = value
    return found


def _partition(given: Any) -> tuple[str, int]:
    if not isinstance(given, Mapping):
        raise Problem(400, "The partition for a sink connector offset cannot be null or missing")
    if _TOPIC not in given or _PARTITION not in given:
        raise Problem(400, f"The partition for a sink connector offset must contain the keys '{_TOPIC}' and '{_PARTITION}'")
    if not isinstance(given[_TOPIC], str):
        raise Problem(400, "Kafka topic names must be valid strings and may not be null")
    if given[_PARTITION] is None:
        raise Problem(400, "Kafka partitions must be valid numbers and may not be null")
    return given[_TOPIC], _integer(given[_PARTITION], 1 << 31, "partition")


def _offset(given: Any) -> int | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or _OFFSET not in given:
        raise Problem(400, f"The offset for a sink connector should either be null or contain the key '{_OFFSET}'")
    return _integer(given[_OFFSET], 1 << 63, "offset")


def _integer(value: Any, bound: int, kind: str) -> int:
    """Return a whole number from 0 below the bound, written as a number or as a text.

    Raises:
        Problem: it is anything else, in the words of Connect.
    """
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not _INTEGER.fullmatch(text) or not 0 <= int(text) < bound:
        raise Problem(
            400,
            f"Failed to parse the following Kafka {kind} value in the provided offsets: '{value}'. "
            f"{kind.capitalize()} values for sink connectors need to be integers.",
        )
    return int(text)


#: The body of PATCH in the description; `parse` checks it in Connect's words.
_BODY: Final = {
    "requestBody": {
        "content": {
            "application/json": {
                "schema": {
                    "required": ["offsets"],
                    "properties": {
                        "offsets": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "properties": {
                                    "partition": {
                                        "type": "object",
                                        "properties": {
                                            "kafka_topic": {"type": "string"},
                                            "kafka_partition": {"type": "integer", "minimum": 0},
                                        },
                                        "required": ["kafka_topic", "kafka_partition"],
                                    },
                                    "offset": {
                                        "type": ["object", "null"],
                                        "properties": {"kafka_offset": {"type": "integer", "minimum": 0}},
                                        "required": ["kafka_offset"],
                                    },
                                },
                                "required": ["partition", "offset"],
                            },
                        }
                    },
                }
            }
        }
    }
}


def router(worker: Worker) -> APIRouter:
    """Return the resources of positions."""
    routes = APIRouter(prefix="/connectors/{connector}/offsets", tags=["Kafka Connect: offsets"])

    @routes.get("", summary="Get the next offset of each partition, from the ledger")
    def current(connector: str) -> Any:
        _, ledger = open_destination(worker.definition(connector), worker.home).ledger()
        positions = sorted(ledger.positions().items())
        return Safe({"offsets": [_entry(source, offset) for source, offset in positions]})

    @routes.patch("", summary="Seek to offsets; the connector must be stopped", openapi_extra=_BODY)
    def alter(connector: str, body: dict[str, Any], reread: bool = False) -> Any:
        with worker.changing(connector):
            pipeline = _stopped(worker, connector)
            targets = parse(body.get("offsets"))
            _seek(worker, pipeline, targets, reread)
        return Safe({"message": _DONE.format("altered")})

    @routes.delete("", summary="Seek to where a new pipeline would begin; the connector must be stopped")
    def reset(connector: str, reread: bool = False) -> Any:
        with worker.changing(connector):
            pipeline = _stopped(worker, connector)
            _, ledger = open_destination(pipeline, worker.home).ledger()
            known = {(source.topic.name, source.partition) for source in ledger.positions()}
            _seek(worker, pipeline, _beginnings(pipeline, known) if known else {}, reread)
        return Safe({"message": _DONE.format("reset")})

    return routes


def _entry(source: PartitionId, offset: int) -> dict[str, Any]:
    return {"partition": {_TOPIC: source.topic.name, _PARTITION: source.partition}, "offset": {_OFFSET: offset}}


def _stopped(worker: Worker, name: str) -> Pipeline:
    """Return the definition of a stopped connector.

    Raises:
        Problem: there is none, or it is not stopped; in the words of Connect.
    """
    pipeline = worker.definition(name)
    if status(worker, name)["connector"]["state"] != "STOPPED":
        raise Problem(
            400,
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the specified "
            f"connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint",
        )
    return pipeline


def _seek(worker: Worker, pipeline: Pipeline, targets: Mapping[tuple[str, int], int | None], reread: bool) -> None:
    """Execute ALTER PIPELINE ... SET OFFSETS. Offsets that have been read are read again on demand only."""
    multi, names = pipeline.source.multi_topic, pipeline.source.names
    for topic, _ in targets:
        if names and topic not in names:
            raise Problem(400, f"offsets: topic {topic} is not read by this connector: expected {', '.join(names)}")
    begins = {key for key, offset in targets.items() if offset is None}
    beginnings = _beginnings(pipeline, begins) if begins else {}
    for topic, number in sorted(begins - beginnings.keys()):
        raise Problem(400, f"offsets: partition {number} of topic {topic} does not exist")
    moves: dict[Part, int] = {
        f"{topic}:{number}" if multi else number: beginnings[topic, number] if offset is None else offset
        for (topic, number), offset in targets.items()
    }
    if not moves:
        return
    try:
        worker.execute(s.Alter(pipeline.name, (s.SetOffsets(moves, reread),)))
    except InvalidStatement as error:
        if "REREAD" in error.hint:
            error.hint = _REREAD
        raise


def _beginnings(pipeline: Pipeline, wanted: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return where `source.start` begins those of the partitions that exist and that the definition reads."""
    from resources.sources.open_source import topics_of

    topics = topics_of(pipeline)
    snapshot = topics.snapshot()
    sources = [source for source in snapshot.partitions if (source.topic.name, source.partition) in wanted]
    starts = moments(pipeline.source.start, topics, snapshot, sources, "source.start", {topic for topic, _ in wanted})
    return {
        (source.topic.name, source.partition): starts.get(source, snapshot.partitions[source].log_start) for source in sources
    }
