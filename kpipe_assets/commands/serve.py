"""`kpipe serve`: run every started pipeline in one process, without Dagster or beside it, until Ctrl-C."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kpipe.errors import NotAvailable
from kpipe_assets.commands.options import as_json
from kpipe_assets.dagster_server.access_rules import Rules, check_reachable, is_loopback
from kpipe_assets.dagster_server.instance import environment
from kpipe_assets.dagster_server.listening import listen, url
from kpipe_assets.runs.service_lock import Service, only_service
from kpipe_assets.service.http_settings import HttpSettings, check_certificate, read_token
from kpipe_assets.service.supervisor import Supervisor
from kpipe_assets.terminal import echo, log, logs_json, report
from resources.extras import require
from resources.home import Home

__all__ = ["serve"]

_FILE = click.Path(path_type=Path)


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on. Others than 127.0.0.1 need a token and TLS."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8083,
    show_default=True,
    help="Port. If it is in use, the next free one. 0: no HTTP server.",
)
@click.option("--allow-host", "names", multiple=True, metavar="NAME", help="Accept requests for this host name, too. Repeatable.")
@click.option("--token-file", type=_FILE, metavar="FILE", help="File with the token that requests must bring.")
@click.option("--tls-certificate", "certificate", type=_FILE, metavar="FILE", help="Certificate with its chain, in PEM.")
@click.option("--tls-key", "key", type=_FILE, metavar="FILE", help="Its key, in PEM, without a password.")
@click.option("--brokers", metavar="HOST:PORT,...", help="Kafka brokers of connectors whose config names none.")
@as_json
def serve(host: str, port: int, as_json: bool, **http_options: Any) -> int:
    """Run all started pipelines of KPIPE_HOME in one process with one Spark, and serve REST, /metrics and /health.

    START PIPELINE and STOP PIPELINE take effect within a second, and so do edited definitions. A pipeline that fails does not
    affect the others; its next run starts after a wait. Dagster is not needed. Beside `kpipe ui`, the service runs the
    pipelines, and Dagster shows them.

    Runs of other processes with KPIPE_SPARK=service use its Spark, and start none.

    The first Ctrl-C or SIGTERM ends each pipeline after its batch, the second one at once. A service that was killed repeats
    the batches that were not committed when it starts again.

    Without the extra `serve`, the pipelines run without the HTTP server. A client of the HTTP server can run programs as this
    user: set a token where others use this machine.

    \b
    Examples:
      kpipe serve
      kpipe serve --port 0 --json
      kpipe serve --host 0.0.0.0 --token-file token --tls-certificate cert.pem --tls-key key.pem
    """
    home = Home.from_env().make()
    http = _settings(host, port, **http_options) if port else None
    with only_service(home) as (lock, record):
        listening = listen(host, port) if http is not None else None
        address = ""
        if listening is not None and http is not None:
            bound = listening.getsockname()[1]
            address = url(host, bound, tls=http.certificate is not None)
            http = replace(http, rules=replace(http.rules, port=bound))
        record(Service(os.getpid(), address, environment(home)["DAGSTER_HOME"]))
        text = f"serving the pipelines of {home.path}{f', REST: {address}' if address else ''}\nCtrl-C stops it"
        (log if as_json or logs_json() else echo)(text)
        try:
            handle = listening.fileno() if listening is not None else -1
            return Supervisor(home, lock, handle, report, as_json, http).run()
        finally:
            if listening is not None:
                listening.close()


def _settings(
    host: str,
    port: int,
    names: tuple[str, ...],
    token_file: Path | None,
    certificate: Path | None,
    key: Path | None,
    brokers: str | None,
) -> HttpSettings | None:
    """Check the options, and return the settings of the HTTP server; None if its libraries are not installed.

    Raises:
        InvalidPipeline: other machines could send requests without a token, or a file is invalid.
        NotAvailable: an option needs the HTTP server, and its libraries are not installed.
    """
    try:
        require("serve", "the HTTP server of kpipe serve")
    except NotAvailable as missing:
        if token_file or certificate or key or names or brokers or not is_loopback(host):
            raise
        report(f"no HTTP server: {missing}")
        return None
    check_certificate(certificate, key)
    if not is_loopback(host):
        names = (*names, socket.gethostname())
    rules = Rules(host, port, names, None if token_file is None else read_token(token_file))
    check_reachable(rules, tls=certificate is not None)
    # Not resolved: Kubernetes replaces a mounted secret by another link.
    certificate_path, key_path, token_path = (
        None if file is None else str(file.absolute()) for file in (certificate, key, token_file)
    )
    return HttpSettings(rules, certificate_path, key_path, brokers, token_path)
