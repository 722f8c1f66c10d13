"""Read what `kpipe verify` compares, in one state of the destination, also while a run commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from kpipe.errors import DestinationBusy
from kpipe.ledger.ledger import Ledger
from kpipe.verification.recount import Entry, Recount
from kpipe.verification.verify import Audit, audit

__all__ = ["Evidence", "OneState", "Readable", "gather"]

_ATTEMPTS = 10


@dataclass(frozen=True)
class Evidence:
    """Ledger, history and recount of one state.

    Attributes:
        registration: id of the pipeline's registration; empty: it has never committed.
        ledger: the ledger.
        history: every committed range, in order of commit.
        recount: rows and dead letters.
    """

    registration: str
    ledger: Ledger
    history: Sequence[Entry] = ()
    recount: Recount = field(default_factory=Recount)

    def audit(self, multi_topic: bool = False) -> Audit:
        """Compare them; see `audit`."""
        return audit(self.ledger, self.history, self.recount, multi_topic)


class Readable(Protocol):
    """The part of a destination that the proof reads; see `Destination`."""

    def describe(self) -> str:
        """Describe the destination."""
        ...

    def ledger(self) -> tuple[str, Ledger]:
        """Read the registration id and the ledger."""
        ...

    def history(self) -> Sequence[Entry]:
        """Read every committed range, in order of commit."""
        ...

    def recount(self) -> Recount:
        """Count rows and dead letters."""
        ...


@runtime_checkable
class OneState(Protocol):
    """Optional interface of a destination: read the evidence in one transaction, or at one version of the table."""

    def evidence(self) -> Evidence:
        """Read ledger, history and recount of one state."""
        ...


def gather(destination: Readable) -> Evidence:
    """Read the evidence. Without `OneState`, it is read again until no commit came between.

    Raises:
        DestinationBusy: a commit came between each time.
        DestinationError: the destination cannot be read.
    """
    if isinstance(destination, OneState):
        return destination.evidence()
    registration, ledger = destination.ledger()
    for _ in range(_ATTEMPTS):
        history, recount = destination.history(), destination.recount()
        before, (registration, ledger) = (registration, ledger), destination.ledger()
        if before == (registration, ledger):
            return Evidence(registration, ledger, history, recount)
    raise DestinationBusy(
        f"pipeline {ledger.pipeline}: {destination.describe()}: commits came during each of {_ATTEMPTS} counts",
        "stop the pipeline (kpipe stop), and verify again",
    )
