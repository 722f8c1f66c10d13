"""`kpipe status [NAME]`: positions, lag and state."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from kpipe.errors import KpipeError
from kpipe.plan import lag
from kpipe_assets.assembly import is_running
from kpipe_assets.commands.options import as_json, emit, wide
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["status"]


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@as_json
def status(name: str | None, as_json: bool) -> int:
    """Positions, lag and state of the pipeline NAME, or of all.

    \b
    Examples:
      kpipe status
      kpipe status tweets --json
    """
    home = Home.from_env()
    lines = [describe(home, item) for item in ([name] if name else home.names())]
    if as_json:
        for line in lines:
            emit(line)
        return 0
    if not lines:
        click.echo(f"no pipelines in {home.pipelines}")
        return 0
    table = Table("pipeline", "state", "positions", "lag", "last commit", "last error", box=None, header_style="bold")
    for line in lines:
        positions = "  ".join(f"{part}: {offset:,}" for part, offset in line["positions"].items())
        last, behind = line["last_batch"], line["lag"]
        table.add_row(
            line["pipeline"],
            line["state"],
            positions or "-",
            "?" if behind is None else f"{behind:,}",
            f"#{last['seq']} {last['committed']}" if last else "-",
            line["last_error"] or "",
        )
    wide().print(table)
    return 0


def describe(home: Home, name: str) -> dict[str, Any]:
    """The object that `kpipe status --json` prints for a pipeline. Lag is null where the brokers do not answer."""
    from resources.kafka.topics import KafkaTopics

    pipeline = home.pipeline(name)
    destination = open_destination(pipeline, home)
    _, ledger = destination.ledger()
    known = next(iter(destination.view("pipelines")), {})
    batches = destination.view("batches_summary", limit=1)
    positions, high, behind, trouble = ledger.positions(), {}, None, None
    try:
        snapshot = KafkaTopics(pipeline.source).snapshot()
        positions = {source: offset for source, offset in positions.items() if source in snapshot.partitions}
        high = {str(source.partition): state.high for source, state in sorted(snapshot.partitions.items())}
        behind = sum(lag(ledger, snapshot).values())
    except KpipeError as error:
        trouble = str(error)
    state = str(known.get("state") or "stopped").lower()
    if is_running(home, name):
        state = "running"
    elif state == "running":  # its process is gone
        state = "stopped"
    return {
        "pipeline": name,
        "state": state,
        "positions": {str(source.partition): offset for source, offset in sorted(positions.items())},
        "high": high,
        "lag": behind,
        "last_batch": {
            "batch": batches[0]["batch_id"], "seq": batches[0]["seq"], "committed": str(batches[0]["start_time"])[:19]
        } if batches else None,
        "last_error": trouble or known.get("last_error") or None,
    }  # fmt: skip
