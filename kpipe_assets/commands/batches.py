"""`kpipe batches NAME`: what was committed, newest first."""

from __future__ import annotations

import click
from rich.table import Table

from kpipe_assets.commands.options import as_json, emit, pipeline_name, wide
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["batches"]


@click.command()
@pipeline_name
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Batches to show.")
@as_json
def batches(name: str, limit: int, as_json: bool) -> int:
    """Committed batches of the pipeline NAME, newest first.

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
        click.echo(f"{name}: nothing committed yet")
        return 0
    table = Table("seq", "batch", "state", "started (UTC)", "seconds", "rows", "rows/s", "MB", "partitions", box=None)
    for row in rows:
        table.add_row(
            str(row["seq"]),
            row["batch_id"],
            row["batch_state"],
            str(row["start_time"])[:19],
            f"{row['batch_time']:.2f}",
            f"{row['rows_streamed']:,}",
            f"{row['rows_per_sec'] or 0:,.0f}",
            f"{row['mb_streamed']:.1f}",
            str(row["num_partitions"]),
        )
    wide().print(table)
    return 0
