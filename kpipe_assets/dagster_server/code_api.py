"""Run the code server that loads definitions and starts runs.

Usage: `python -m kpipe_assets.dagster_server.code_api OPTION ...`, with the options of `dagster`. The proxy code_server.py starts
it. Neither it nor the processes of its runs can be read by others of this user from their start on.
"""

from __future__ import annotations

from dagster._cli import main

from kpipe_assets.dagster_server.helper_processes import close_runs, start_tracker

if __name__ == "__main__":  # the processes of runs import this module, too, and need no gRPC
    start_tracker()
    close_runs()
    from dagster._grpc import server

    from kpipe_assets.dagster_server.warm_runs import WarmCodeServer, is_on

    if is_on():
        server.DagsterApiServer = WarmCodeServer  # type: ignore[misc]
    main()
