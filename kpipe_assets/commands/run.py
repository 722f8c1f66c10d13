"""`kpipe run NAME`: ingest in this process, without Dagster's daemon."""

from __future__ import annotations

import getpass
import time
from dataclasses import dataclass, field
from typing import Any

import click

from kpipe.batch import SETTLED, Committed, Counts
from kpipe.errors import KpipeError
from kpipe.ingest import Decisions
from kpipe.pipeline import Pipeline
from kpipe.source import Part, part
from kpipe_assets.assembly import Run
from kpipe_assets.commands.options import as_json, as_partitions, count, emit, pipeline_name
from kpipe_assets.progress import Progress
from kpipe_assets.signals import Stop
from kpipe_assets.terminal import echo
from resources.home import Home

__all__ = ["Totals", "batch_line", "run", "run_pipeline"]


@click.command()
@pipeline_name
@click.option("--max-batches", type=click.IntRange(min=1), metavar="N", help="End after N batches.")
@click.option(
    "--partitions",
    callback=as_partitions,
    metavar="LIST",
    help="Only these, such as 0,2-5; of several topics, a:0,b:2-5.",
)
@click.option("--follow", is_flag=True, help="Go on when caught up, until stopped (Ctrl-C finishes the batch at hand).")
@click.option(
    "--on-data-loss", type=click.Choice(["fail", "record"]), help="`record`: note offsets that are gone as lost, and go on."
)
@click.option(
    "--on-new-topic", type=click.Choice(["fail", "begin"]), default="fail", help="`begin`: read a recreated topic from its start."
)
@click.option(
    "--on-older-ledger",
    type=click.Choice(["fail", "accept"]),
    default="fail",
    help="`accept`: go on from a restored destination.",
)
@click.option(
    "--on-unfinished-batch",
    type=click.Choice(["finish", "skip"]),
    default="finish",
    help="`skip`: give up a batch that a webhook may have taken in part; its offsets become skipped.",
)
@as_json
def run(
    name: str,
    max_batches: int | None,
    partitions: frozenset[Part] | None,
    follow: bool,
    on_data_loss: str | None,
    on_new_topic: str,
    on_older_ledger: str,
    on_unfinished_batch: str,
    as_json: bool,
) -> int:
    """Ingest the pipeline NAME until caught up.

    Decisions (--on-...) hold for this run and are recorded in the ledger.

    \b
    Examples:
      kpipe run tweets
      kpipe run tweets --partitions 0,2-5 --max-batches 10
      kpipe run tweets --follow --json
    """
    home = Home.from_env()
    who = f"{getpass.getuser()} on the command line"
    decisions = Decisions(on_data_loss, on_new_topic, on_older_ledger, who, on_unfinished_batch)
    pipeline = home.pipeline(name)
    run_pipeline(pipeline, home, decisions, partitions, max_batches, follow, as_json)
    return 0


@dataclass
class Totals:
    """What a run did, for its summary.

    Attributes:
        batches: committed.
        counts: sums.
        positions: next offsets, by partition as text.
        status: `caught_up`, `limit`, `stopped` or `error`.
    """

    batches: int = 0
    counts: Counts = field(default_factory=Counts)
    positions: dict[str, int] = field(default_factory=dict)
    status: str = "caught_up"
    seconds: float = 0.0

    def add(self, committed: Committed) -> None:
        """Count a batch."""
        self.batches += 1
        self.counts += committed.commit.totals

    def line(self, name: str) -> dict[str, Any]:
        """The last line of `kpipe run --json`."""
        return {
            "event": "summary",
            "pipeline": name,
            "status": self.status,
            "batches": self.batches,
            **_numbers(self.counts),
            "seconds": round(self.seconds, 3),
            "positions": self.positions,
        }


def batch_line(committed: Committed) -> dict[str, Any]:
    """A batch's line of `kpipe run --json`."""
    commit, batch = committed.commit, committed.batch
    return {
        "event": "batch",
        "batch": commit.id,
        "seq": committed.seq,
        "ranges": {str(part(step.source, commit.several)): [step.range.start, step.range.end] for step in commit.steps},
        **_numbers(commit.totals),
        "seconds": round(commit.seconds, 3),
        "closed_by": batch.closed_by if batch else "caught_up",
        **({"targets": {portion.table: _rows(portion.totals) for portion in commit.also}} if commit.also else {}),
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
    """Run a pipeline with progress for a person, or with JSON lines.

    Raises:
        KpipeError: the run failed; the summary has been printed.
    """
    from resources.spark.session import start, started

    totals, began = Totals(), time.monotonic()
    stop = stop or Stop()
    progress = Progress(pipeline.name, as_json, partitions, pipeline.source.several)

    def spark() -> Any:
        if not started():
            progress.say("starting Spark")
        context = start(home.path)
        stop.install()  # pyspark takes SIGINT for itself when its context starts
        return context

    with stop, progress:
        try:
            ingest = Run.real(
                pipeline,
                home,
                spark,
                only=partitions,
                decisions=decisions or Decisions(),
                tell=progress.tell,
                wait=stop.wait,
                stopped=stop.requested,
            )
            for committed in ingest.batches(max_batches, follow):
                totals.add(committed)
                progress.committed(committed)
                if as_json:
                    emit(batch_line(committed))
            if stop.requested() or ingest.asked_to_stop():
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
            if as_json:
                emit(totals.line(pipeline.name))
            else:
                echo(_sentence(pipeline.name, totals, progress))
    return totals


def _sentence(name: str, totals: Totals, progress: Progress) -> str:
    counts, idle = totals.counts, progress.idle if totals.status == "caught_up" else ""
    waiting = f"{count(progress.behind, 'offset')} {'waits' if progress.behind == 1 else 'wait'} behind an open transaction"
    if not totals.batches:
        why = {
            "error": "failed, nothing written",
            "stopped": "stopped, nothing written",
            "open_transaction": f"nothing new; {waiting}",
            "finished": "nothing new; it has been read to its end (source.end)",
            "no_partitions": "nothing to read: no partition was chosen, or none exists",
        }
        return f"{name}: " + why.get(idle or totals.status, f"nothing new; {_why_nothing(progress)}")
    words = {"caught_up": "caught up", "limit": "batch limit reached", "stopped": "stopped", "error": "failed"}
    done = "read to its end (source.end)" if idle == "finished" else words[totals.status]
    rate = counts.messages / totals.seconds if totals.seconds > 0 else 0
    return (
        f"{name}: {done} after {count(totals.batches, 'batch', 'batches')}: {count(counts.messages, 'record')},"
        f" {count(counts.rows, 'row')}, {count(counts.dead_letters, 'dead letter')}, {counts.filtered:,} filtered,"
        f" {count(counts.gaps, 'gap')} in {totals.seconds:.1f} s ({rate:,.0f} records/s, start-up included)"
        + (f"; {waiting}" if idle == "open_transaction" else "")
    )


def _why_nothing(progress: Progress) -> str:
    left_out = f"{count(progress.skipped, 'offset')} {'was' if progress.skipped == 1 else 'were'} skipped"
    if progress.has_read:
        return "every committed offset is already in the table" + (f", {left_out}" if progress.skipped else "")
    return f"no record has come since it began; {left_out}" if progress.skipped else "no record has come yet"
