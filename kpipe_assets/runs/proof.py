"""Recount a pipeline's destination against its ledger, for `kpipe verify` and the REST API."""

from __future__ import annotations

from dataclasses import replace

from kpipe.adoption.origin import adopted_from
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from kpipe.verification.evidence import gather
from kpipe.verification.verify import Audit
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["prove"]


def prove(pipeline: Pipeline, home: Home) -> Audit:
    """Audit a pipeline: recount its destination and compare it with the ledger.

    Raises:
        InvalidPipeline: the pipeline has never committed.
    """
    destination = open_destination(pipeline, home)
    evidence, seen = gather(destination), home.seen(pipeline.name)
    uid, ledger = evidence.registration, evidence.ledger
    if not uid and not seen.uid:
        raise InvalidPipeline(f"pipeline {pipeline.name}: nothing committed yet", f"kpipe run {pipeline.name}")
    result = evidence.audit(pipeline.source.multi_topic)
    if result.adopted:
        result = replace(result, adopted_from=adopted_from(destination, ledger))
    if not seen.is_followed_by(uid, ledger):
        other = "" if uid == seen.uid else " of another registration of the pipeline"
        problem = f"ledger in {destination.describe()}: expected commit {seen.seq} or later, found {ledger.age}{other}"
        return replace(result, problems=[*result.problems, problem])
    return result
