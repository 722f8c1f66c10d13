"""`kpipe chaos NAME`: kill and stop runs of copies of a pipeline, then prove that the copies are complete."""

from __future__ import annotations

import secrets

import click

from kpipe_assets.commands.options import as_json, pipeline_name
from kpipe_assets.terminal import echo, emit, log
from resources.home import Home

__all__ = ["chaos"]


@click.command()
@pipeline_name
@click.option("--minutes", type=click.FloatRange(0.1, 1440), default=5, show_default=True, help="Duration of the faults.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Choose the same faults again; random by default.")
@click.option(
    "--max-offsets",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Offsets that a copy loads, of all partitions together.",
)
@click.option(
    "--from",
    "begin",
    type=click.Choice(["newest", "oldest"]),
    default="newest",
    show_default=True,
    help="Load the last or the first of these offsets.",
)
@click.option("--keep", is_flag=True, help="Keep the copies, until `kpipe chaos --clean NAME`.")
@click.option("--plan", "dry", is_flag=True, help="Print what would be created and read, and end.")
@click.option("--clean", is_flag=True, help="Remove what an interrupted call has left, and kept copies.")
@as_json
def chaos(
    name: str, minutes: float, seed: int | None, max_offsets: int, begin: str, keep: bool, dry: bool, clean: bool, as_json: bool
) -> int:
    """Load copies of the pipeline NAME under faults, and prove that each is complete.

    Runs of a copy are killed, paused, failed at failpoints and doubled, as a seed chooses. A copy has its own table, ledger and
    home. The pipeline's own table and ledger, topics and consumer groups are never written. Exit status 0: every copy is proven,
    and equal to a copy without faults.

    \b
    Examples:
      kpipe chaos orders --minutes 30
      kpipe chaos orders --seed 7 --keep
      kpipe chaos orders --clean
    """
    from kpipe_assets.chaos import session
    from kpipe_assets.chaos.report import INTERRUPTED, PROVEN, as_text
    from kpipe_assets.chaos.workspace import unfinished

    home = Home.from_env()
    if clean:
        removed = session.clean(home, name, lambda text: log(text))
        if as_json:
            emit({"event": "clean", "pipeline": name, "removed": removed})
        elif not removed:
            echo(f"{name}: nothing to remove")
        return 0
    pipeline = home.pipeline(name)
    for path in unfinished(home, name):
        log(f"earlier copies exist: {path} (remove them: kpipe chaos --clean {name})")
    request = session.Request(secrets.randbelow(2**32) if seed is None else seed, minutes, max_offsets, begin == "newest", keep)
    found = session.execute(pipeline, home, request, lambda text: echo(text, err=as_json), lambda text: log(text), dry)
    if found is None:
        return 0
    if as_json:
        emit(found)
    else:
        for line in as_text(found):
            echo(line)
    if found["verdict"] == INTERRUPTED:
        raise click.Abort
    return 0 if found["verdict"] == PROVEN else 1
