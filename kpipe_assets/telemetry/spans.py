"""Make and export the spans of batches. Importing this module imports OpenTelemetry's SDK."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from kpipe import __version__
from kpipe.batch.batch import RangeReport
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from kpipe_assets.telemetry.batch_trace import BatchTrace
from resources.extras import missing

try:
    from opentelemetry import trace as api
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
except ImportError as error:
    raise missing("OTEL_ variables", "opentelemetry-sdk", "otel", error=error) from error

__all__ = ["MOST_RANGES", "Exporter"]

#: Most ranges of a batch with spans of their own: those that took longest.
MOST_RANGES = 32


class _Ids(RandomIdGenerator):
    """Ids of traces that are ids of batches."""

    batch = ""

    def generate_trace_id(self) -> int:
        """Return the batch's id; it is as random as any other."""
        return int(self.batch, 16)


class _Reporting(SpanExporter):
    """An exporter whose failures are reported instead of logged."""

    def __init__(self, exporter: SpanExporter, failed: Callable[[], None]) -> None:
        self._exporter, self._failed = exporter, failed

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans."""
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._failed()
        return result

    def shutdown(self) -> None:
        """Close the exporter."""
        self._exporter.shutdown()


class Exporter:
    """Exports traces as OpenTelemetry's variables define. One thread uses it.

    Attributes:
        failed: reports why spans are not delivered.

    Raises:
        NotAvailable: an exporter is not installed.
        InvalidPipeline: a variable has an unsupported value.
    """

    def __init__(self) -> None:
        self.failed: Callable[[str], None] = lambda _: None
        logger = logging.getLogger("opentelemetry")  # `failed` replaces a line for each retry
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        own = {"service.version": __version__}
        if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
            own["service.name"] = "kpipe"
        self._ids = _Ids()
        self._provider = TracerProvider(
            resource=Resource.create(own),
            id_generator=self._ids,
            shutdown_on_exit=False,  # it would wait for a server that hangs
        )
        for exporter in _exporters():
            self._provider.add_span_processor(BatchSpanProcessor(_Reporting(exporter, self._report)))
        self._tracer = self._provider.get_tracer("kpipe", __version__)

    def export(self, pipeline: Pipeline, trace: BatchTrace) -> None:
        """Queue the spans of a batch: `batch`, and in it `plan`, `stage` with its ranges, and `commit`."""
        commit = trace.committed.commit if trace.committed is not None else None
        began = min(commit.started_ms / 1000, trace.planned) if commit is not None and commit.started_ms else trace.planned
        self._ids.batch = trace.batch.id
        whole = self._span("batch", began, None, _attributes(pipeline, trace))
        within = api.set_span_in_context(whole)
        if began < trace.planned:
            self._span("plan", began, within).end(_ns(trace.planned))
        staged = trace.staged or trace.ended
        staging = self._span("stage", trace.planned, within)
        ranges = sorted(trace.reports, key=lambda report: report.seconds, reverse=True)
        for report in ranges[:MOST_RANGES]:
            self._range(report, api.set_span_in_context(staging))
        staging.end(_ns(staged))
        if trace.staged:
            self._span("commit", trace.staged, within).end(_ns(trace.ended))
        if trace.error:
            whole.set_status(api.Status(api.StatusCode.ERROR, trace.error))
        whole.end(_ns(trace.ended))

    def flush(self) -> None:
        """Export what is queued."""
        self._provider.force_flush()

    def _range(self, report: RangeReport, within: Any) -> None:
        """Make the spans of a range. Its stages take turns, block by block; their spans follow each other."""
        if not report.began:
            return
        source = report.source
        attributes: dict[str, Any] = {
            "messaging.system": "kafka",
            "messaging.destination.name": source.topic.name,
            "messaging.destination.partition.id": str(source.partition),
            "kpipe.offset.start": report.range.start,
            "kpipe.offset.end": report.range.end,
            "kpipe.records": report.records.messages,
            **({"host.name": report.host} if report.host else {}),
        }
        span = self._span("range", report.began, within, attributes)
        inside, moment = api.set_span_in_context(span), report.began
        for stage, seconds in report.stages.items():
            part = self._span({"stage": "write"}.get(stage, stage), moment, inside)
            moment += seconds
            part.end(_ns(moment))
        span.end(_ns(max(moment, report.began + report.seconds)))

    def _span(self, name: str, began: float, within: Any, attributes: dict[str, Any] | None = None) -> Any:
        return self._tracer.start_span(name, context=within, attributes=attributes, start_time=_ns(began))

    def _report(self) -> None:
        self.failed("traces are not delivered")


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


def _attributes(pipeline: Pipeline, trace: BatchTrace) -> dict[str, Any]:
    batch, committed = trace.batch, trace.committed
    found: dict[str, Any] = {
        "kpipe.pipeline": pipeline.name,
        "kpipe.batch.id": batch.id,
        "kpipe.run.id": trace.run,
        "kpipe.offsets": batch.span,
        "kpipe.ranges": len(batch.steps),
        "kpipe.destination": pipeline.into.type,
    }
    if committed is not None:
        counts = committed.commit.totals
        found |= {"kpipe.commit": committed.seq, "kpipe.records": counts.messages, "kpipe.rows": counts.rows}
        found |= {"kpipe.dead_letters": counts.dead_letters, "kpipe.bytes": counts.bytes}
    return found


def _exporters() -> list[SpanExporter]:
    """Create the exporters of OTEL_TRACES_EXPORTER: `otlp`, which is the default, or `console`, which prints to stderr.

    Raises:
        NotAvailable: the exporter is not installed.
        InvalidPipeline: another exporter, or a protocol other than http/protobuf.
    """
    found: list[SpanExporter] = []
    for name in (os.environ.get("OTEL_TRACES_EXPORTER") or "otlp").lower().split(","):
        if name.strip() == "console":
            found.append(ConsoleSpanExporter(out=sys.stderr))
        elif name.strip() == "otlp":
            protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
            if protocol not in (None, "", "http/protobuf"):
                raise InvalidPipeline(
                    f"OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf, found {protocol!r}", "use the collector's port 4318"
                )
            try:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            except ImportError as error:
                package = "opentelemetry-exporter-otlp-proto-http"
                raise missing("OTEL_ variables", package, "otel", error=error) from error
            found.append(OTLPSpanExporter())
        else:
            what = f"OTEL_TRACES_EXPORTER: expected otlp, console or none, found {name.strip()!r}"
            raise InvalidPipeline(what, "set it to otlp")
    return found
