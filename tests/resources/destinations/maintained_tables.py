"""Tables in table formats that tests maintain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.interfaces import Destination
from kpipe.maintenance.facts import Maintained
from kpipe.maintenance.plan import Limits
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from resources.testing.keyed import RULES, Write, begun, commit_of
from resources.testing.place import batch
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace

PLACES: dict[str, Any] = {"iceberg": IcebergPlace, "delta": DeltaPlace}
RULE = RULES["replace"]
SOON = Limits(min_input_files=3)


def maintained(place: Any, limits: Limits = SOON, dry_run: bool = False) -> Maintained:
    found: Maintained = place.open(rule=RULE).maintain(limits, place.staging.parent / "scratch", dry_run)
    return found


def writes(first: int, ids: Sequence[int]) -> list[Write]:
    return [Write(0, first + at, number, f"t{first + at}") for at, number in enumerate(ids)]


def load(place: Any, first: int, ids: Sequence[int], rule: KeyRule = RULE) -> None:
    destination = place.open(rule=rule)
    destination.commit(commit_of(place, destination.ledger()[1], writes(first, ids), rule))


def one(place: Any, destination: Destination, at: int, columns: Columns, values: dict[str, Any]) -> Commit:
    """One write, at this offset."""
    commit = batch(place, destination.ledger()[1], {0: at + 1}, columns, values)
    return commit.stored({lane: replace(counts, inserted=0) for lane, counts in commit.counts.items()})


def filled(place: Any) -> Destination:
    """A table with a key: 31 rows in four files, in three of which three rows are deleted."""
    destination = begun(place, RULE, 1)
    for number in range(4):
        load(place, 10 * number, range(7 * number, 7 * number + 10))
    return destination


def version(place: Any) -> int:
    return int(place.lake().load().version)


def at(point: str, action: Callable[[], None]) -> None:
    """Act once, when that point is reached."""
    left = [action]

    def reached(name: str) -> None:
        if name == point and left:
            left.pop()()

    failpoints.arm(reached)
