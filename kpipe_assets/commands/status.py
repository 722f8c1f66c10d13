"""`kpipe status [NAME]`: show positions, lag and state."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from kpipe.errors import KpipeError
from kpipe_assets.commands.options import as_json
from kpipe_assets.runs.position_report import describe, unknown
from kpipe_assets.runs.status import waits_for
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.terminal import echo, emit
from kpipe_assets.wording import count, first_sentence
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
        on, unserved = sensor_states.on(), sensor_states.unserved()
    names = [name] if name else home.names()
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # most of the time is spent waiting for brokers that do not answer
        seen = list(pool.map(lambda item: _described(home, item, item in on, item not in unserved, name is None), names))
    lines = [line for line, *_ in seen]
    if as_json:
        for line in lines:
            emit(line)
        return int(any(failed for _, _, failed in seen))
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
    for line, trouble, failed in seen:
        if line["state"] == "waiting":
            console.print(Text(f"{line['pipeline']}: started, but {unserved[line['pipeline']]}"))
        if line["lag"] and (waits := waits_for(home, line["pipeline"])):
            console.print(Text(f"{line['pipeline']}: unread offsets wait for {waits}"))
        if line["skipped"]:
            console.print(Text(f"{line['pipeline']}: skipped (BACKFILL PIPELINE reads them): {', '.join(line['skipped'])}"))
        if line["lost"]:
            console.print(Text(f"{line['pipeline']}: lost: {', '.join(line['lost'])}"))
        if (topic := line["dead_letter_topic"]) is not None:
            lacks = f"; NOT the newest: {first_sentence(topic['error'])}" if topic["error"] else ""
            received = f"topic {topic['topic']} has received {count(topic['records'], 'dead letter')}"
            console.print(Text(f"{line['pipeline']}: {received}{lacks}"))
        recorded = line["last_error"] if line["last_error"] != trouble else None
        for what, error in (("last error", recorded), ("now" if failed else "Kafka now", trouble)):
            if error:
                text = Text(f"{line['pipeline']}: {what}: {first_sentence(error)}")
                text.truncate(console.width, overflow="ellipsis")
                console.print(text)
        if recorded:
            console.print(Text(f"    kpipe errors {line['pipeline']}"))
    return int(any(failed for _, _, failed in seen))


def _described(home: Home, name: str, on: bool, served: bool, among_others: bool) -> tuple[dict[str, Any], str | None, bool]:
    """Return the object of a pipeline, the current error, and whether nothing else can be shown.

    Raises:
        KpipeError: it cannot be shown, and no other pipeline is.
    """
    try:
        return *describe(home, name, on, served), False
    except KpipeError as error:
        if not among_others:
            raise
        return unknown(home, name, on, served, error), str(error), True
