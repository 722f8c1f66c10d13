"""What a run must not go beyond: partitions that exist, topics that are still there, the dead letters that are allowed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kpipe.batch.batch import Batch, Counts, RangeReport
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DeadLettersExceeded, InvalidPipeline
from kpipe.interfaces import Topics
from kpipe.ledger.ledger import Ledger
from kpipe.planning.planner import check_source
from kpipe.topics import Part, PartitionId, TopicSnapshot, in_order, names, parts, unnamed

__all__ = ["check_chosen", "check_dead_letters", "check_still_there", "exceeded"]


def check_chosen(pipeline: Pipeline, only: Collection[Part] | None, snapshot: TopicSnapshot, ledger: Ledger) -> None:
    """Every chosen partition exists; of several topics, it may be one that did.

    Raises:
        InvalidPipeline: one does not; a run that reads nothing of it would look like success.
    """
    if only is None:
        return
    several = pipeline.source.several
    if wrong := unnamed(sorted(only, key=in_order), several):
        raise InvalidPipeline(f"pipeline {pipeline.name}: {wrong}")
    known = names([*snapshot.partitions, *(ledger.sources() if several else ())])
    unknown = sorted((name for name in only if name not in known), key=in_order)
    if unknown:
        there = parts(snapshot.partitions, several)
        raise InvalidPipeline(
            f"pipeline {pipeline.name}: there is no partition {unknown[0]}",
            f"there are {there[0]} to {there[-1]}" if there else "",
        )


def check_dead_letters(
    pipeline: Pipeline, ledger: Ledger, counts: Mapping[tuple[PartitionId, int], Counts], reports: Sequence[RangeReport]
) -> None:
    """The pipeline's limit on dead letters, before the commit that would pass it.

    Raises:
        DeadLettersExceeded: it would be passed. Nothing was committed.
    """
    limit = pipeline.errors.max_dead_letters
    new = sum(count.dead_letters for count in counts.values())
    if limit is None or not new or ledger.dead_letters + new <= limit:
        return
    reason = next((report.sample_dead_letter for report in reports if report.sample_dead_letter), "")
    raise exceeded(pipeline.name, ledger, new, limit, reason)


def exceeded(pipeline: str, ledger: Ledger, new: int, limit: int, reason: str) -> DeadLettersExceeded:
    """The error of a batch that would pass the limit."""
    return DeadLettersExceeded(
        f"pipeline {pipeline}: {ledger.dead_letters} dead letters are kept, this batch adds {new},"
        f" errors.max_dead_letters is {limit}; the first: {reason}",
        "mend the records' producer or the program, or raise errors.max_dead_letters; nothing of the batch was written",
    )


def check_still_there(topics: Topics, ledger: Ledger, batch: Batch) -> None:
    """The topics that were read are the ones that were planned: tasks know a topic by its name only.

    Raises:
        SourceIdentityChanged: a topic was made again while it was read. Nothing was committed.
    """
    now = set(topics.present())  # it may be a list, and each partition of the batch is looked for
    if any(step.source not in now for step in batch.steps):
        check_source(ledger, topics.snapshot())
