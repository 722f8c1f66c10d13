"""Remove old snapshots, and files that no remaining snapshot has.

A file is removed if both are true:

- No commit can name it any more. It was without reference when the table had some version, and the table has a later version
  now: a commit on the state before would fail. Files of the next attempt have other names.
- No reader can need it. It has been without reference for the retention time; or the last snapshots that had it were superseded
  so long ago, and this run has expired them.

The first observation of each file is noted beside the ledger. So a file that no snapshot has ever had is removed by a later run.
A file may have had a reference again since then, as after a RESTORE. So the time counts from its last removal from the table.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kpipe.failpoints import failpoint
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.table_format import Overtaken, Table

__all__ = ["Removal", "Removed", "Removing"]

_NOTES = "_maintenance/unreferenced.json"


class Removing(Table, Protocol):
    """A table format whose unreferenced files can be listed."""

    def expired(self, state: Any, before_ms: int) -> tuple[int, Collection[str]]:
        """Expire snapshots that were superseded before that time. Heads of branches and tagged snapshots stay.

        Returns:
            The number of these snapshots, and the names of files that no other snapshot of the state has.

        Raises:
            Overtaken: another commit was first, or the outcome is unknown.
            DestinationError: the table cannot be read or written.
        """

    def stored(self) -> Mapping[str, str]:
        """List the files that kpipe may remove: paths in `files` by name. Names are unique in the table."""

    def referenced(self, state: Any) -> Collection[str]:
        """Return the names of all files that a snapshot of the state has.

        Raises:
            DestinationError: metadata cannot be read.
        """

    def released(self, state: Any, after: int) -> tuple[float, Mapping[str, float]]:
        """Return when commits after a version, up to that of the state, last removed files from the table.

        Returns:
            The times of files by name, and the time of all others at the latest: seconds since 1970. 0: not in these commits.

        Raises:
            DestinationError: metadata cannot be read.
        """

    @property
    def files(self) -> Folder:
        """Folder of the paths of `stored`."""


class _Note(NamedTuple):
    """A note about a file without reference.

    Attributes:
        since: seconds since 1970 from which its age counts.
        version: of the table, at which it was first observed.
        seen: the newest version up to which its removals are known.
    """

    since: float
    version: int
    seen: int


@dataclass(frozen=True)
class Removed:
    """Result of a removal.

    Attributes:
        expired: number of snapshots that were expired.
        removed: number of files that were removed.
        waiting: number of files without reference that stay until the retention time has passed.
    """

    expired: int = 0
    removed: int = 0
    waiting: int = 0


class Removal:
    """One run of a removal.

    Args:
        lake: the table.
        retention_s: how long snapshots and files are kept after they were superseded.
        note: called with one line for each step.
        now: seconds since 1970; the current time by default.
    """

    def __init__(self, lake: Any, retention_s: float, note: Callable[[str], None], now: float | None = None) -> None:
        self._lake: Removing = lake
        self._note, self._retention = note, retention_s
        self._now = time.time() if now is None else now

    def run(self) -> Removed:
        """Expire snapshots, then remove files.

        Raises:
            DestinationError: the table cannot be read or written.
        """
        state = self._lake.load()
        if state is None:
            return Removed()
        count, names = 0, set[str]()
        with suppress(Overtaken):  # the next run tries again
            count, found = self._lake.expired(state, int((self._now - self._retention) * 1000))
            names = set(found)
        failpoint("maintain.expired")
        stored = self._lake.stored()  # before the state: a file that is committed in between is referenced
        state = self._lake.load()
        if state is None:
            return Removed()
        still = set(self._lake.referenced(state))
        known = self._noted()
        idle = self._aged(state, {name: known.get(name) for name in stored if name not in still})
        gone = {
            name
            for name, note in idle.items()
            if name in names or (state.version > note.version and self._now - note.since >= self._retention)
        }
        left = {name: value for name, value in idle.items() if name not in gone}
        if left != known:
            self._lake.ledger.write(_NOTES, json.dumps(left).encode())
        failpoint("maintain.removing")
        for name in gone:
            self._lake.files.remove(stored[name])
        if count or gone:
            self._note(f"{count} snapshots expired, {len(gone)} files removed")
        return Removed(count, len(gone), len(left))

    def _aged(self, state: Any, idle: Mapping[str, _Note | None]) -> dict[str, _Note]:
        """Bring the notes of files without reference up to date."""
        seen = min((note.seen for note in idle.values() if note is not None), default=state.version)
        others, released = self._lake.released(state, seen)
        found = dict[str, _Note]()
        for name, note in idle.items():
            if note is None:
                found[name] = _Note(self._now, state.version, state.version)
            else:
                last = min(self._now, max(others, released.get(name, 0)))
                found[name] = _Note(max(note.since, last), note.version, state.version)
        return found

    def _noted(self) -> dict[str, _Note]:
        data = self._lake.ledger.read(_NOTES)
        try:
            said = json.loads(data) if data else {}
            return {str(name): _Note(float(since), int(version), int(seen)) for name, (since, version, seen) in said.items()}
        except (ValueError, TypeError, AttributeError):
            return {}  # damaged, or of an earlier kpipe: the retention time begins again
