"""`kpipe trace [NAME] TOPIC:PARTITION:OFFSET`: show what became of an offset, or which offset gave a row."""

from __future__ import annotations

from collections.abc import Sequence

import click

from kpipe_assets.commands.options import as_json
from kpipe_assets.provenance.positions import named_pipeline, position
from kpipe_assets.terminal import echo, emit
from resources.home import Home

__all__ = ["trace"]


def _conditions(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"expected COLUMN=VALUE, found {text!r}")
        if name in found:
            raise click.BadParameter(f"column {name!r} is named twice")
        found[name] = value
    return found


@click.command()
@click.argument("words", metavar="[NAME] [TOPIC:PARTITION:OFFSET]", nargs=-1)
@click.option(
    "--where", metavar="COLUMN=VALUE", multiple=True, callback=_conditions,
    help="Find a row by a column's value instead; repeat it for several columns.",
)  # fmt: skip
@click.option("--table", metavar="TABLE", help="Table of --where. Default: the pipeline's first table.")
@as_json
def trace(words: tuple[str, ...], where: dict[str, str], table: str | None, as_json: bool) -> int:
    """Show what became of an offset: its batch, commit, run and version, and the row, dead letter or reason.

    The pipeline NAME may be omitted if only one pipeline of the home reads the topic. With --where, kpipe finds a row by its
    values, and shows the offset that gave it. Values are never part of a statement.

    An answer is only given if ledger and table exclude every other one. Otherwise the possible answers are listed.

    \b
    Examples:
      kpipe trace tweets:0:4711
      kpipe trace loader tweets:0:4711 --json
      kpipe trace loader --where id=42
    """
    from kpipe_assets.provenance.trace_report import lines, to_dict
    from kpipe_assets.provenance.tracing import trace as explained
    from kpipe_assets.provenance.tracing import trace_rows

    home = Home.from_env()
    if where:
        if len(words) != 1 or ":" in words[0]:
            raise click.UsageError("--where: expected NAME only")
        found = trace_rows(home.pipeline(words[0]), home, table, where)
        if not found and not as_json:
            echo(f"{words[0]}: no row matches")
        for row, traced in found:
            coordinates = {"topic": row.topic, "partition": row.partition, "offset": row.offset}
            if as_json:
                emit({"row": coordinates, "offsets": [to_dict(item) for item in traced]})
                continue
            place = ":".join("?" if part is None else str(part) for part in coordinates.values())
            echo(f"row of {place}" + ("" if traced else ": no reading of the pipeline has written it"))
            for item in traced:
                for line in lines(item):
                    echo(f"  {line}")
        return 0
    if table is not None:
        raise click.UsageError("--table: expected --where as well")
    if not 1 <= len(words) <= 2:
        raise click.UsageError("expected [NAME] TOPIC:PARTITION:OFFSET")
    wanted = position(words[-1])
    if wanted is None:
        raise click.UsageError(f"expected TOPIC:PARTITION:OFFSET, found {words[-1]!r}")
    pipeline = named_pipeline(home, words[0] if len(words) == 2 else None, wanted.topic)
    for item in explained(pipeline, home, wanted):
        if as_json:
            emit(to_dict(item))
        else:
            for line in lines(item):
                echo(line)
    return 0
