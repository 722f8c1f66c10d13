"""Destinations in a state that a test begins with, and the proof of what is there."""

from __future__ import annotations

from typing import Any

from kpipe.interfaces import Destination
from kpipe.verification.verify import Audit, audit
from resources.testing.place import Place, batch, begin

__all__ = ["begun", "loaded", "positions", "proof"]


def proof(destination: Destination, several: bool = False) -> Audit:
    """The ledger, its history and the table, held against each other; `several`: of a pipeline with several topics."""
    return audit(destination.ledger()[1], destination.history(), destination.recount(), several)


def positions(destination: Destination) -> dict[int, int]:
    """The next offset of each partition."""
    return {where.partition: at for where, at in destination.ledger()[1].positions().items()}


def begun(place: Place, partitions: int = 2, **names: Any) -> Destination:
    """A pipeline that has begun and read nothing."""
    destination = place.open(**names)
    destination.commit(begin(names.get("pipeline", "tweets"), range(partitions)))
    return destination


def loaded(place: Place, ends: dict[int, int] | None = None, **more: Any) -> Destination:
    """One that has committed a batch; `more` is for `batch`."""
    destination = begun(place)
    destination.commit(batch(place, destination.ledger()[1], ends or {0: 10, 1: 5}, **more))
    return destination
