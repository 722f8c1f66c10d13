"""Who reads a pipeline continuously: the newest run that is warm. A courtesy between runs, never part of the safety.

A continuous run ends by itself after some minutes, and the next one is started before that, since a Dagster run with
Spark takes seconds to start. The successor starts beside its predecessor, and only when it is ready to read does it
take the turn: it writes its run id into the home. The predecessor looks before each batch, finds another id, commits
the batch at hand and ends; the successor waits for that, some seconds at most. Should both commit at once all the same,
the ledger fences one of them, and a continuous run that is fenced plans anew.
"""

from __future__ import annotations

import time

from kpipe_assets.runs.run_locks import is_alive
from resources.home import Home

__all__ = ["Turn"]

# A predecessor that has not finished its batch after so long is stuck or reads a very large one; both may be fenced.
_PATIENCE_S = 10.0
_LOOK_S = 0.02


class Turn:
    """A run's place in the succession.

    Args:
        home: where the file lies.
        pipeline: the pipeline's name.
        run_id: the run's.
    """

    def __init__(self, home: Home, pipeline: str, run_id: str) -> None:
        self._home, self._pipeline = home, pipeline
        self._file = home.state / f"{pipeline}.turn"
        self._run_id = run_id
        self._taken = False

    def take(self) -> None:
        """Called when the run is ready to read. Returns when the predecessor has finished its batch."""
        if self._taken:
            return
        before = self._holder()
        fresh = self._file.with_suffix(f".{self._run_id[:8]}")
        fresh.write_text(self._run_id)
        fresh.replace(self._file)
        self._taken = True
        patience = time.monotonic() + _PATIENCE_S
        while before and is_alive(self._home, self._pipeline, before) and time.monotonic() < patience:
            time.sleep(_LOOK_S)

    def is_over(self) -> bool:
        """Whether another run has taken it since."""
        return self._taken and self._holder() not in ("", self._run_id)

    def _holder(self) -> str:
        try:
            return self._file.read_text()
        except FileNotFoundError:
            return ""
