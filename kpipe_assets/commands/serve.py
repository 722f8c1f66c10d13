"""`kpipe serve`: run every started pipeline in one process, without Dagster or beside it, until Ctrl-C."""

from __future__ import annotations

import os
from importlib.util import find_spec

import click

from kpipe.errors import KpipeError
from kpipe_assets.commands.options import as_json
from kpipe_assets.dagster_server.access_rules import is_loopback
from kpipe_assets.dagster_server.instance import environment
from kpipe_assets.dagster_server.listening import listen, url
from kpipe_assets.runs.service_lock import Service, only_service
from kpipe_assets.service.supervisor import Supervisor
from kpipe_assets.terminal import echo, report
from resources.home import Home

__all__ = ["serve"]


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of this machine to listen on: 127.0.0.1 or ::1.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8083,
    show_default=True,
    help="Port of /health. If it is in use, the next free one. 0: no HTTP server.",
)
@as_json
def serve(host: str, port: int, as_json: bool) -> int:
    """Run all started pipelines of KPIPE_HOME in one process with one Spark.

    START PIPELINE and STOP PIPELINE take effect within a second, and so do edited definitions. A pipeline that fails does not
    affect the others; its next run starts after a wait. Dagster is not needed. Beside `kpipe ui`, the service runs the
    pipelines, and Dagster shows them.

    The first Ctrl-C or SIGTERM ends each pipeline after its batch, the second one at once. A service that was killed repeats
    the batches that were not committed when it starts again.

    \b
    Examples:
      kpipe serve
      kpipe serve --port 0 --json
    """
    if not is_loopback(host):
        raise KpipeError(f"--host {host}: /health has no access control: expected 127.0.0.1 or ::1", "omit --host")
    home = Home.from_env().make()
    with only_service(home) as (lock, record):
        listening = listen(host, port) if port and find_spec("uvicorn") else None
        address = url(*listening.getsockname()[:2]) if listening is not None else ""
        record(Service(os.getpid(), address, environment(home)["DAGSTER_HOME"]))
        echo(f"serving the pipelines of {home.path}{f', health: {address}/health' if address else ''}\nCtrl-C stops it", as_json)
        try:
            return Supervisor(home, lock, listening.fileno() if listening is not None else -1, report, as_json).run()
        finally:
            if listening is not None:
                listening.close()
