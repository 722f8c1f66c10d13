"""`kpipe errors NAME`: dead letters and failed runs, newest first."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table
from rich.text import Text

from kpipe_assets.commands.options import as_json, emit, pipeline_name, wide
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["errors"]


@click.command()
@pipeline_name
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Errors to show.")
@as_json
def errors(name: str, limit: int, as_json: bool) -> int:
    """Dead letters and failed runs of the pipeline NAME, newest first.

    \b
    Examples:
      kpipe errors tweets
      kpipe errors tweets --limit 100 --json
    """
    home = Home.from_env()
    rows = open_destination(home.pipeline(name), home).view("errors", limit=limit)
    if as_json:
        for row in rows:
            emit({key: _readable(value) for key, value in row.items()})
        return 0
    if not rows:
        click.echo(f"{name}: no errors")
        return 0
    table = Table("type", "stage", "partition", "offset", "reason", "record", box=None, header_style="bold")
    for row in rows:
        where = [str(row[key]) if row.get(key) is not None else "" for key in ("stage", "partition", "offset")]
        record = _readable(row.get("load_data_line"))
        # Text, not markup: what a record holds must not be read as a style.
        table.add_row(row["error_type"], *where, Text(row["error_message"] or ""), Text(repr(record)[:60] if record else ""))
    wide().print(table)
    return 0


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
