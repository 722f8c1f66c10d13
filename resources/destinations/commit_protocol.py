"""How a commit ends: attempts, each read back through a fresh look, until it is known what became of it (rule 3)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from kpipe.batch.batch import Commit, Committed
from kpipe.batch.conflicts import applied
from kpipe.errors import DestinationBusy, DestinationError, KpipeError, OutcomeUnknown
from kpipe.ledger.ledger import Ledger

__all__ = ["Failure", "land"]

# Commits that meet in what they share: each round lets one of them through, so this many can meet.
_TRIES = 20


@dataclass(frozen=True)
class Failure:
    """Why an attempt raised.

    Attributes:
        error: for the caller, if the batch turns out not to have landed.
        sent: whether the commit had been sent.
        again: whether another commit was merely in the way.
    """

    error: KpipeError
    sent: bool
    again: bool = False


def land(
    commit: Commit,
    where: str,
    attempt: Callable[[], Failure | None],
    read_back: Callable[[], tuple[int | None, Ledger]],
) -> Committed:
    """Try, read back, and only then decide.

    Args:
        commit: what is to land.
        where: the destination, for messages.
        attempt: one transaction; None when it was answered as committed, which is not believed.
        read_back: sequence number of the commit if it is there, else the ledger, both through a fresh look.

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
                "run it again when it can be read: the ledger says whether it landed",
            ) from error
        if seq is not None:  # found means landed
            return Committed(commit, seq)
        applied(ledger, commit)  # not found, and the lanes moved: Fenced
        if failure is None:
            raise DestinationError(
                f"{where}: batch {commit.id} was answered as committed and is not there",
                "run it again; nothing of it was written",
            )
        if not failure.again:
            raise failure.error
        time.sleep(random.uniform(0, 0.01 * (number + 1)))  # only so that two do not keep colliding
    assert failure is not None
    raise failure.error
