"""Run Dagster's code server with all of its sockets in one private folder.

Usage: `python -m kpipe_assets.dagster_server.code_server OPTION ...`, with the options of `dagster code-server start`. That
command is a proxy, which starts the real code server on a second
socket, under a name in the machine's folder for temporary files. Who reaches that socket runs code.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

from dagster._cli import main
from dagster._grpc import server

__all__ = ["close_code_servers", "keep_sockets_in"]


def keep_sockets_in(folder: Path) -> None:
    """Put the sockets of code servers that this process starts into the folder."""
    server.safe_tempfile_path_unmanaged = lambda: str(folder / f"{uuid.uuid4().hex[:12]}.sock")  # type: ignore[attr-defined]


def close_code_servers() -> None:
    """Protect code servers that this process starts against tracing from their start (code_api.py)."""
    server.get_python_environment_entry_point = _command  # type: ignore[assignment,attr-defined]


def _command(python: str) -> list[str]:
    return [python, "-m", "kpipe_assets.dagster_server.closed_process", "kpipe_assets.dagster_server.code_api"]


if __name__ == "__main__":
    close_code_servers()
    keep_sockets_in(Path(sys.argv[sys.argv.index("--socket") + 1]).parent)
    sys.argv[1:1] = ["code-server", "start"]
    main()
