"""Preconditions of a run: selected partitions exist, topics are unchanged, dead letters stay within the limit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kpipe.batch.batch import Batch, Counts, RangeReport
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DeadLettersExceeded, InvalidPipeline, SourceIdentityChanged
from kpipe.interfaces import Topics
from kpipe.ledger.ledger import Ledger
from kpipe.planning.planner import check_source
from kpipe.topics import Part, PartitionId, TopicSnapshot, in_order, names, parts, unnamed

__all__ = ["check_chosen", "check_dead_letters", "check_still_there", "exceeded"]


def check_chosen(pipeline: Pipeline, only: Collection[Part] | None, snapshot: TopicSnapshot, ledger: Ledger) -> None:
    """Check that every selected partition exists; with several topics, it may be in the ledger only.

    Raises:
        InvalidPipeline: a partition does not exist; a run that reads nothing of it would appear successful.
    """
    if only is None:
        return
    multi_topic = pipeline.source.multi_topic
    if wrong := unnamed(sorted(only, key=in_order), multi_topic):
        raise InvalidPipeline(f"pipeline {pipeline.name}: {wrong}")
    known = names([*snapshot.partitions, *(ledger.sources() if multi_topic else ())])
    unknown = sorted((name for name in only if name not in known), key=in_order)
    if unknown:
        present = parts(snapshot.partitions, multi_topic)
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: partition {unknown[0]} does not exist",
            f"use partitions {present[0]} to {present[-1]}" if present else "",
        )


def check_dead_letters(
    pipeline: Pipeline, ledger: Ledger, counts: Mapping[tuple[PartitionId, int], Counts], reports: Sequence[RangeReport]
) -> None:
    """Check the pipeline's limit on dead letters before the commit.

    Raises:
        DeadLettersExceeded: the commit would exceed the limit. Nothing was committed.
    """
    limit = pipeline.errors.max_dead_letters
    new = sum(count.dead_letters for count in counts.values())
    if limit is None or not new or ledger.dead_letters + new <= limit:
        return
    reason = next((report.sample_dead_letter for report in reports if report.sample_dead_letter), "")
    raise exceeded(pipeline.name, ledger, new, limit, reason)


def exceeded(pipeline: str, ledger: Ledger, new: int, limit: int, reason: str) -> DeadLettersExceeded:
    """Return the error of a batch that would exceed the limit."""
    return DeadLettersExceeded(
        f"pipeline {pipeline}: errors.max_dead_letters: expected at most {limit} dead letters,"
        f" found {ledger.dead_letters} stored and {new} new; the first: {reason}",
        "fix the producer or the transform, or raise errors.max_dead_letters; nothing of the batch was written",
    )


def check_still_there(topics: Topics, ledger: Ledger, batch: Batch) -> None:
    """Check that the topics still have the ids of the plan: tasks identify a topic by its name only.

    Raises:
        SourceIdentityChanged: a topic was recreated, or brokers of another cluster answered, while it was read. Nothing was
            committed.
    """
    now = set(topics.present())  # a set, as each partition of the batch is looked up in it
    missing = [step.source for step in batch.steps if step.source not in now]
    if not missing:
        return
    snapshot = topics.snapshot()
    check_source(ledger, snapshot)
    # The ledger may contain both topics of a name. A topic that was only not listed once is not another one.
    answered = {source.topic.name: source.topic for source in (*snapshot.partitions, *now)}
    for source in missing:
        expected, found = source.topic, answered.get(source.topic.name)
        if found != expected:
            what = f"{found.topic_id} in {found.cluster}" if found is not None else "none"
            raise SourceIdentityChanged(
                f"{snapshot.noun} {expected.name} changed while the batch was read: expected {expected.topic_id} in"
                f" {expected.cluster}, found {what}; nothing was committed",
                "check that source.brokers leads to one cluster, and run it again" if not snapshot.appearing else "run it again",
            )
