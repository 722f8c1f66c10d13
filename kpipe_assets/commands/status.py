"""`kpipe status [NAME]`: show positions, lag and state."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any

import click

from kpipe.errors import KpipeError
from kpipe.ledger.ledger import LOST, SKIPPED
from kpipe.planning.planner import lag
from kpipe.topics import part
from kpipe_assets.commands.options import as_json
from kpipe_assets.runs.status import run_by, state_of
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.terminal import echo, emit
from kpipe_assets.wording import first_sentence
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["status"]

_AT_ONCE = 16


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@as_json
def status(name: str | None, as_json: bool) -> int:
    """Show positions, lag and state of the pipeline NAME, or of all pipelines.

    \b
    Examples:
      kpipe status
      kpipe status tweets --json
    """
    home = Home.from_env()
    with SensorStates(home) as sensor_states:
        on, served = sensor_states.on(), sensor_states.is_served()
    names = [name] if name else home.names()
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # most of the time is spent waiting for brokers that do not answer
        seen = list(pool.map(lambda item: describe(home, item, item in on, served), names))
    lines = [line for line, _ in seen]
    if as_json:
        for line in lines:
            emit(line)
        return 0
    if not lines:
        echo(f"no pipelines in {home.pipelines}")
        return 0
    from rich.text import Text

    from kpipe_assets.console import listing, wide

    table = listing("pipeline", "state", "run by", "positions", "lag>", "last commit (UTC)")
    for line in lines:
        positions = "  ".join(f"{part}:{offset:,}" for part, offset in line["positions"].items())
        last, behind = line["last_batch"], line["lag"]
        table.add_row(
            line["pipeline"],
            line["state"],
            ", ".join(line["run_by"]) or "-",
            positions or "-",
            "?" if behind is None else f"{behind:,}",
            f"{last['seq']} at {(last['committed'] or '?').rstrip('Z').replace('T', ' ')}" if last else "-",
        )
    console = wide()
    console.print(table)
    for line, trouble in seen:
        if line["state"] == "waiting":
            console.print(Text(f"{line['pipeline']}: started, but no service runs it: start `kpipe serve` or `kpipe ui`"))
        if line["skipped"]:
            console.print(Text(f"{line['pipeline']}: skipped (BACKFILL PIPELINE reads them): {', '.join(line['skipped'])}"))
        if line["lost"]:
            console.print(Text(f"{line['pipeline']}: lost: {', '.join(line['lost'])}"))
        recorded = line["last_error"] if line["last_error"] != trouble else None
        for what, error in (("last error", recorded), ("Kafka now", trouble)):
            if error:
                text = Text(f"{line['pipeline']}: {what}: {first_sentence(error)}")
                text.truncate(console.width, overflow="ellipsis")
                console.print(text)
        if recorded:
            console.print(Text(f"    kpipe errors {line['pipeline']}"))
    return 0


def describe(home: Home, name: str, on: bool, served: bool) -> tuple[dict[str, Any], str | None]:
    """Return the object that `kpipe status --json` prints for a pipeline, and the current error of the brokers.

    Lag is null if the brokers do not answer. `last_error` is the error that the last run recorded, else that of the brokers.

    Args:
        home: KPIPE_HOME.
        name: the pipeline's name.
        on: whether its sensor is running.
        served: whether a daemon evaluates the sensor.
    """
    from resources.kafka.topic_metadata import KafkaTopics

    pipeline = home.pipeline(name)
    destination, multi_topic = open_destination(pipeline, home), pipeline.source.multi_topic
    _, ledger = destination.ledger()
    recorded: Mapping[str, Any] = next(iter(destination.view("pipelines")), {})
    if not recorded:  # before the first commit, only the home records how the last run ended
        recorded = {"last_error": home.noted(name).get("error")}
    batches = destination.view("batches_summary", limit=1)
    positions, high, behind, trouble = ledger.positions(), {}, None, None
    try:
        snapshot = KafkaTopics(pipeline.source).snapshot()
        positions = {source: offset for source, offset in positions.items() if source in snapshot.partitions}
        high = {str(part(source, multi_topic)): state.high for source, state in sorted(snapshot.partitions.items())}
        behind = sum(lag(ledger, snapshot).values())
    except KpipeError as error:
        trouble = str(error)
    return {
        "pipeline": name,
        "state": state_of(home, name, on, served),
        "run_by": run_by(home, name),
        "positions": {str(part(source, multi_topic)): offset for source, offset in sorted(positions.items())},
        "high": high,
        "lag": behind,
        **{
            state: [f"{source} {item}" for source in ledger.sources() for item in ledger.unread(source, state).ranges]
            for state in (SKIPPED, LOST)
        },
        "last_batch": {
            "batch": batches[0]["batch_id"], "seq": batches[0]["seq"], "committed": _iso(batches[0].get("committed"))
        } if batches else None,
        "last_error": recorded.get("last_error") or trouble,
    }, trouble  # fmt: skip


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if moment is not None else None
