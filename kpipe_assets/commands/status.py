"""`kpipe status [NAME]`: positions, lag and state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import click
from rich.text import Text

from kpipe.errors import KpipeError
from kpipe.plan import lag
from kpipe_assets.assembly import is_running
from kpipe_assets.commands.options import as_json, emit, first_sentence, listing, wide
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
    seen = [describe(home, item) for item in ([name] if name else home.names())]
    lines = [line for line, _ in seen]
    if as_json:
        for line in lines:
            emit(line)
        return 0
    if not lines:
        click.echo(f"no pipelines in {home.pipelines}")
        return 0
    table = listing("pipeline", "state", "positions", "lag>", "last commit (UTC)")
    for line in lines:
        positions = "  ".join(f"{part}:{offset:,}" for part, offset in line["positions"].items())
        last, behind = line["last_batch"], line["lag"]
        table.add_row(
            line["pipeline"],
            line["state"],
            positions or "-",
            "?" if behind is None else f"{behind:,}",
            f"{last['seq']} at {(last['committed'] or '?').rstrip('Z').replace('T', ' ')}" if last else "-",
        )
    console = wide()
    console.print(table)
    for line, trouble in seen:
        recorded = line["last_error"] if line["last_error"] != trouble else None
        for what, error in (("last error", recorded), ("Kafka now", trouble)):
            if error:
                text = Text(f"{line['pipeline']}: {what}: {first_sentence(error)}")
                text.truncate(console.width, overflow="ellipsis")
                console.print(text)
        if recorded:
            console.print(Text(f"    kpipe errors {line['pipeline']}"))
    return 0


def describe(home: Home, name: str) -> tuple[dict[str, Any], str | None]:
    """The object that `kpipe status --json` prints for a pipeline, and what is wrong with the brokers at this moment.

    Lag is null where they do not answer. `last_error` is what the last run recorded; only without that, what they say now.
    """
    from resources.kafka.topics import KafkaTopics

    pipeline = home.pipeline(name)
    destination = open_destination(pipeline, home)
    _, ledger = destination.ledger()
    known: Mapping[str, Any] = next(iter(destination.view("pipelines")), {})
    if not known:  # nothing was ever committed; the home knows how the last run ended
        noted = home.noted(name)
        known = {"state": noted.get("state"), "last_error": noted.get("error")}
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
            "batch": batches[0]["batch_id"], "seq": batches[0]["seq"], "committed": _iso(batches[0].get("committed"))
        } if batches else None,
        "last_error": known.get("last_error") or trouble,
    }, trouble  # fmt: skip


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if moment is not None else None
