"""`kpipe logs`: show what runs of this home have logged."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

import click

from kpipe_assets.commands.options import as_json
from kpipe_assets.telemetry.log_reader import Line, follow, logged, read, since
from kpipe_assets.terminal import echo, emit
from resources.home import Home

__all__ = ["logs"]


def _moment(_: click.Context, __: click.Parameter, value: str | None) -> str:
    try:
        return since(value) if value is not None else ""
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"expected 15m, 2h, 3d or ISO 8601, found {value!r}") from error


def _batch(_: click.Context, __: click.Parameter, value: str | None) -> str:
    if value is not None and not re.fullmatch(r"[0-9a-f]{4,32}", value):
        raise click.BadParameter(f"expected the first 4 to 32 hexadecimal digits of a batch's id, found {value!r}")
    return value or ""


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--follow", "follows", is_flag=True, help="Keep printing new lines. Ctrl-C stops.")
@click.option("--batch", metavar="ID", callback=_batch, help="Only lines of this batch; the first digits of its id are enough.")
@click.option(
    "--since", "moment", metavar="TIME", callback=_moment, help="Only lines after this time: 15m, 2h, 3d, or ISO 8601 in UTC."
)
@as_json
def logs(name: str | None, follows: bool, batch: str, moment: str, as_json: bool) -> int:
    """Show what runs of the pipeline NAME have logged, or those of all pipelines, by time.

    Lines come from `kpipe run`, `kpipe serve` and Dagster. A batch has the same id in every line, in the ledger, in Dagster's
    events, in lineage and as a trace. The log contains no records; a pipeline's log has 8 MB at most.

    \b
    Examples:
      kpipe logs tweets --since 15m
      kpipe logs tweets --batch 78aaccc4
      kpipe logs --follow --json
    """
    home = Home.from_env().check()
    if name is not None and name not in logged(home):
        home.pipeline(name)  # raises the error of a pipeline that does not exist
        if not follows:
            echo(f"{name}: nothing logged yet", err=True)
            return 0
    lines = follow(home, lambda: [name] if name else logged(home)) if follows else read(home, [name] if name else logged(home))
    try:
        _show(lines, batch, moment, as_json)
    except KeyboardInterrupt:
        if not follows:
            raise
    return 0


def _show(lines: Iterable[Line], batch: str, moment: str, as_json: bool) -> None:
    for line in lines:
        if line["time"] < moment or not str(line.get("batch", "")).startswith(batch):
            continue
        if as_json:
            emit(line)
        else:
            level, pipeline, id, text = (str(line.get(name, "")) for name in ("level", "pipeline", "batch", "message"))
            echo(" ".join([line["time"], level.upper(), pipeline, id[:8] or "-", *text.split("\n")]))
            sys.stdout.flush()
