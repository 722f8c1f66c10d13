"""Parse offsets as users of Kafka write them, and find the pipeline that reads a topic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, KpipeError
from kpipe.ledger.ledger import Ledger
from kpipe.topics import PartitionId
from resources.home import Home

__all__ = ["Position", "instant", "named_pipeline", "newest", "position", "wanted"]

_TOPIC = r"(?:[A-Za-z0-9._-]{1,249}|.*/.*)"
_POSITION = re.compile(rf"({_TOPIC}):([0-9]{{1,10}}):([0-9]{{1,19}})")
_WANTED = re.compile(rf"(?:({_TOPIC}):)?([0-9]{{1,10}})=([0-9]{{1,19}})")
_LAST_PARTITION, _LAST_OFFSET = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True)
class Position:
    """An offset of a topic's partition."""

    topic: str
    partition: int
    offset: int


def position(text: str) -> Position | None:
    """Parse `TOPIC:PARTITION:OFFSET`; None: the text has another form."""
    match = _POSITION.fullmatch(text)
    if match is None or int(match[2]) > _LAST_PARTITION or int(match[3]) > _LAST_OFFSET:
        return None
    return Position(match[1], int(match[2]), int(match[3]))


def named_pipeline(home: Home, name: str | None, topic: str) -> Pipeline:
    """Return the pipeline of that name, or the only one of the home that reads the topic.

    Raises:
        InvalidPipeline: it does not exist; or no name is given, and no pipeline, or more than one, reads the topic.
    """
    if name is not None:
        return home.pipeline(name)
    found: list[Pipeline] = []
    for known in home.names():
        try:
            pipeline = home.pipeline(known)
        except KpipeError as error:
            raise InvalidPipeline(
                f"topic {topic}: the pipeline that reads it is not determined: {known} does not load: {error.what}",
                "write the pipeline's name before the offset",
            ) from error
        source = pipeline.source
        if topic in source.names or (source.topic_pattern and re.search(source.topic_pattern, topic)):
            found.append(pipeline)
    if len(found) != 1:
        names = ", ".join(pipeline.name for pipeline in found) or "none"
        raise InvalidPipeline(
            f"topic {topic}: expected one pipeline that reads it, found {names}", "write the pipeline's name before the offset"
        )
    return found[0]


def newest(ledger: Ledger, topic: str | None, partition: int) -> PartitionId | None:
    """Return the source of a topic's partition; of a recreated topic, that of the open lane; None: not in the ledger.

    Args:
        ledger: of the pipeline.
        topic: its name; None: the only topic of the ledger.
        partition: its number.

    Raises:
        InvalidPipeline: the topic is not named, and the ledger has several.
    """
    names = sorted({source.topic.name for source in ledger.sources()})
    if topic is None and len(names) > 1:
        raise InvalidPipeline(
            f"partition {partition}: the ledger of pipeline {ledger.pipeline} has several topics",
            f"write TOPIC:{partition}=OFFSET; topics: {', '.join(names[:20])}",
        )
    known = [source for source in ledger.sources() if source.partition == partition and topic in (None, source.topic.name)]
    if len(known) < 2:
        return next(iter(known), None)
    # A recreated topic is begun after the earlier topic, whose lanes may still be open: only a single open lane decides.
    opened = [source for source in known if any(lane.open for lane in ledger.of(source))]
    if len(opened) == 1:
        return opened[0]
    raise InvalidPipeline(
        f"{known[0]}: the ledger of pipeline {ledger.pipeline} has {len(known)} topics of this name: it was recreated",
        "offsets alone do not name one of them: use --time",
    )


def wanted(text: str, ledger: Ledger) -> Mapping[PartitionId, int]:
    """Parse `TOPIC:PARTITION=OFFSET,...`; the topic may be missing if the pipeline reads only one.

    Raises:
        InvalidPipeline: the text has another form, names a partition twice, or a partition that is not in the ledger.
    """
    result: dict[PartitionId, int] = {}
    for item in text.split(","):
        match = _WANTED.fullmatch(item.strip())
        if match is None or int(match[2]) > _LAST_PARTITION or int(match[3]) > _LAST_OFFSET:
            raise InvalidPipeline(f"--offsets: expected TOPIC:PARTITION=OFFSET, found {item.strip()!r}")
        source = newest(ledger, match[1], int(match[2]))
        if source is None:
            known = ", ".join(str(source).replace("/", ":") for source in ledger.sources()[:20]) or "none yet"
            raise InvalidPipeline(
                f"--offsets: partition {item.strip().partition('=')[0]} is not in the ledger of pipeline {ledger.pipeline}",
                f"partitions: {known}",
            )
        if source in result:
            raise InvalidPipeline(f"--offsets: partition {source} is named twice")
        result[source] = int(match[3])
    return result


def instant(text: str) -> datetime:
    """Parse a time of ISO 8601; without a zone it is UTC.

    Raises:
        ValueError: the text is not a time.
    """
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=timezone.utc) if found.tzinfo is None else found
