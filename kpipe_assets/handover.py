"""Who reads a pipeline continuously: the newest run that is warm. A courtesy between runs, never part of the safety.

A continuous run ends by itself after some minutes, and the next one is started before that, since a Dagster run with
Spark takes seconds to start. The successor starts beside its predecessor, and only when it is ready to read does it
take the turn: it writes its run id into the home. The predecessor looks before each batch, finds another id, commits
the batch at hand and ends. Should both commit at once all the same, the ledger fences one of them.
"""

from __future__ import annotations

from resources.home import Home

__all__ = ["Turn"]


class Turn:
    """A run's place in the succession.

    Args:
        home: where the file lies.
        pipeline: the pipeline's name.
        run_id: the run's.
    """

    def __init__(self, home: Home, pipeline: str, run_id: str) -> None:
        self._file = home.state / f"{pipeline}.turn"
        self._run_id = run_id
        self._taken = False

    def take(self) -> None:
        """Called when the run is ready to read."""
        if not self._taken:
            fresh = self._file.with_suffix(f".{self._run_id[:8]}")
            fresh.write_text(self._run_id)
            fresh.replace(self._file)
            self._taken = True

    def is_over(self) -> bool:
        """Whether another run has taken it since."""
        if not self._taken:
            return False
        try:
            return self._file.read_text() != self._run_id
        except FileNotFoundError:
            return False
