"""Traces by OpenTelemetry: a real OTLP receiver gets one trace for each batch, and a broken one costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from kpipe.batch.batch import Batch
from kpipe.errors import RecordRejected
from kpipe.ingest.loop import Ingest
from kpipe.run_events import Event
from kpipe_assets.runs.runner import Run
from kpipe_assets.telemetry import tracing
from kpipe_assets.telemetry.sender import Once
from tests.kpipe_assets.fakes import World
from tests.kpipe_assets.telemetry.senders import discard
from tests.patience import looks
from tests.receiver import Receiver

SECRET = "hunter2"
STAGES = {"read": 0.25, "program": 0.5, "decode": 0.125, "stage": 0.125}


def fresh() -> None:
    """Begin with another exporter and thread, as another process does. What waits is dropped."""
    discard(tracing.sender())
    tracing.sender.cache_clear()
    tracing._exporter.cache_clear()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A collector, configured as everywhere."""
    server = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"api-key={SECRET}")
    fresh()
    yield server
    server.stop()
    fresh()


def run(world: World, **options: Any) -> Run:
    loop = Ingest(world.pipeline, world.topics, world.stager, world.destination, wait=lambda _: None, **options)
    return Run(world.home, loop)


def spans(receiver: Receiver) -> tuple[list[Span], dict[str, str]]:
    """All spans that arrived, and the attributes of their resource."""
    tracing.sender().finish(300)
    found, resource = list[Span](), dict[str, str]()
    for one in receiver.got:
        if one.took:
            for part in ExportTraceServiceRequest.FromString(one.body).resource_spans:
                resource = {item.key: item.value.string_value for item in part.resource.attributes}
                found += [span for scope in part.scope_spans for span in scope.spans]
    return found, resource


def values(span: Span) -> Mapping[str, Any]:
    return {item.key: getattr(item.value, str(item.value.WhichOneof("value"))) for item in span.attributes}


def test_a_batch_is_a_trace_whose_id_is_the_batchs(world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = world.stager.stage

    def staged(*arguments: Any, **named: Any) -> Any:
        from dataclasses import replace
        from time import time

        return [replace(report, began=time(), seconds=1.0, stages=STAGES) for report in stage(*arguments, **named)]

    monkeypatch.setattr(world.stager, "stage", staged)
    (committed,) = run(world, run_id="run-1").batches()
    found, resource = spans(receiver)
    assert resource["service.name"] == "kpipe"
    assert {span.trace_id.hex() for span in found} == {committed.commit.id}
    by_id = {span.span_id: span for span in found}
    tree = sorted((span.name, by_id[span.parent_span_id].name if span.parent_span_id else "") for span in found)
    ranges = 3 * [("decode", "range"), ("program", "range"), ("range", "stage"), ("read", "range"), ("write", "range")]
    assert tree == sorted([("batch", ""), ("plan", "batch"), ("stage", "batch"), ("commit", "batch"), *ranges])
    (whole,) = [span for span in found if span.name == "batch"]
    assert values(whole) == {
        "kpipe.pipeline": "tweets", "kpipe.batch.id": committed.commit.id, "kpipe.run.id": "run-1", "kpipe.offsets": 12,
        "kpipe.ranges": 3, "kpipe.destination": "duckdb", "kpipe.commit": committed.seq, "kpipe.records": 12, "kpipe.rows": 12,
        "kpipe.dead_letters": 0, "kpipe.bytes": committed.commit.totals.bytes,
    }  # fmt: skip
    for span in found:
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    timed = {span.name: (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9 for span in found if span.name in STAGES}
    assert timed["program"] == pytest.approx(0.5, abs=1e-3) and timed["read"] == pytest.approx(0.25, abs=1e-3)
    in_order = [span for span in found if span.name in ("plan", "stage", "commit")]
    for before, after in pairwise(in_order):
        assert before.end_time_unix_nano <= after.start_time_unix_nano + 1000
    assert receiver.got[0].headers["api-key"] == SECRET and SECRET.encode() not in receiver.got[0].body


def test_each_attempt_is_a_trace_and_a_failed_one_quotes_no_record(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RecordRejected(f"tweets/0 offset 3: not a number: {SECRET}", "fix the producer")

    monkeypatch.setattr(world.stager, "stage", fails)
    with pytest.raises(RecordRejected):
        list(run(world).passes())
    found, _ = spans(receiver)
    assert [span.name for span in found if not span.parent_span_id] == ["batch"]
    (whole,) = [span for span in found if span.name == "batch"]
    assert whole.status.code == 2 and whole.status.message == "RecordRejected"
    assert all(SECRET.encode() not in one.body for one in receiver.got)


def test_batches_of_a_run_have_traces_of_their_own(world: World, receiver: Receiver) -> None:
    pipeline = world.pipeline
    world.pipeline = pipeline.model_copy(update={"batch": pipeline.batch.model_copy(update={"max_offsets_per_partition": 1})})
    ids = [committed.commit.id for committed in run(world).batches()]
    assert len(ids) == 4
    found, _ = spans(receiver)
    assert sorted(span.trace_id.hex() for span in found if span.name == "batch") == sorted(ids)


def test_a_batch_that_was_given_up_has_ended(world: World, receiver: Receiver) -> None:
    observer = tracing.TraceObserver(world.pipeline, "run-1", Once(lambda _: None))
    for id in ("a" * 32, "b" * 32):
        observer.event(Event("planned", Batch(id, "tweets", ())))
    found, _ = spans(receiver)
    assert {(span.trace_id.hex(), span.status.message) for span in found if span.name == "batch"} == {("a" * 32, "abandoned")}
    observer.end(None)
    assert len({span.trace_id for span in spans(receiver)[0]}) == 2


@pytest.mark.parametrize("fault", ["503", "reset", "hang", "400"])
def test_a_collector_that_fails_costs_no_row_and_is_reported_once(
    fault: str, world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver.fault = lambda _: fault
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    assert sum(committed.commit.totals.rows for committed in run(world).batches()) == 12
    tracing.sender().finish(300)
    assert any(receiver.got for _ in looks(300)), "a client in a hurry has gone by then"
    err = capsys.readouterr().err
    assert err.count("traces are not delivered") == 1 and SECRET not in err and len(err.splitlines()) == 1


def test_a_run_does_not_wait_for_a_collector_that_hangs(world: World, receiver: Receiver) -> None:
    receiver.fault = lambda _: "hang"
    assert sum(committed.commit.totals.rows for committed in run(world).batches()) == 12
    tracing.sender().finish(0.1)
    assert tracing.sender()._waiting.unfinished_tasks, "the run has ended, and its spans still wait"


def test_a_missing_library_is_reported_with_its_extra(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "kpipe_assets.telemetry.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert sum(committed.commit.totals.rows for committed in run(world).batches()) == 12
    tracing.sender().finish(300)
    assert capsys.readouterr().err.count("pip install 'kpipe[otel]'") == 1 and not receiver.got


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
    ],
)
def test_traces_are_off_by_default(variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert tracing.is_configured() is expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "expected otlp, console or none, found 'zipkin'"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "expected http/protobuf, found 'grpc'"),
    ],
)
def test_a_setting_that_is_not_supported_is_reported_once(
    variables: dict[str, str],
    expected: str,
    world: World,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    pipeline = world.pipeline
    world.pipeline = pipeline.model_copy(update={"batch": pipeline.batch.model_copy(update={"max_offsets_per_partition": 1})})
    assert sum(committed.commit.totals.rows for committed in run(world).batches()) == 12
    tracing.sender().finish(300)
    assert capsys.readouterr().err.count(expected) == 1
    assert not receiver.got


def test_a_sampled_share_of_traces_is_about_the_one_that_was_asked_for(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids of batches must be as random as a sampler by ratio requires."""
    from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

    loop = run(world).loop
    sampler, sampled = TraceIdRatioBased(0.25), 0
    observed = loop.reconcile(loop.observe())
    for _ in range(400):
        batch = loop.plan(observed)
        sampled += sampler.should_sample(None, int(batch.id, 16), "batch").decision.is_sampled()  # type: ignore[union-attr]
    assert 40 < sampled < 180
