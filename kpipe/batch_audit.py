"""The interface of a destination that checks a batch by `into.audit` before it publishes the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["Audited", "Auditing"]


@dataclass(frozen=True)
class Audited:
    """Result of `into.audit` for rows that are not yet published.

    Attributes:
        where: the branch that contains the rows.
        snapshot: id of the branch's snapshot.
        rows: number of rows.
        failed: by the check's name, a description of the rows that fail it; all rows pass the other checks.
    """

    where: str
    snapshot: str
    rows: int
    failed: Mapping[str, str]


@runtime_checkable
class Auditing(Protocol):
    """A destination that publishes rows only after they pass the checks of `into.audit`."""

    def held_back(self) -> str:
        """Return the id of the snapshot with unpublished rows that are not in the ledger yet; empty without such rows.

        Raises:
            DestinationError: the snapshot cannot be read.
        """

    def audited(self) -> Audited | None:
        """Run the checks on these rows, and return the result; None without such rows.

        Raises:
            DestinationError: the rows cannot be read.
        """

    def passed_since(self) -> Mapping[str, int]:
        """Return by check the commit since which each batch of the pipeline passed it; missing: the table has no record.

        Raises:
            DestinationError: the table cannot be read.
        """
