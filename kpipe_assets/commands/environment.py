"""`kpipe environment`: the Python environment as an archive, for Spark's workers on other machines."""

from __future__ import annotations

import click

from kpipe_assets.commands.options import as_json
from kpipe_assets.terminal import echo, emit
from resources.home import Home

__all__ = ["environment"]


@click.command()
@as_json
def environment(as_json: bool) -> int:
    """Pack interpreter and packages into an archive that Spark brings to its workers.

    Runs on this home with a master on other machines find it. Make it again when packages have changed; kpipe says so.

    \b
    Examples:
      kpipe environment
    """
    from resources.spark.cluster.python_environment import pack, packages

    made = pack(Home.from_env().make().path)
    if as_json:
        emit({"path": str(made.path), "bytes": made.size, "seconds": made.seconds, "packages": packages()})
    else:
        echo(f"{made.path}: {made.size / 1e6:.0f} MB, {len(packages())} packages, in {made.seconds:.0f} s")
    return 0
