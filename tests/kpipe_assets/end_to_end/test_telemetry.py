"""A run with everything on: one batch followed through log, lineage and trace, over real Kafka, Spark and DuckDB."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.receiver import Receiver

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "transform",
    [
        pytest.param(None, id="plain", marks=pytest.mark.chaos),
        pytest.param({"program": "/bin/cat", "stdin": "lines"}, id="program"),
    ],
)
def test_one_id_in_log_lineage_and_trace(transform: dict[str, Any] | None, kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(2)
    for partition in range(2):
        write(name, [json.dumps({"id": number, "user": {"name": "n"}}) for number in range(500)], partition)
    fields = {"transform": transform} if transform else {}
    kpipe.define("traced", name, where="id < 400", **fields)
    lineage, traces = Receiver(), Receiver()
    try:
        done = kpipe.outside(
            "run", "traced", "--json", KPIPE_LOG="json", OPENLINEAGE_URL=f"http://127.0.0.1:{lineage.port}",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{traces.port}",
        )  # fmt: skip
    finally:
        lineage.stop()
        traces.stop()
    batch = json.loads(done.stdout.splitlines()[0])["batch"]
    logged = [json.loads(line) for line in done.stderr.splitlines()]  # each line is JSON
    assert [line["event"] for line in logged if line["batch"] == batch] == ["planned", "staged", "committed"]
    assert [line["event"] for line in kpipe.json("logs", "traced", "--batch", batch)] == ["planned", "staged", "committed"]
    assert kpipe.sql("SELECT DISTINCT batch_id FROM kpipe_batches") == [(batch,)]

    last = [one.json for one in lineage.got][-1]
    assert last["eventType"] == "COMPLETE" and last["run"]["facets"]["kpipe_batches"]["lastBatch"] == batch
    assert last["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 800
    assert [part["ranges"] for part in last["inputs"][0]["inputFacets"]["kpipe_offsets"]["partitions"]] == [
        [{"start": 0, "end": 500}]
    ] * 2

    spans = [
        span
        for one in traces.got
        for part in ExportTraceServiceRequest.FromString(one.body).resource_spans
        for scope in part.scope_spans
        for span in scope.spans
    ]
    assert {span.trace_id.hex() for span in spans} == {batch}
    stages = {"read", "decode", "write", *(["program"] if transform else [])}
    assert {span.name for span in spans} == {"batch", "plan", "stage", "range", "commit", *stages}
    assert len([span for span in spans if span.name == "range"]) == 2
    by_id = {span.span_id: span for span in spans}
    for span in spans:
        if span.name in stages:
            above = by_id[span.parent_span_id]
            assert above.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
            assert span.end_time_unix_nano <= above.end_time_unix_nano
