"""`kpipe adopt NAME`: let a pipeline go on where another loader has stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kpipe_assets.commands.options import as_json, pipeline_name
from kpipe_assets.commands.table_options import address, place_options, table_options, templates
from kpipe_assets.terminal import echo, emit
from kpipe_assets.wording import count
from resources.home import Home

if TYPE_CHECKING:
    from kpipe_assets.runs.adoption import Proposal, Request

__all__ = ["adopt"]

_SOURCES = "group:NAME, connect:NAME, connect-offsets:FILE, checkpoint:FOLDER, iceberg-sink:NAME, delta-txn:NAME, table"


@click.command()
@pipeline_name
@click.option("--from", "source", required=True, metavar="SOURCE", help=f"Source of the position: {_SOURCES}.")
@click.option(
    "--check", "checks", multiple=True, metavar="SOURCE", help="Compare with another source, such as table; repeatable."
)
@click.option("--apply", is_flag=True, help="Write the position to the ledger. Without it, nothing is written.")
@click.option(
    "--planned-batch",
    type=click.Choice(["included", "excluded"]),
    help="Whether the table contains a batch that a checkpoint has planned and not committed.",
)
@click.option(
    "--on-data-loss",
    type=click.Choice(["fail", "record"]),
    default="fail",
    help="`record`: mark offsets as lost that Kafka has deleted since.",
)
@table_options(required=False)
@place_options
@click.option(
    "--table-credential", multiple=True, callback=templates, metavar="KEY=TEMPLATE", help="Secret of the database; repeatable."
)
@click.option(
    "--from-credential",
    multiple=True,
    callback=templates,
    metavar="KEY=TEMPLATE",
    help="Secret of Kafka Connect (username and password, or token) or of the checkpoint's object store; repeatable.",
)
@as_json
def adopt(name: str, apply: bool, as_json: bool, **options: Any) -> int:
    """Let the pipeline NAME go on where another loader has stopped, without a gap or a duplicate.

    The pipeline is defined and has not begun. kpipe reads the loader's position, compares it with the brokers, and prints it.
    With --apply, it writes the position to the ledger in one commit. The first batch begins exactly there.

    Exit status 1: the position must not be used; nothing was written.

    \b
    Examples:
      kpipe adopt orders --from group:orders-loader
      kpipe adopt orders --from connect:orders --check table --apply
      kpipe adopt orders --from checkpoint:/data/checkpoints/orders --apply
    """
    from kpipe_assets.runs.adoption import adopt as begin
    from kpipe_assets.runs.adoption import propose

    home = Home.from_env()
    request = _request(options)
    proposal = propose(home.pipeline(name), home, request)
    good = not proposal.adoption.problems
    seq = begin(proposal, request) if apply and good and not proposal.begun else None
    if as_json:
        emit(_as_dict(name, proposal, seq))
    else:
        _show(name, proposal, seq, apply)
    return 0 if good else 1


def _request(options: dict[str, Any]) -> Request:
    from kpipe_assets.runs.adoption import Request
    from resources.adoption.table_offsets import TableColumns

    if options["kind"] is None and (given := [name for name in ("database", "table", "catalog") if options[name]]):
        raise click.UsageError(f"--{given[0]}: expected --type as well")
    if options["kind"] is not None and options["database"] is None:
        raise click.UsageError("--type: expected --database as well")
    planned = options["planned_batch"]
    return Request(
        source=options["source"],
        checks=options["checks"],
        table=address(options) if options["kind"] is not None else None,
        columns=TableColumns(
            options["partition_column"], options["offset_column"], options["topic_column"], options["topic_value"]
        ),
        credentials=options["from_credential"],
        included=None if planned is None else planned == "included",
        accept_loss=options["on_data_loss"] == "record",
    )


def _as_dict(name: str, proposal: Proposal, seq: int | None) -> dict[str, Any]:
    adoption = proposal.adoption
    return {
        "pipeline": name,
        "from": adoption.origin,
        "partitions": [
            {
                "topic": start.source.topic.name,
                "topic_id": start.source.topic.topic_id,
                "partition": start.source.partition,
                "position": start.offset,
                "named": start.named,
                "log_start": start.state.log_start,
                "end": start.state.end,
                "high": start.state.high,
                "lag": start.lag,
            }
            for start in adoption.starts
        ],
        "notes": list(adoption.notes),
        "problems": list(adoption.problems),
        "applied": seq is not None or proposal.begun,
        "commit": seq,
    }


def _show(name: str, proposal: Proposal, seq: int | None, apply: bool) -> None:
    from kpipe_assets.console import listing, wide

    adoption = proposal.adoption
    echo(f"{name}: from {adoption.origin}")
    table = listing("partition", "position>", "log start>", "log end>", "lag>", "source")
    for start in adoption.starts:
        numbers = (start.offset, start.state.log_start, start.state.high, start.lag)
        words = "as recorded" if start.named else "log start: not recorded"
        table.add_row(str(start.source), *(f"{number:,}" for number in numbers), words)
    wide().print(table)
    for topic in {start.source.topic: None for start in adoption.starts}:
        echo(f"topic {topic.name}: id {topic.topic_id or '-'}, cluster {topic.cluster}")
    for note in adoption.notes:
        echo(f"note: {note}")
    for problem in adoption.problems:
        echo(f"problem: {problem}", err=True)
    if adoption.problems:
        echo(f"NOT adopted: {count(len(adoption.problems), 'problem')}; nothing was written", err=True)
    elif proposal.begun:
        echo(f"{name} is at this position already")
    elif seq is not None:
        echo(f"adopted with commit {seq}: kpipe run {name} reads from there")
    else:
        echo(f"nothing was written; to begin there: add --apply{' again' if apply else ''}")
