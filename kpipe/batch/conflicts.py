"""What a commit would do to a ledger, and what it means when it cannot: overtaken, or wrong in itself."""

from __future__ import annotations

from collections.abc import Iterable

from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError, Fenced
from kpipe.ledger.ledger import Lane, Ledger, check_disjoint
from kpipe.offsets import Overlap
from kpipe.topics import PartitionId

__all__ = ["applied", "check_lanes"]


def applied(ledger: Ledger, commit: Commit) -> Ledger:
    """The ledger after the commit.

    Raises:
        Fenced: some lane is not what the commit expects, or overlaps one that it makes.
        DestinationError: the changes contradict themselves.
    """
    if len({change.key for change in commit.changes}) < len(commit.changes):
        raise DestinationError(f"batch {commit.id} changes a lane twice")
    try:
        return ledger.apply(commit.changes)
    except Overlap:
        check_lanes([*ledger.lanes.values(), *_becoming(commit)], commit)
        raise


def check_lanes(lanes: Iterable[Lane], commit: Commit) -> None:
    """No two lanes of a partition that the commit touches share an offset.

    An overlap with a lane that somebody else made means that the plan is older than the ledger.

    Raises:
        Fenced: a lane of the commit overlaps one of the ledger.
        DestinationError: lanes of the commit overlap each other.
    """
    touched = {change.key[0] for change in commit.changes}
    by_source: dict[PartitionId, list[Lane]] = {source: [] for source in touched}
    for lane in lanes:
        if lane.source in touched:
            by_source[lane.source].append(lane)
    try:
        for found in by_source.values():
            check_disjoint(found)
    except Overlap as overlap:
        try:
            for source in touched:
                check_disjoint(lane for lane in _becoming(commit) if lane.source == source)
        except Overlap as own:
            raise DestinationError(f"batch {commit.id} would read offsets twice: {own}") from own
        raise Fenced(
            f"pipeline {commit.pipeline}: {overlap}; another run committed first and nothing of this batch was written",
            "run it again: it goes on from where the other run stopped",
        ) from overlap


def _becoming(commit: Commit) -> list[Lane]:
    return [change.become for change in commit.changes if change.become is not None]
