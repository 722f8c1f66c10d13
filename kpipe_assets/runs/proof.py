"""Recount a pipeline's destination against its ledger, for `kpipe verify`, the REST API and Dagster's checks.

A ledger that follows from an exchange of a rebuilt table, of which the process was killed before it wrote the home, is accepted:
the exchange is completed first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kpipe.adoption.origin import adopted_from
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, LedgerMismatch
from kpipe.interfaces import Destination
from kpipe.ledger.ledger import Ledger
from kpipe.planning.reconcile import mismatch
from kpipe.run_events import Seen
from kpipe.verification.evidence import Evidence, gather
from kpipe.verification.verify import Audit
from kpipe_assets.runs.rebuilt import finish
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["Proof", "known_ledger", "proof", "prove"]


@dataclass(frozen=True)
class Proof:
    """Result of comparing a destination with its ledger, and with the last ledger that the home has seen.

    Attributes:
        evidence: that was read.
        result: the comparison; its problems include `mismatch`.
        mismatch: why the ledger does not follow the last ledger that the home has seen; None: it does.
        was_seen: whether the home has seen a commit of the pipeline.
    """

    evidence: Evidence
    result: Audit
    mismatch: LedgerMismatch | None = None
    was_seen: bool = False


def prove(pipeline: Pipeline, home: Home) -> Audit:
    """Audit a pipeline: recount its destination and compare it with the ledger.

    Raises:
        InvalidPipeline: the pipeline has never committed.
    """
    found = proof(pipeline, home, open_destination(pipeline, home))
    if not found.evidence.registration and not found.was_seen:
        raise InvalidPipeline(f"pipeline {pipeline.name}: nothing committed yet", f"kpipe run {pipeline.name}")
    return found.result


def proof(pipeline: Pipeline, home: Home, destination: Destination) -> Proof:
    """Audit a pipeline whose destination is open."""
    seen = home.seen(pipeline.name)  # read first: a run may commit, and note what it has seen, in between
    evidence = gather(destination)
    uid, ledger = evidence.registration, evidence.ledger
    result = evidence.audit(pipeline.source.multi_topic)
    if result.adopted:
        result = replace(result, adopted_from=adopted_from(destination, ledger))
    if not seen.is_followed_by(uid, ledger) and finish(home, pipeline.name) is not None:
        seen = home.seen(pipeline.name)
    if seen.is_followed_by(uid, ledger):
        return Proof(evidence, result, was_seen=bool(seen.uid))
    other = mismatch(pipeline.name, seen, uid, ledger, destination.describe())
    return Proof(evidence, replace(result, problems=[*result.problems, other.what]), other, was_seen=True)


def known_ledger(pipeline: Pipeline, home: Home, destination: Destination) -> tuple[Seen, str, Ledger]:
    """Return the home's last-seen position, and registration id and ledger of a destination that follow it.

    Raises:
        LedgerMismatch: it is not the ledger that the home has seen, at the same commit or later.
    """
    seen = home.seen(pipeline.name)
    uid, ledger = destination.ledger()
    if not seen.is_followed_by(uid, ledger) and finish(home, pipeline.name) is not None:
        seen = home.seen(pipeline.name)
    if not seen.is_followed_by(uid, ledger):
        raise mismatch(pipeline.name, seen, uid, ledger, destination.describe())
    return seen, uid, ledger
