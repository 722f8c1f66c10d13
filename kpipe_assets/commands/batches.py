"""`kpipe batches NAME`: list committed batches, newest first."""

from __future__ import annotations

import click

from kpipe_assets.commands.options import as_json, pipeline_name
from kpipe_assets.terminal import echo, emit
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["batches"]

_WIDTH = 132
"""Width of a terminal that fits all columns."""


@click.command()
@pipeline_name
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Batches to show.")
@as_json
def batches(name: str, limit: int, as_json: bool) -> int:
    """List committed batches of the pipeline NAME, newest first.

    \b
    Examples:
      kpipe batches tweets
      kpipe batches tweets --limit 1 --json
    """
    home = Home.from_env()
    rows = open_destination(home.pipeline(name), home).view("batches_summary", limit=limit)
    if as_json:
        for row in rows:
            emit(row)
        return 0
    if not rows:
        echo(f"{name}: nothing committed yet")
        return 0
    from kpipe_assets.console import listing, wide

    console = wide()
    shown = {
        "commit>": lambda row: str(row["seq"]),
        "batch": lambda row: row["batch_id"],
        "committed (UTC)": lambda row: str(row.get("committed") or "-")[:19],
        "seconds>": lambda row: f"{row['batch_time']:.2f}",
        "records>": lambda row: f"{row['rows_streamed']:,}",
        "rows>": lambda row: f"{row['rows_inserted']:,}",
        "dead letters>": lambda row: f"{row['dead_letters']:,}",
        "records/s>": lambda row: f"{row['rows_per_sec'] or 0:,.0f}",
        "MB>": lambda row: f"{row['mb_streamed']:.1f}",
        "partitions>": lambda row: str(row["num_partitions"]),
    }
    if console.width < _WIDTH:  # drop the least important columns; --json has all
        shown = {title: cell for title, cell in shown.items() if title not in ("batch", "records/s>", "MB>")}
    table = listing(*shown)
    for row in rows:
        table.add_row(*(cell(row) for cell in shown.values()))
    console.print(table)
    return 0
