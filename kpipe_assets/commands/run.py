"""`kpipe run NAME`: ingest in this process, without Dagster."""

from __future__ import annotations

import getpass

import click

from kpipe.run_events import Decisions
from kpipe.topics import Part
from kpipe_assets.commands.options import as_json, as_partitions, pipeline_name
from kpipe_assets.runs.foreground import run_pipeline
from resources.home import Home

__all__ = ["run"]


@click.command()
@pipeline_name
@click.option("--max-batches", type=click.IntRange(min=1), metavar="N", help="Stop after N batches.")
@click.option(
    "--partitions",
    callback=as_partitions,
    metavar="LIST",
    help="Read only these partitions: 0,2-5, or a:0,b:2-5 with several topics.",
)
@click.option("--follow", is_flag=True, help="Keep running when caught up. Ctrl-C finishes the current batch and stops.")
@click.option(
    "--on-data-loss", type=click.Choice(["fail", "record"]), help="`record`: mark missing offsets as lost and continue."
)
@click.option(
    "--on-new-topic", type=click.Choice(["fail", "begin"]), default="fail", help="`begin`: read a recreated topic from its start."
)
@click.option(
    "--on-older-ledger",
    type=click.Choice(["fail", "accept"]),
    default="fail",
    help="`accept`: continue from a restored destination.",
)
@click.option(
    "--on-unfinished-batch",
    type=click.Choice(["finish", "skip"]),
    default="finish",
    help="`skip`: give up a batch that a webhook may have received in part; mark its offsets as skipped.",
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

    Decisions (--on-...) apply to this run only. The ledger records them.

    With KPIPE_SPARK=service, the run uses the Spark of a running `kpipe serve`, and starts none.

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
