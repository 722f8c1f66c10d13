"""`kpipe errors NAME`: dead letters and failed runs, newest first; with `--retry`, dead letters tried again."""

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
from kpipe_assets.commands.options import as_json, pipeline_name, wide
from kpipe_assets.terminal import echo, emit
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["errors"]


@click.command()
@pipeline_name
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Errors to show.")
@click.option("--retry", "again", is_flag=True, help="Run the dead letters through the definition as it is now.")
@as_json
def errors(name: str, limit: int, again: bool, as_json: bool) -> int:
    """Dead letters and failed runs of the pipeline NAME, newest first.

    With --retry, dead letters are tried again as they are kept, without Kafka. Those that give rows now stand in the table with
    their own partition, offset and timestamp, and are dead letters no more; the others stay, with the new reason. Exactly
    once, whatever dies in between.

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
    console = wide()
    for row in rows:
        _show(console, row)
    if len(rows) == limit:
        total = next((known.get("error_events") for known in destination.view("pipelines")), None)
        if total is not None and total > limit:
            echo(f"{limit:,} of {total:,} shown; --limit for more")
    return 0


def _retry(name: str, home: Home, as_json: bool) -> int:
    from kpipe_assets.runs.dead_letter_retry import in_words, retry  # only now: it loads what stages records

    done = []
    for page in retry(home.pipeline(name), home, f"{getpass.getuser()} on the command line"):
        if as_json:
            emit({"event": "replay", "pipeline": name, **asdict(page)})
        done.append(page)
    if not as_json:
        echo(in_words(name, done))
    return 0


def _show(console: Console, row: Mapping[str, Any]) -> None:
    """Two or more lines: a table would leave an error's text a few letters of width."""
    seconds = row.get("error_unix_timestamp")
    when = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S") if seconds is not None else ""
    # Text, not markup: what a record holds must not be read as a style.
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
    """A record's value on one line."""
    if value is None:
        return "(null)"
    if not value:
        return "(empty)"
    found = _readable(value)
    return f"x'{found['hex']}'" if isinstance(found, dict) else repr(found)


def _readable(value: Any) -> Any:
    """Bytes as text where they are text, else as hexadecimal."""
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
