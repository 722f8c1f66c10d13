"""`kpipe errors NAME`: list dead letters and failed runs, or retry dead letters with `--retry`."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from kpipe.terminal import plain
from kpipe_assets.commands.options import as_json, pipeline_name
from kpipe_assets.terminal import echo, emit
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["errors"]


@click.command()
@pipeline_name
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Errors to show.")
@click.option("--retry", "again", is_flag=True, help="Process the dead letters again with the current definition.")
@as_json
def errors(name: str, limit: int, again: bool, as_json: bool) -> int:
    """List dead letters and failed runs of the pipeline NAME, newest first.

    With --retry, kpipe processes the stored dead letters again, without reading Kafka. A record that now gives rows moves
    to the table, with its own partition, offset and timestamp. The others stay, with the new reason. A record is moved
    exactly once, also if a process is killed.

    \b
    Examples:
      kpipe errors tweets
      kpipe errors tweets --retry
      kpipe errors tweets --limit 100 --json
    """
    home = Home.from_env()
    if again:
        return _retry(name, home, as_json)
    destination = open_destination(home.pipeline(name), home)
    rows = destination.view("errors", limit=limit)
    if as_json:
        for row in rows:
            emit({key: _readable(value) for key, value in row.items()})
        return 0
    if not rows:
        echo(f"{name}: no errors")
        return 0
    from kpipe_assets.console import wide

    console = wide()
    for row in rows:
        _show(console, row)
    if len(rows) == limit:
        total = next((pipeline.get("error_events") for pipeline in destination.view("pipelines")), None)
        if total is not None and total > limit:
            echo(f"{limit:,} of {total:,} shown; --limit for more")
    return 0


def _retry(name: str, home: Home, as_json: bool) -> int:
    from kpipe_assets.runs.dead_letter_retry import in_words, retry  # slow import: it loads the stager

    done = []
    for page in retry(home.pipeline(name), home, f"{getpass.getuser()} on the command line"):
        if as_json:
            emit({"event": "replay", "pipeline": name, **asdict(page)})
        done.append(page)
    if not as_json:
        echo(in_words(name, done))
    return 0


def _show(console: Console, row: Mapping[str, Any]) -> None:
    """Print an error on two or more lines: a table column would be too narrow for its text."""
    seconds = row.get("error_unix_timestamp")
    when = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S") if seconds is not None else ""
    # Text, not markup: a record's content must not be parsed as a style.
    message = Text(plain(row["error_message"] or ""))
    if not row.get("dead_letter"):
        console.print(Text.assemble(when, "  ", ("run failed", "bold"), f"  {row['error_code'] or ''}"))
        console.print(Padding(message, (0, 0, 0, 4), expand=False))
        return
    where = f"  {row['topic']}/{row['partition']} offset {row['offset']:,}  "
    console.print(Text.assemble(when, "  ", ("dead letter", "bold"), where, message))
    line = Text(f"    record: {_record(row.get('load_data_line'))}")
    line.truncate(console.width, overflow="ellipsis")
    console.print(line)


def _record(value: Any) -> str:
    """Format a record's value on one line."""
    if value is None:
        return "(null)"
    if not value:
        return "(empty)"
    readable = _readable(value)
    return f"x'{readable['hex']}'" if isinstance(readable, dict) else repr(readable)


def _readable(value: Any) -> Any:
    """Decode bytes as UTF-8, or as hexadecimal where they are not UTF-8."""
    if isinstance(value, dict):
        return {key: _readable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_readable(item) for item in value]
    if not isinstance(value, (bytes, bytearray)):
        return value
    try:
        return bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        return {"hex": bytes(value).hex()}
