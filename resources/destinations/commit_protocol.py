"""Run a commit to a known outcome: attempt it, then read it back through a new connection (rule 3)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from kpipe.batch.batch import Commit, Committed
from kpipe.errors import DestinationBusy, DestinationError, KpipeError, OutcomeUnknown
from kpipe.failpoints import failpoint
from kpipe.ledger.ledger import Ledger

__all__ = ["Failure", "Steps", "land"]

# Commits that conflict in shared tables: each round lets one through, so this many may conflict.
_TRIES = 20


@dataclass(frozen=True)
class Failure:
    """The failure of an attempt.

    Attributes:
        error: raised if the batch turns out not to be committed.
        sent: whether the commit had been sent.
        again: whether only a conflict with another commit was the cause.
    """

    error: KpipeError
    sent: bool
    again: bool = False


class Steps:
    """Record the current step of a transaction. Each step has a failpoint.

    Attributes:
        current: name of the step that was entered last; empty before the first.
    """

    current = ""

    def enter(self, step: str) -> None:
        """Enter a step."""
        self.current = step
        failpoint(f"commit.{step}")


def land(
    commit: Commit,
    where: str,
    attempt: Callable[[], Failure | None],
    read_back: Callable[[], tuple[int | None, Ledger]],
) -> Committed:
    """Attempt a commit, read it back, and decide by what was read only.

    Args:
        commit: the commit.
        where: the destination, for messages.
        attempt: runs one transaction; returns None if it was acknowledged, which proves nothing yet.
        read_back: returns the commit's sequence number if it is in the ledger, and the ledger, from a new connection.

    Raises:
        KpipeError: as `Destination.commit`.
    """
    failure = None
    for number in range(_TRIES):
        failure = attempt()
        if failure and isinstance(failure.error, DestinationBusy) and not failure.sent:
            raise failure.error
        try:
            seq, ledger = read_back()
        except Exception as error:
            if failure is not None and not failure.sent:
                raise failure.error from error
            raise OutcomeUnknown(
                f"{where}: batch {commit.id} was sent and cannot be read back: {error}",
                "run it again when it can be read: the ledger decides whether it is committed",
            ) from error
        if seq is not None:  # in the ledger: committed
            return Committed(commit, seq)
        ledger.after(commit.changes, commit.id)  # not in the ledger, and the lanes changed: Fenced
        if failure is None:
            raise DestinationError(
                f"{where}: batch {commit.id} was acknowledged, but is not in the ledger",
                "run it again; nothing of it was written",
            )
        if not failure.again:
            raise failure.error
        time.sleep(random.uniform(0, 0.01 * (number + 1)))  # jitter: two commits do not keep colliding
    assert failure is not None
    raise failure.error
