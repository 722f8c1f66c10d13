"""Dagster's web server behind kpipe's access rules: `python -m kpipe_assets.dagster_server.webserver RULES FD OPTION ...`.

RULES is a file of `Rules` (kpipe_assets/dagster_server/access_rules.py), FD an inherited socket that listens; the options are
those of dagster-webserver.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from dagster_webserver.cli import main
from starlette.types import ASGIApp

from kpipe_assets.dagster_server.access import Access
from kpipe_assets.dagster_server.access_rules import Rules
from kpipe_assets.dagster_server.supervisor import READY

__all__ = ["guard"]


def guard(rules: Rules, listening: socket.socket, ready: Path) -> None:
    """Serve every application of this process on the socket, behind the access rules.

    Args:
        rules: access rules.
        listening: socket for uvicorn. If it bound a new one, another user could take the port in between.
        ready: file to create when the server is about to answer.
    """

    def guarded(app: ASGIApp, **options: Any) -> None:
        server = uvicorn.Server(uvicorn.Config(Access(app, rules), **options))
        ready.touch()
        server.run(sockets=[listening])
        if not server.started:
            sys.exit(3)

    uvicorn.run = guarded  # type: ignore[assignment]


if __name__ == "__main__":
    file = Path(sys.argv.pop(1))
    guard(Rules.read(file), socket.socket(fileno=int(sys.argv.pop(1))), file.parent / READY)
    main()
