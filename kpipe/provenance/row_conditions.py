"""Write the SQL condition that rows belong to given offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kpipe.definition.pipeline import Pipeline
from kpipe.ledger.ledger import Ledger
from kpipe.provenance.facts import RowSources
from kpipe.topics import PartitionId
from kpipe.verification.recount import Entry

__all__ = ["Naming", "beyond", "by_history", "naming", "within"]

_MOST_RANGES = 100  # ranges in a printed condition


@dataclass(frozen=True)
class Naming:
    """Columns by which a condition names the source of a row.

    Attributes:
        by_topic: whether rows name their topic.
        owner: topic of the rows that name none; None: all rows name one.
        refusal: reason why rows do not identify the source of their record; else empty.
    """

    by_topic: bool = False
    owner: str | None = None
    refusal: str = ""


def by_history(rows: RowSources, history: Sequence[Entry]) -> RowSources:
    """Return `rows` with the topic of rows that name none: it was read before all others.

    Args:
        rows: as the table is known.
        history: the ranges of the table, in order of commit.
    """
    if rows.unnamed is not None:
        return rows
    read = [entry for entry in history if not entry.reread and not entry.cleared]
    first = {entry.source.topic.name for entry in read if entry.seq == read[0].seq}
    return replace(rows, unnamed=len(first) == 1, owner=first.pop() if len(first) == 1 else None)


def naming(pipeline: Pipeline, ledger: Ledger, rows: RowSources) -> Naming:
    """Return how rows name the source of their record, by the definition and by the rows that earlier definitions wrote."""
    if pipeline.transform is not None and not pipeline.transform.traced:
        return Naming(refusal="rows do not name their offset")
    sources = ledger.sources()
    by_topic = "topic" in pipeline.coordinates and rows.topic_column
    parts = {(source.topic.name if by_topic else "", source.partition) for source in sources}
    if len(parts) < len(sources):
        return Naming(refusal="rows do not name their offset unambiguously")
    if by_topic and rows.unnamed and rows.owner is None:
        return Naming(refusal="rows of an earlier definition name no topic, and several topics may have given them")
    return Naming(by_topic, rows.owner if by_topic and rows.unnamed else None)


def beyond(names: Naming, targets: Mapping[PartitionId, int]) -> str:
    """Return the condition that leaves out later offsets of these partitions; empty if rows do not name them."""
    if names.refusal or len(targets) > _MOST_RANGES:
        return ""
    return " AND ".join(f"NOT ({_place(source, names)} AND _kafka_offset >= {to})" for source, to in sorted(targets.items()))


def within(names: Naming, ranges: Mapping[PartitionId, Sequence[tuple[int, int]]]) -> str:
    """Return the condition that rows are of these offsets; empty if rows do not name them."""
    if names.refusal or not ranges or sum(map(len, ranges.values())) > _MOST_RANGES:
        return ""
    parts = []
    for source, items in sorted(ranges.items()):
        for start, end in items:
            low = f"_kafka_offset >= {start} AND " if start else ""
            parts.append(f"({_place(source, names)} AND {low}_kafka_offset < {end})")
    return " OR ".join(parts)


def _place(source: PartitionId, names: Naming) -> str:
    """Return the condition that a row is of the partition. It is never NULL: `beyond` negates it."""
    topic = ""
    if names.by_topic:
        topic = f"_kafka_topic = '{source.topic.name}' AND "
        if names.owner is not None:
            same = source.topic.name == names.owner
            topic = f"({topic[:-5]} OR _kafka_topic IS NULL) AND " if same else f"_kafka_topic IS NOT NULL AND {topic}"
    return f"{topic}_kafka_partition = {source.partition}"
