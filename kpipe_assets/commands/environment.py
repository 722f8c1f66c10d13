"""`kpipe environment`: pack the Python environment for Spark workers on other machines."""

from __future__ import annotations

import click

from kpipe_assets.commands.options import as_json
from kpipe_assets.terminal import echo, emit
from resources.home import Home

__all__ = ["environment"]


@click.command()
@as_json
def environment(as_json: bool) -> int:
    """Pack the Python interpreter and its packages into an archive that Spark copies to its workers.

    Runs of this KPIPE_HOME use the archive when the Spark master is on other machines. Repeat the command after packages
    change; a run with an outdated archive fails and names it.

    \b
    Examples:
      kpipe environment
    """
    from resources.spark.cluster.python_environment import pack, packages

    archive = pack(Home.from_env().make().path)
    if as_json:
        emit({"path": str(archive.path), "bytes": archive.size, "seconds": archive.seconds, "packages": packages()})
    else:
        echo(f"{archive.path}: {archive.size / 1e6:.0f} MB, {len(packages())} packages, in {archive.seconds:.0f} s")
    return 0
