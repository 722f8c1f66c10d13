"""Open destinations in the state that a test starts with, and verify what they contain."""

from __future__ import annotations

from typing import Any

from kpipe.interfaces import Destination
from kpipe.verification.evidence import gather
from kpipe.verification.verify import Audit
from resources.testing.place import Place, batch, begin

__all__ = ["begun", "loaded", "positions", "proof"]


def proof(destination: Destination, multi_topic: bool = False) -> Audit:
    """Compare ledger, history and table; `multi_topic`: the pipeline reads several topics."""
    return gather(destination).audit(multi_topic)


def positions(destination: Destination) -> dict[int, int]:
    """Return the next offset of each partition."""
    return {where.partition: at for where, at in destination.ledger()[1].positions().items()}


def begun(place: Place, partitions: int = 2, **names: Any) -> Destination:
    """Open a pipeline and commit its start offsets."""
    destination = place.open(**names)
    destination.commit(begin(names.get("pipeline", "tweets"), range(partitions)))
    return destination


def loaded(place: Place, ends: dict[int, int] | None = None, **more: Any) -> Destination:
    """Open a pipeline and commit one batch; `more` is passed to `batch`."""
    destination = begun(place)
    destination.commit(batch(place, destination.ledger()[1], ends or {0: 10, 1: 5}, **more))
    return destination
