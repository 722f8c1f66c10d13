"""Follow a Delta table's log since a pipeline's last commit: whether a RESTORE has removed the rows of that commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from resources.destinations.lakehouse.ledger_file import Record

__all__ = ["LastCommit", "transaction"]

Actions = Sequence[Mapping[str, Any]]


def transaction(pipeline: str, what: str) -> str:
    """Return the name of one of a pipeline's application transactions."""
    return f"kpipe:{pipeline}:{what}"


@dataclass(frozen=True)
class LastCommit:
    """A pipeline's last commit, as the log shows it up to one version.

    Attributes:
        pipeline: its name.
        base: version on which the commit was made.
        read: version up to which the log was read.
        made: version of the commit.
        whole: whether the version `read` contains the rows of the commit.
        restored: where the last RESTORE went, for messages; "" without one.
        by_time: whether the last RESTORE named a time. Its version is then unknown, and its rows count as missing.
        since: versions from which on `whole` was as stated, oldest first. A RESTORE brings back the rows of a version.
    """

    pipeline: str
    base: int
    read: int
    made: int
    whole: bool = False
    restored: str = ""
    by_time: bool = False
    since: tuple[tuple[int, bool], ...] = ()

    @classmethod
    def of(cls, record: Record) -> LastCommit:
        """Begin at the version on which the record's commit was made."""
        return cls(record.pipeline, record.base, record.base, record.base + 1)

    def contained_in(self, version: int) -> bool:
        """Return whether a version that was read contains the rows of the commit."""
        return next((whole for first, whole in reversed(self.since) if first <= version), False)

    def after(self, actions: Actions | None) -> LastCommit:
        """Return the commit as the next version's log entry leaves it; None: the entry was cleaned up, after a month."""
        version = self.read + 1
        found = replace(self, read=version, whole=self.whole or actions is None)
        for action in actions or ():
            if action.get("txn", {}).get("appId") == transaction(self.pipeline, "record"):
                found = replace(found, made=version, whole=True)
            about = action.get("commitInfo", {})
            if about.get("operation") == "RESTORE":
                to = (about.get("operationParameters") or {}).get("version")
                whole = to is not None and self.contained_in(int(to))
                restored = f"version {to}" if to is not None else "a point in time"
                found = replace(found, whole=whole, restored=restored, by_time=to is None)
        if not self.since or self.since[-1][1] != found.whole:
            found = replace(found, since=(*self.since, (version, found.whole)))
        return found
