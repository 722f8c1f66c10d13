"""The code server that loads definitions and starts runs: `python -m kpipe_assets.codeapi OPTION ...`, as `dagster` itself.

kpipe_assets/codeserver.py, a proxy, starts it. It and the processes of its runs cannot be read from their start on.
"""

from __future__ import annotations

from dagster._cli import main

from kpipe_assets.helpers import close_runs, start_tracker

if __name__ == "__main__":
    start_tracker()
    close_runs()
    main()
