"""`kpipe as-of NAME`: show the snapshot of each table at given offsets, or at a time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import click

from kpipe.offsets import RangeSet
from kpipe.topics import PartitionId
from kpipe_assets.commands.options import as_json, pipeline_name
from kpipe_assets.provenance.positions import instant
from kpipe_assets.terminal import echo, emit
from resources.home import Home

__all__ = ["as_of"]


def _moment(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    try:
        return instant(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(f"expected ISO 8601, found {value!r}") from error


@click.command()
@pipeline_name
@click.option("--offsets", metavar="TOPIC:PARTITION=OFFSET,...", help="Next offsets, as a consumer group stores them.")
@click.option("--time", "moment", metavar="TIME", callback=_moment, help="ISO 8601; UTC without a zone.")
@as_json
def as_of(name: str, offsets: str | None, moment: datetime | None, as_json: bool) -> int:
    """Show the snapshot of each table of the pipeline NAME at given offsets, or at a time, with queries of it.

    An offset is exclusive: offsets below it are in. Partitions that are not named are not compared. If no commit ends there,
    kpipe shows the commit with most of the wanted offsets and no later ones. It lists the missing offsets.

    \b
    Examples:
      kpipe as-of tweets --offsets tweets:0=4711,tweets:1=4650
      kpipe as-of tweets --time 2026-11-26T08:00:00Z --json
    """
    if (offsets is None) == (moment is None):
        raise click.UsageError("expected either --offsets or --time")
    from kpipe_assets.provenance.tables_as_of import AsOf, to_dict
    from kpipe_assets.provenance.tables_as_of import as_of as found
    from kpipe_assets.provenance.trace_report import iso

    home = Home.from_env()
    state: AsOf = found(home.pipeline(name), home, offsets, moment)
    match, content = state.match, state.match.content
    if as_json:
        emit(to_dict(state))
        return 0
    if content.seq:
        at = iso(state.committed)
        when = f" at {at[:19].replace('T', ' ')} UTC" if at else ""
        fit = "" if moment is not None else ": exact" if match.exact else ": not exact"
        echo(f"{name}: commit {content.seq}{when}, batch {content.batch}{fit}")
    else:
        echo(f"{name}: no commit fits")
    echo(f"  in: {_words(content.ranges) or 'nothing'}")
    for words, ranges in (
        ("wanted, not in", match.missing),
        ("in, not wanted", match.beyond),
        ("read more than once", match.repeated),
    ):
        if any(ranges.values()):
            echo(f"  {words}: {_words(ranges)}")
    for item in state.tables:
        echo(f"table {item.table}" + (f": snapshot {item.snapshot.id}" if item.snapshot else ""))
        if item.statement:
            echo(f"  {item.statement}")
        for query in item.queries:
            echo(f"  {query.engine}: {query.text}")
        if item.narrowed_snapshot:
            echo(f"  only the wanted offsets, of snapshot {item.narrowed_snapshot.id}:")
            for query in item.narrowed:
                echo(f"    {query.engine}: {query.text}")
    return 0


def _words(ranges: Mapping[PartitionId, RangeSet]) -> str:
    return ", ".join(f"{source.topic.name}:{source.partition} {item}" for source, items in ranges.items() for item in items)
