"""Run Dagster's web server behind kpipe's access rules. kpipe_assets/metrics/webserver.py is its program."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from dagster_webserver.cli import main
from starlette.types import ASGIApp

from kpipe_assets.dagster_server.access import Access
from kpipe_assets.dagster_server.access_rules import Rules
from kpipe_assets.dagster_server.supervisor import READY

__all__ = ["guard", "serve"]


def serve(extended: Callable[[ASGIApp], ASGIApp]) -> None:
    """Run dagster-webserver with the arguments `RULES FD OPTION ...` of this process.

    RULES is a file of `Rules`, FD an inherited socket that listens; the options are those of dagster-webserver.

    Args:
        extended: adds kpipe's own paths to an application.
    """
    file = Path(sys.argv.pop(1))
    guard(Rules.read(file), socket.socket(fileno=int(sys.argv.pop(1))), file.parent / READY, extended)
    main()


def guard(rules: Rules, listening: socket.socket, ready: Path, extended: Callable[[ASGIApp], ASGIApp] = lambda app: app) -> None:
    """Serve every application of this process on the socket, behind the access rules.

    Args:
        rules: access rules.
        listening: socket for uvicorn. If it bound a new one, another user could take the port in between.
        ready: file to create when the server is about to answer.
        extended: adds kpipe's own paths to an application; the access rules apply to them, too.
    """

    def guarded(app: ASGIApp, **options: Any) -> None:
        server = uvicorn.Server(uvicorn.Config(Access(extended(app), rules), **options))
        ready.touch()
        server.run(sockets=[listening])
        if not server.started:
            sys.exit(3)

    uvicorn.run = guarded  # type: ignore[assignment]
