"""Run a module in a process whose memory and environment other processes of this user cannot read.

Usage: `python -m kpipe_assets.dagster_server.closed_process MODULE ARGUMENT ...`.

Dagster takes seconds to import. Until a process has denied tracing, its environment can be read; so that comes first, and this
module imports nothing else.
"""

from __future__ import annotations

import runpy
import sys

from kpipe.process_isolation import deny_tracing

__all__ = ["main"]


def main() -> None:
    """Deny tracing, then become `python -m MODULE ARGUMENT ...`."""
    deny_tracing()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
