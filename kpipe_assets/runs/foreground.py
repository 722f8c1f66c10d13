"""Run a pipeline in this process and report its progress."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from kpipe.batch.batch import SETTLED, Committed, Counts
from kpipe.batch.table_write import of_also
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.source import Files
from kpipe.errors import KpipeError
from kpipe.run_events import Decisions
from kpipe.topics import Part, part
from kpipe_assets.runs.progress import Progress
from kpipe_assets.runs.run_spark import service_spark
from kpipe_assets.runs.runner import Run
from kpipe_assets.runs.service_lock import running_service
from kpipe_assets.runs.signals import Stop
from kpipe_assets.terminal import echo, emit, log, logs_json
from kpipe_assets.wording import count
from resources.home import Home

__all__ = ["Totals", "batch_line", "run_pipeline"]


@dataclass
class Totals:
    """Totals of a run for its summary.

    Attributes:
        batches: number of committed batches.
        counts: sums over all batches.
        positions: next offsets, by partition as text.
        status: `caught_up`, `limit`, `stopped` or `error`.
        seconds: duration, start-up included.
        reason: why the run stopped by itself: `exchange` of its table; empty: it did not.
    """

    batches: int = 0
    counts: Counts = field(default_factory=Counts)
    positions: dict[str, int] = field(default_factory=dict)
    status: str = "caught_up"
    seconds: float = 0.0
    reason: str = ""

    def add(self, committed: Committed) -> None:
        """Add a committed batch."""
        self.batches += 1
        self.counts += committed.commit.totals

    def line(self, name: str) -> dict[str, Any]:
        """Build the last line of `kpipe run --json`."""
        return {
            "event": "summary",
            "pipeline": name,
            "status": self.status,
            **({"reason": self.reason} if self.reason else {}),
            "batches": self.batches,
            **_numbers(self.counts),
            "seconds": round(self.seconds, 3),
            "positions": self.positions,
        }


def batch_line(committed: Committed) -> dict[str, Any]:
    """Build the line of a batch of `kpipe run --json`."""
    commit, batch = committed.commit, committed.batch
    # Each topic, or each value of a field, has a table of its own.
    apart = commit.by_field or any(len(write.counts) < len(commit.steps) for write in commit.tables)
    also = commit.tables if apart else of_also(commit.tables)
    return {
        "event": "batch",
        "batch": commit.id,
        "seq": committed.seq,
        "ranges": {str(part(step.source, commit.multi_topic)): [step.range.start, step.range.end] for step in commit.steps},
        **_numbers(commit.totals),
        "seconds": round(commit.seconds, 3),
        "closed_by": batch.closed_by if batch else "caught_up",
        **({"targets": {write.table: _rows(write.totals) for write in also}} if also else {}),
    }


def _rows(counts: Counts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in ("rows", *SETTLED)}


def _numbers(counts: Counts) -> dict[str, int]:
    names = ("messages", "rows", "deletes", "dead_letters", "filtered", "gaps", *SETTLED, "bytes")
    return {name: getattr(counts, name) for name in names}


def run_pipeline(
    pipeline: Pipeline,
    home: Home,
    decisions: Decisions | None = None,
    partitions: frozenset[Part] | None = None,
    max_batches: int | None = None,
    follow: bool = False,
    as_json: bool = False,
    stop: Stop | None = None,
) -> Totals:
    """Run a pipeline, and report progress on stderr or JSON lines on stdout.

    Raises:
        KpipeError: the run failed; the summary has been printed.
    """
    from resources.spark.jvm import early_start
    from resources.spark.jvm.session import start, start_early, started

    totals, began, reported, service = Totals(), time.monotonic(), started(), service_spark(home)
    stop = stop or Stop()
    progress = Progress(pipeline.name, as_json or logs_json(), partitions, pipeline.source.multi_topic)

    def spark() -> Any:
        nonlocal reported
        if not reported:
            text = "starting Spark" if service is None else f"using the Spark of {running_service(home) or 'kpipe serve'}"
            log(text, pipeline=pipeline.name) if logs_json() else progress.say(text)
            reported = True
        if service is not None:
            return service
        context = start(home.path)
        stop.install()  # pyspark replaces the handler of SIGINT when its context starts
        return context

    def on_work() -> None:
        start_early(home.path) if service is None else early_start.begin(service.connect)

    with stop, progress:
        try:
            ingest = Run.real(
                pipeline,
                home,
                spark,
                only=partitions,
                decisions=decisions or Decisions(),
                on_event=progress.on_event,
                wait=stop.wait,
                stopped=stop.requested,
                on_work=on_work,
            )
            for committed in ingest.batches(max_batches, follow):
                totals.add(committed)
                progress.committed(committed)
                if as_json:
                    emit(batch_line(committed))
            totals.reason = ingest.ended_by
            if totals.reason or stop.requested() or ingest.asked_to_stop():
                totals.status = "stopped"
            elif max_batches is not None and totals.batches >= max_batches:
                totals.status = "limit"
        except KpipeError:
            totals.status = "error"
            raise
        except KeyboardInterrupt:
            totals.status = "stopped"
            raise
        finally:
            totals.seconds = time.monotonic() - began
            totals.positions = progress.positions
            progress.close()
            if service is not None:
                service.close()
            if as_json:
                emit(totals.line(pipeline.name))
            else:
                echo(_sentence(pipeline.name, totals, progress, pipeline.source.files))
                if warning := _all_filtered(pipeline, totals.counts):
                    log(warning, "warning", pipeline.name)
    return totals


#: Reasons for a pass without a batch that leave offsets unread.
_WAITING = ("open_transaction", "source_transaction")


def _sentence(name: str, totals: Totals, progress: Progress, files: Files | None = None) -> str:
    counts, idle = totals.counts, progress.idle if totals.status == "caught_up" else ""
    waiting = f"{count(progress.behind, 'offset')} {'waits' if progress.behind == 1 else 'wait'} behind an open transaction"
    if idle == "source_transaction":
        waiting = f"{count(progress.behind, 'offset')} {'waits' if progress.behind == 1 else 'wait'} for {progress.waits}"
    ended = "; its table was rebuilt and exchanged: start it again" if totals.reason else ""
    if not totals.batches:
        reasons = {
            "error": "failed, nothing written",
            "stopped": f"stopped, nothing written{ended}",
            **dict.fromkeys(_WAITING, f"nothing new; {waiting}"),
            "finished": "nothing new; it has been read to its end (source.end)",
            "no_partitions": "nothing to read: no partition was chosen, or none exists"
            if files is None
            else f"nothing to read: no file matches {files.path}, or none has a record",
        }
        return f"{name}: " + reasons.get(idle or totals.status, f"nothing new; {_idle_reason(progress)}")
    words = {"caught_up": "caught up", "limit": "batch limit reached", "stopped": "stopped", "error": "failed"}
    done = "read to its end (source.end)" if idle == "finished" else words[totals.status]
    rate = counts.messages / totals.seconds if totals.seconds > 0 else 0
    return (
        f"{name}: {done} after {count(totals.batches, 'batch', 'batches')}: {count(counts.messages, 'record')},"
        f" {count(counts.rows, 'row')}, {count(counts.dead_letters, 'dead letter')}, {counts.filtered:,} filtered,"
        f" {count(counts.gaps, 'gap')} in {totals.seconds:.1f} s ({rate:,.0f} records/s, start-up included)"
        + (f"; {waiting}" if idle in _WAITING else ended)
    )


def _all_filtered(pipeline: Pipeline, counts: Counts) -> str:
    """Return a warning if no record has passed the condition: a misspelled name in it is NULL, not an error."""
    condition = "where" if pipeline.where else "select" if pipeline.select else ""
    if not condition or not counts.messages or counts.filtered < counts.messages:
        return ""
    return (
        f"warning: `{condition}` has filtered every record; a field that a record does not have is NULL in it"
        f" -> compare the names in `{condition}` with the fields of a record"
    )


def _idle_reason(progress: Progress) -> str:
    skipped = f"{count(progress.skipped, 'offset')} {'was' if progress.skipped == 1 else 'were'} skipped"
    if progress.has_read:
        return "every committed offset is already in the table" + (f", {skipped}" if progress.skipped else "")
    return f"no records since the pipeline began; {skipped}" if progress.skipped else "no records yet"
