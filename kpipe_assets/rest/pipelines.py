"""kpipe's own resources: pipelines, batches, errors, verification, backfill, seek, plan, test."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from kpipe.batch.batch import Batch
from kpipe.definition.pipeline import Pipeline, Timestamp
from kpipe.offsets import Range
from kpipe.planning.planner import Limits, arrivals, check_source, lag
from kpipe.planning.start_offsets import beginnings
from kpipe.planning.transaction_planner import planner_of
from kpipe.sql import statements as s
from kpipe.topics import Part, part
from kpipe_assets.rest.configs import masked
from kpipe_assets.rest.problems import LIMITS, Problem, Safe
from kpipe_assets.rest.worker import Worker
from kpipe_assets.statements.json_rows import MOST_ROWS, rendered
from resources.destinations import open_destination

__all__ = ["router"]

_Page = Annotated[int, Query(ge=1, le=MOST_ROWS)]
_Offset = Annotated[int, Field(ge=0, lt=1 << 63)]
_Name = Annotated[str, Field(pattern=r"^([A-Za-z0-9._-]{1,249}:)?[0-9]{1,9}$")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Backfill(_Body):
    """Select skipped offsets to read: all, those of a partition, or a range of it.

    Attributes:
        partition: `0`, or `TOPIC:0` if the pipeline reads several topics.
        start: first offset.
        end: end of the range, exclusive.
    """

    partition: _Name | None = None
    start: _Offset | None = None
    end: _Offset | None = None


class Seek(_Body):
    """Select the offsets to continue at.

    Attributes:
        to: `earliest`, `latest`, a timestamp, or the next offset by partition; other partitions stay.
        reread: whether offsets that have been read may be read again, which duplicates their rows.
    """

    to: Literal["earliest", "latest"] | Timestamp | dict[_Name, _Offset]
    reread: bool = False


class Sample(_Body):
    """Limit the records of a test.

    Attributes:
        limit: offsets of each partition.
    """

    limit: int = Field(default=100, ge=1, le=10_000)


def _named(name: str) -> Part:
    return name if ":" in name else int(name)


def router(worker: Worker) -> APIRouter:
    """Return the resources of a home's pipelines."""
    routes = APIRouter(prefix="/kpipe/v1/pipelines", tags=["kpipe: pipelines"])

    def defined(name: str) -> Pipeline:
        if not worker.exists(name):
            raise Problem(404, f"pipeline {name} not found")
        return worker.home.pipeline(name)

    @routes.get("", summary="List pipelines and their states, by name")
    def pipelines(limit: _Page = 100, after: str = "") -> Any:
        found = [{"pipeline": name, "state": state} for name, state in worker.states().items() if name > after]
        more = {"next": found[limit - 1]["pipeline"]} if len(found) > limit else {}
        return Safe({"pipelines": found[:limit], **more})

    @routes.get("/{name}", summary="Get a definition; literal secrets are masked")
    def pipeline(name: str) -> Any:
        return Safe({"pipeline": name, "state": worker.state(name), "definition": masked(defined(name).to_dict())})

    @routes.get("/{name}/status", summary="Get positions, lag and state, as kpipe status does")
    def positions(name: str) -> Any:
        from kpipe_assets.runs.position_report import describe
        from kpipe_assets.sensors.sensor_state import SensorStates

        defined(name)
        with SensorStates(worker.home) as states:
            on, served = name in states.on(), name not in states.unserved(name)
        return Safe(describe(worker.home, name, on, served)[0])

    @routes.get("/{name}/batches", summary="List committed batches, newest first")
    def batches(name: str, limit: _Page = 20) -> Any:
        return Safe({"batches": list(open_destination(defined(name), worker.home).view("batches_summary", limit=limit))})

    @routes.get("/{name}/errors", summary="List dead letters and failed runs, newest first", description=LIMITS)
    def errors(name: str, limit: _Page = 20) -> Any:
        defined(name)
        with worker.slow():  # dead letters contain records
            return Safe(worker.queries.errors(name, limit))

    @routes.post("/{name}/errors/retry", summary="Process dead letters again with the current definition")
    def retry(name: str) -> Any:
        defined(name)
        with worker.slow(), worker.changing(name):
            return Safe({"message": worker.execute(s.Replay(name)).message})

    @routes.post("/{name}/verify", summary="Recount the table against the ledger; changes nothing")
    def verify(name: str) -> Any:
        from kpipe_assets.runs.proof import prove

        found = defined(name)
        with worker.slow():
            return Safe(prove(found, worker.home).to_dict())

    @routes.post("/{name}/backfill", summary="Read skipped offsets")
    def backfill(name: str, body: Backfill) -> Any:
        defined(name)
        if (body.start is None) != (body.end is None) or (body.start is not None and body.start >= (body.end or 0)):
            raise Problem(400, "start, end: expected both, with start below end, or none")
        span = Range(body.start, body.end) if body.start is not None and body.end is not None else None
        partition = None if body.partition is None else _named(body.partition)
        with worker.changing(name):
            return Safe({"message": worker.execute(s.Backfill(name, partition, span)).message})

    @routes.post("/{name}/seek", summary="Continue at other offsets; the pipeline must be stopped")
    def seek(name: str, body: Seek) -> Any:
        defined(name)
        to: Any = {_named(key): offset for key, offset in body.to.items()} if isinstance(body.to, dict) else body.to
        if to == {}:
            raise Problem(400, "to: names no partition")
        with worker.changing(name):
            return Safe({"message": worker.execute(s.Alter(name, (s.SetOffsets(to, body.reread),))).message})

    @routes.post("/{name}/plan", summary="Plan the next batch from the ledger and the brokers; changes nothing")
    def next_batch(name: str) -> Any:
        with worker.slow():
            return Safe(_plan(worker, defined(name)))

    @routes.post("/{name}/test", summary="Convert the next records to rows; writes nothing", description=LIMITS)
    def test(name: str, body: Sample | None = None) -> Any:
        defined(name)
        with worker.slow():
            return Safe(worker.using(s.Test(name, (body or Sample()).limit), rendered))

    return routes


def _plan(worker: Worker, pipeline: Pipeline) -> dict[str, Any]:
    """Return the ranges of the next batch, or why there is none."""
    from resources.sources.open_source import topics_of

    topics = topics_of(pipeline)
    _, ledger = open_destination(pipeline, worker.home).ledger()
    snapshot = topics.snapshot()
    check_source(ledger, snapshot)
    fresh = arrivals(ledger, snapshot)
    if fresh:
        ledger = ledger.after(beginnings(pipeline.source, topics, ledger, snapshot, fresh))
    limits, multi = pipeline.batch, pipeline.source.multi_topic
    bounds = Limits(limits.max_offsets_per_partition, limits.max_bytes_per_partition, limits.max_partitions)
    batch = planner_of(pipeline, topics)(ledger, snapshot, bounds, uuid.uuid4().hex)
    behind = {str(part(source, multi)): offsets for source, offsets in sorted(lag(ledger, snapshot).items())}
    if not isinstance(batch, Batch):
        return {"ranges": [], "reason": batch.reason, "lag": behind}
    steps = [(str(part(step.lane.source, multi)), step.range) for step in batch.steps]
    ranges = [{"partition": name, "start": span.start, "end": span.end} for name, span in steps]
    return {"ranges": ranges, "lag": behind}
