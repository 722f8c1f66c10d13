"""Waits between runs of a pipeline that fails, the same in `kpipe serve` and for Dagster's sensor."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Backoff"]


@dataclass(frozen=True)
class Backoff:
    """Wait times after consecutive failures.

    Attributes:
        first_s: wait after the second failure, doubled after each further one. After the first failure, the next run starts at
            once.
        longest_s: upper limit of the wait. A run that lasted longer than this does not count as a failure to start.
    """

    first_s: float = 10
    longest_s: float = 600

    def wait_s(self, failures: int) -> float:
        """Return the wait after this many consecutive failures, in seconds."""
        return min(self.longest_s, self.first_s * 2 ** min(failures - 2, 30)) if failures > 1 else 0.0
