"""`kpipe verify NAME`: prove that no record is lost or duplicated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from kpipe.verification.verify import Audit
from kpipe_assets.commands.options import as_json, pipeline_name
from kpipe_assets.runs.dead_letter_topic import topic_report
from kpipe_assets.runs.proof import prove
from kpipe_assets.terminal import echo, emit
from kpipe_assets.wording import count
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["show", "verify"]

_BUT = " of the batches that were given up nothing is proven"
_GUIDE = "When it is not proven"


@click.command()
@pipeline_name
@as_json
def verify(name: str, as_json: bool) -> int:
    """Recount the table and the dead letters of the pipeline NAME against its ledger.

    Every offset of every committed range must be a row, a dead letter, filtered, or a gap (an offset without a record).
    Otherwise the exit status is 1.

    \b
    Examples:
      kpipe verify tweets
      kpipe verify tweets --json
    """
    home = Home.from_env()
    pipeline = home.pipeline(name)
    result = prove(pipeline, home)
    topic = topic_report(pipeline, open_destination(pipeline, home))
    if as_json:
        emit({**result.to_dict(), **({"dead_letter_topic": topic} if topic is not None else {})})
    else:
        show(result)
        _show_topic(name, topic)
    return 0 if result.ok else 1


def _show_topic(name: str, topic: Mapping[str, Any] | None) -> None:
    """Print how many dead letters `errors.topic` has received. It proves nothing: the topic may delete or contain others."""
    if topic is None:
        return
    if topic["error"]:
        echo(f"topic {topic['topic']}: unknown how many dead letters it has received: {topic['error']}", err=True)
        return
    echo(f"topic {topic['topic']} has received {count(topic['records'], 'dead letter')}")
    if topic["waiting"]:
        echo(
            f"NOT in topic {topic['topic']} yet: {count(topic['waiting'], 'dead letter')}; kpipe run {name} writes them", err=True
        )


def show(result: Audit) -> None:
    """Print the audit as a table and a summary."""
    from kpipe_assets.console import listing, wide

    table = listing("partition>", "ranges", "span>", "rows>", "dead letters>", "filtered>", "gaps>", "rows found>")
    for number, item in result.partitions.items():
        ranges = "  ".join(f"[{start:,}, {end:,})" for start, end in item["ranges"])
        names = ("span", "rows", "dead_letters", "filtered", "gaps", "rows_found")
        table.add_row(number, ranges, *(f"{item[name]:,}" for name in names))
    wide().print(table)
    counts = result.counts
    if result.lost:
        echo(f"NOT read, not counted, lost unless a run is reading them now: {', '.join(result.lost)}", err=True)
    if result.skipped:
        echo(f"skipped, not counted (BACKFILL PIPELINE reads them): {', '.join(result.skipped)}", err=True)
    if result.adopted:
        source = f" from {result.adopted_from}" if result.adopted_from else ""
        echo(f"adopted{source}, not counted (kpipe audit proves them): {', '.join(result.adopted)}", err=True)
    if result.repeated:
        echo(f"read more than once, or to be read again; each reading is counted: {', '.join(result.repeated)}", err=True)
    if result.given_up:
        echo(
            "NOT proven: the receiver may have taken rows of batches that were given up; they are not among what is counted:"
            f" {', '.join(result.given_up)}",
            err=True,
        )
    if result.replaced:
        echo(
            "NOT proven: the log was cut and had grown again; rows of these offsets may be of records that the topic has lost:"
            f" {', '.join(result.replaced)}",
            err=True,
        )
    if result.unproven:
        echo(
            "NOT proven: rows of these offsets were counted only: several batches have read them, and the sum of their rows'"
            f" offsets is not known; a lost row beside a doubled one would not be found: {', '.join(result.unproven)}",
            err=True,
        )
    if result.ok:
        records, dead_letters = _outcomes(result)
        echo(
            f"{'counted' if result.replaced or result.unproven else 'proven'}: {count(result.span, 'offset')} = {records}"
            + (f" + {count(counts.deletes, 'delete')}" if counts.deletes else "")
            + f" + {count(dead_letters, 'dead letter')} + {counts.filtered:,} filtered + {count(counts.gaps, 'gap')};"
            + _offsets(result)
            + "".join(f"; table {name} contains its {count(item['rows_found'], 'row')}" for name, item in result.targets.items())
        )
        return
    for problem in result.problems:
        echo(f"problem: {problem}", err=True)
    echo(f'NOT proven: {count(len(result.problems), "problem")}; see docs/how-to/operate/recover.md, "{_GUIDE}"', err=True)


def _offsets(result: Audit) -> str:
    """Return what is proven of single offsets."""
    if result.unproven:
        return " elsewhere no offset is missing"
    return " no offset is missing" if result.repeated else " no offset twice" if not result.given_up else _BUT


def _outcomes(result: Audit) -> tuple[str, int]:
    """Return the rows as text, and the number of records that are dead letters.

    If a record may give several rows, the text counts records, because only these add up to the offsets.
    """
    counts = result.counts
    if not counts.given:
        return count(counts.rows, "row"), counts.dead_letters
    records = result.span - (counts.deletes + result.set_aside + counts.filtered + counts.gaps)
    inside = counts.dead_letters - result.set_aside
    gave = count(counts.rows, "row") + (f", {count(inside, 'dead letter')}" if inside else "")
    return f"{count(records, 'record')} ({gave})", result.set_aside
