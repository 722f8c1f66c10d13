"""`delivery: at_least_once`: commit the rows first, then the ledger on its own (docs/adr/0019-at-least-once.md).

If a run is killed between the two commits, the ledger lacks the offsets of its rows: the next run reads them again.
"""

from __future__ import annotations

from kpipe.batch.batch import Batch
from kpipe.ingest.delivery import Delivery
from kpipe.ledger.ledger import LaneChange
from kpipe.planning.reconcile import Survey

__all__ = ["AtLeastOnce"]


class AtLeastOnce(Delivery):
    """Commit rows without lane changes, then the lane changes.

    Args:
        survey: commits the lane changes.
    """

    kind = "rows"

    def __init__(self, survey: Survey) -> None:
        self._survey = survey

    def changes(self, batch: Batch) -> tuple[LaneChange, ...]:
        """Return no changes: the commit of the rows fences no other run."""
        del batch
        return ()

    def landed(self, batch: Batch) -> None:
        """Commit the lane changes of a batch whose rows landed.

        Raises:
            Fenced: another run has committed the same offsets: their rows are duplicated.
        """
        self._survey.commit_only("advance", [step.change for step in batch.steps], f"advance: batch {batch.id}")
