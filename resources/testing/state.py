"""Open destinations in the state that a test starts with, and verify what they contain."""

from __future__ import annotations

from typing import Any

from kpipe.batch.batch import Commit
from kpipe.interfaces import Destination
from kpipe.ledger import transitions
from kpipe.ledger.ledger import Lane, Step
from kpipe.verification.evidence import gather
from kpipe.verification.verify import Audit
from resources.testing.place import Place, batch, begin, source

__all__ = ["begun", "loaded", "positions", "proof", "reread"]


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


def reread(destination: Destination, start: int) -> None:
    """Demand that partition 0 is read again from this offset on."""
    changes, done = transitions.reread(destination.ledger()[1], source(0), start)
    steps = tuple(Step(Lane(source(0), item.start, item.start, item.end), item.end, "reread") for item in done)
    destination.commit(Commit("again", "tweets", changes, kind="reread", steps=steps, note="reread: tweets/0"))
