"""`delivery: exactly_once`: rows and lanes change in one commit. The other two modes replace methods of `Delivery`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kpipe.batch.batch import Batch
from kpipe.ledger.ledger import LaneChange, Ledger

__all__ = ["Delivery"]


class Delivery:
    """Lane changes of a batch, and their place in the order of commits.

    Attributes:
        kind: kind of the commit with the rows.
    """

    kind = "batch"

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Make one pass; if it fails, undo what `take` committed for its batch."""
        try:
            yield
        except BaseException:
            self.give_back()
            raise

    def take(self, ledger: Ledger, batch: Batch) -> Batch:
        """Return the batch to stage.

        Args:
            ledger: the ledger of the plan.
            batch: the plan.

        Raises:
            KpipeError: a commit that must come first failed.
        """
        del ledger
        return batch

    def changes(self, batch: Batch) -> tuple[LaneChange, ...]:
        """Return the lane changes of the commit with the rows."""
        return tuple(step.change for step in batch.steps)

    def landed(self, batch: Batch) -> None:
        """Follow up on the commit with the rows.

        Raises:
            KpipeError: a commit that must follow failed.
        """

    def give_back(self) -> None:
        """Undo `take` for a batch that failed."""
