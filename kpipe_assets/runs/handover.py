"""Handover from a continuous run to its successor. Best effort: correctness depends on ledger fencing alone.

A continuous run ends after some minutes. The next one starts earlier, because Dagster and Spark take seconds to start.
When the successor is ready to read, it takes the turn: it writes its run id to a file in the home. The predecessor reads
that file before each batch. If it contains another id, the predecessor commits its current batch and ends, and the
successor waits up to 10 seconds for that. If both commit, the ledger fences one of them, and that run plans again.
"""

from __future__ import annotations

import time

from kpipe_assets.runs.run_locks import is_alive
from resources.home import Home

__all__ = ["Turn"]

# A predecessor that has not finished its batch after this time hangs or reads a very large one; both may be fenced.
_PATIENCE_S = 10.0
_POLL_S = 0.02


class Turn:
    """The turn of a continuous run to read a pipeline.

    Args:
        home: contains the file.
        pipeline: the pipeline's name.
        run_id: Dagster's id of the run.
    """

    def __init__(self, home: Home, pipeline: str, run_id: str) -> None:
        self._home, self._pipeline = home, pipeline
        self._file = home.state / f"{pipeline}.turn"
        self._run_id = run_id
        self._taken = False

    def take(self) -> None:
        """Take the turn when the run is ready to read. Return when the predecessor has finished its batch."""
        if self._taken:
            return
        predecessor = self._owner()
        fresh = self._file.with_suffix(f".{self._run_id[:8]}")
        fresh.write_text(self._run_id)
        fresh.replace(self._file)
        self._taken = True
        deadline = time.monotonic() + _PATIENCE_S
        while predecessor and is_alive(self._home, self._pipeline, predecessor) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def is_over(self) -> bool:
        """Return whether another run has taken the turn since."""
        return self._taken and self._owner() not in ("", self._run_id)

    def _owner(self) -> str:
        try:
            return self._file.read_text()
        except FileNotFoundError:
            return ""
