"""Times of one batch, from which its trace is made."""

from __future__ import annotations

from dataclasses import dataclass

from kpipe.batch.batch import Batch, Committed, RangeReport

__all__ = ["BatchTrace"]


@dataclass
class BatchTrace:
    """Times of one batch, wall clock, in seconds since 1970 UTC.

    Attributes:
        batch: the batch.
        run: id of the run.
        planned: when the plan was made.
        staged: when its rows were staged; 0: they were not.
        ended: when it was committed, or failed.
        reports: reports of the tasks.
        committed: the commit, if it was read back.
        error: class of the error, if it failed.
    """

    batch: Batch
    run: str
    planned: float
    staged: float = 0.0
    ended: float = 0.0
    reports: tuple[RangeReport, ...] = ()
    committed: Committed | None = None
    error: str = ""
