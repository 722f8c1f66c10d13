"""Trace an offset: read the ledger and the tables, and query the brokers only where they decide something."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, KpipeError, NotAvailable
from kpipe.interfaces import Destination
from kpipe.provenance.explain import GAP, PROCESSED, ROW, Answer, Evidence, explain, sources
from kpipe.provenance.facts import CommitInfo, Facts, Found, Reading, Traceable
from kpipe.topics import PartitionId, TopicSnapshot
from kpipe_assets.provenance.positions import Position
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["MOST_ROWS", "Traced", "trace", "trace_rows"]

#: Most rows that a search by columns traces.
MOST_ROWS = 10


@dataclass(frozen=True)
class Traced:
    """An offset of one source, explained.

    Attributes:
        pipeline: name of the pipeline.
        answer: what became of it.
        trouble: error of the brokers, if they were queried and did not answer; else empty.
        recreated: whether the topic of that name has another id now, or does not exist any more.
    """

    pipeline: str
    answer: Answer
    trouble: str = ""
    recreated: bool = False


def trace(pipeline: Pipeline, home: Home, position: Position) -> list[Traced]:
    """Explain an offset, for each topic of that name in the ledger.

    Raises:
        InvalidPipeline: neither the ledger nor the definition has the topic.
        KpipeError: the destination cannot be read.
    """
    destination = open_destination(pipeline, home)
    facts = _facts(destination, position)
    found = sources(facts, position.topic, position.partition)
    if not found:
        return [_unknown(pipeline, facts, position)]
    return [_traced(pipeline, facts, source, position.offset, len(found) > 1) for source in found]


def _facts(destination: Destination, position: Position) -> Facts:
    """Read the facts; of a destination that cannot search, those of its whole history."""
    if isinstance(destination, Traceable):
        return destination.trace(position.topic, position.partition, position.offset)
    _, ledger = destination.ledger()
    readings = [
        Reading(entry, CommitInfo(entry.batch, entry.seq))
        for entry in destination.history()
        if (entry.source.topic.name, entry.source.partition) == (position.topic, position.partition)
        and (position.offset in entry.range or entry.cleared)
    ]
    return Facts(ledger, readings, searched=False)


def _traced(pipeline: Pipeline, facts: Facts, source: PartitionId, offset: int, recreated: bool) -> Traced:
    """Explain an offset of one source; `recreated`: the ledger contains several topics of that name."""
    answer = explain(facts, source, offset)
    # Counts decide about a gap together with rows, which another client may have changed: the brokers confirm it.
    gap = any(GAP in fate.possible and (not fate.decision or fate.reading.tables) for fate in answer.fates)
    waits = answer.pending or (recreated and answer.state in ("skipped", "tried"))
    if answer.state in ("read", "skipped", "tried", "lost", "adopted") and not gap and not waits:
        return Traced(pipeline.name, answer)
    try:
        evidence = _evidence(pipeline, source, offset, gap)
    except KpipeError as error:
        return Traced(pipeline.name, answer, error.what)
    if evidence is None:  # no run reads a topic with this id any more
        return Traced(pipeline.name, replace(answer, pending=False, behind=None), recreated=True)
    return Traced(pipeline.name, explain(facts, source, offset, evidence))


def _evidence(pipeline: Pipeline, source: PartitionId, offset: int, reads: bool) -> Evidence | None:
    """Query the brokers; None: the topic has another id, or is missing."""
    from resources.kafka.record_presence import has_record, is_compacted
    from resources.sources.open_source import topics_of

    topics = topics_of(pipeline)
    state = topics.snapshot().partitions.get(source)
    if state is None:
        return None
    found = Evidence(state.log_start, state.end, state.high)
    if not reads or not pipeline.source.reads_topics or not state.log_start <= offset < state.end:
        return found
    present = has_record(pipeline.source, source, offset)
    compacted = present or is_compacted(pipeline.source, source.topic.name)
    after: TopicSnapshot = topics.snapshot()  # a topic is read by its name only; retention may have removed the record
    now = after.partitions.get(source)
    if now is None:
        return None
    return Evidence(now.log_start, now.end, now.high, present if present or now.log_start <= offset else None, compacted)


def _unknown(pipeline: Pipeline, facts: Facts, position: Position) -> Traced:
    """Explain an offset of a partition that the ledger does not contain."""
    from resources.sources.open_source import topics_of

    snapshot = topics_of(pipeline).snapshot()
    found = [
        source for source in snapshot.partitions if (source.topic.name, source.partition) == (position.topic, position.partition)
    ]
    if not found:
        known = {str(source).replace("/", ":") for source in (*snapshot.partitions, *facts.ledger.sources())}
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: it does not read partition {position.topic}:{position.partition}",
            f"partitions: {', '.join(sorted(known)[:20]) or 'none'}",
        )
    state = snapshot.partitions[found[0]]
    return Traced(pipeline.name, explain(facts, found[0], position.offset, Evidence(state.log_start, state.end, state.high)))


def trace_rows(pipeline: Pipeline, home: Home, table: str | None, where: Mapping[str, str]) -> list[tuple[Found, list[Traced]]]:
    """Find rows by equality of columns, and explain the offsets that they name; at most `MOST_ROWS` rows.

    Of a row that does not name its topic, every reading is returned that may have written it.

    Raises:
        NotAvailable: the destination cannot search rows.
        InvalidPipeline: see `Traceable.rows_at`; or more rows match.
    """
    destination = open_destination(pipeline, home)
    if not isinstance(destination, Traceable):
        raise NotAvailable(
            f"pipeline {pipeline.name}: rows of into.type {pipeline.into.type} cannot be searched", "trace an offset instead"
        )
    rows = destination.rows_at(table or pipeline.into.table, where, MOST_ROWS + 1)
    if len(rows) > MOST_ROWS:
        raise InvalidPipeline(f"pipeline {pipeline.name}: more than {MOST_ROWS} rows match", "add another --where COLUMN=VALUE")
    name = table or pipeline.into.table
    _, ledger = destination.ledger()
    explained: dict[Found, list[Traced]] = {}
    for row in rows:
        if row not in explained:
            explained[row] = _of_row(pipeline, destination.trace, row, name, ledger.sources())
    return [(row, explained[row]) for row in rows]


def _of_row(
    pipeline: Pipeline, look: Callable[[str, int, int], Facts], row: Found, table: str, known: Sequence[PartitionId]
) -> list[Traced]:
    """Return the sources that may have given the row."""
    if row.partition is None or row.offset is None:
        return []
    topics = [row.topic] if row.topic is not None else sorted({s.topic.name for s in known if s.partition == row.partition})
    found: list[Traced] = []
    for topic in topics:
        facts = look(topic, row.partition, row.offset)
        answers = (explain(facts, source, row.offset) for source in sources(facts, topic, row.partition))
        found += [Traced(pipeline.name, answer) for answer in answers if _may_have_written(answer, table)]
    return found


def _may_have_written(answer: Answer, table: str) -> bool:
    return any(
        not fate.cleared
        and {ROW, PROCESSED} & {*fate.possible, *([ROW] if fate.rows or fate.unattributed else [])}
        and any(item.table.lower() == table.lower() for item in fate.reading.tables)
        for fate in answer.fates
    )
