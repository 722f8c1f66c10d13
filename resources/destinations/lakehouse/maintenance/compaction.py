"""Rewrite small files and files with deleted rows; commit only what is proven to have the same rows.

The proof has two parts. For each group of files, the rows that are not deleted are hashed in the old files and in the new ones.
The new files are read again from storage. For each commit, the files of the snapshot to be are read from the metadata that it
publishes. They are the files of the state before, with the same deleted positions, except for the groups.

A commit lands on exactly the state that was read. If another commit is first, groups whose files have not changed are kept.
Nothing is deleted here: old files belong to older snapshots, and files of lost attempts wait for a removal.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from kpipe.errors import InvalidPipeline, MaintenanceFailed
from kpipe.failpoints import failpoint
from kpipe.maintenance.facts import Maintained
from kpipe.maintenance.plan import Limits, groups, rounds
from resources.destinations.lakehouse.maintenance.inventory import Inventory
from resources.destinations.lakehouse.maintenance.listing import Compacting, DeleteFile, Rewritten, Staged, StoredFile
from resources.destinations.lakehouse.maintenance.positions import DeletedPositions
from resources.destinations.lakehouse.table_format import Overtaken, Table

__all__ = ["Compaction"]

_ROUND = 1 << 30  # bytes that one commit replaces: what a lost attempt may have to read again
_TRIES = 20  # attempts in a row that other commits overtake


class _Format(Table, Compacting, Protocol):
    """A table format with maintenance."""


class Compaction:
    """One run of a compaction.

    Args:
        lake: the table; a `Table` that is `Compacting`.
        limits: thresholds.
        scratch: folder for temporary files.
        note: called with one line for each commit.
    """

    def __init__(self, lake: Any, limits: Limits, scratch: Path, note: Callable[[str], None]) -> None:
        self._lake: _Format = lake
        self._limits, self._note = limits, note
        self._positions = DeletedPositions(scratch)
        self.done = Maintained()

    def close(self) -> None:
        """Remove temporary files."""
        self._positions.close()

    def plan(self) -> Maintained:
        """Return what a run would rewrite, without writing anything."""
        with self._inventory(self._load()) as now:
            chosen = [file for group in groups(now.files, self._limits) for file in group]
            files, deletes = len(now.files), len(now.listing.deletes)
            rows = sum(file.rows - file.deleted for file in chosen)
            size = sum(file.size for file in chosen)
            return Maintained(files, files, deletes, deletes, rewritten=len(chosen), rows=rows, bytes=size)

    def run(self) -> Maintained:
        """Rewrite what pays, one commit for each round.

        Raises:
            MaintenanceFailed: the rows would change. Nothing more was committed.
            DestinationError: the table cannot be read or written.
        """
        with self._inventory(self._load()) as now:
            files, deletes = len(now.files), len(now.listing.deletes)
            self.done = replace(self.done, files_before=files, files_after=files, deletes_before=deletes, deletes_after=deletes)
        pending: list[Rewritten] = []
        lost = 0
        while lost < _TRIES:
            state = self._load()
            with self._inventory(state) as now:
                kept = [item for item in pending if now.has(item.sources)]
                if not kept:
                    lost += bool(pending)
                    # After a loss fewer files at once: the shorter an attempt, the fewer commits come in between.
                    chosen = rounds(groups(now.files, self._limits), _ROUND >> min(2 * lost, 20))
                    if not chosen and not now.scattered(self._limits, ()):
                        return self.done
                    kept = [self._rewritten(now, group) for group in (chosen[0] if chosen else ())]
                    failpoint("maintain.written")
                    if chosen:  # the rewriting took a while: begin the commit on the newest state
                        pending, state_now = kept, self._load()
                        if self._lake.version(state_now) != self._lake.version(state):
                            continue
                if self._committed(now, kept):
                    pending, lost = [], 0
                    continue
            pending, lost = kept, lost + 1
            self.done = replace(self.done, overtaken=self.done.overtaken + 1)
            time.sleep(random.uniform(0, 0.02 * lost))  # jitter: two maintainers do not keep colliding
        with self._inventory(self._load()) as now:
            self.done = replace(self.done, left=len(groups(now.files, self._limits)))
        return self.done

    def _load(self) -> Any:
        state = self._lake.load()
        if state is None:
            raise InvalidPipeline(f"{self._lake.kind} {self._lake.place}: the table does not exist", "run the pipeline first")
        return state

    def _inventory(self, state: Any) -> Inventory:
        return Inventory(self._lake, state, self._lake.listed(state), self._positions)

    def _rewritten(self, now: Inventory, group: Sequence[StoredFile]) -> Rewritten:
        """Write the live rows of a group as new files, and prove that these have the same rows."""
        expected = now.fingerprint(group)
        counted = sum(file.rows - file.deleted for file in group)
        brought = self._lake.bring_live(now.state, group[0].live, now.live(group), self._limits.target)
        files = self._lake.as_live(group[0].live, brought)
        found = now.fingerprint_of(files)
        if found != expected or found.rows != counted:
            raise self._differs(f"expected {counted} rows with hash {expected}, found {found}")
        return Rewritten(tuple(group), tuple(brought), tuple(files), now.state.version)

    def _renewed(self, now: Inventory, item: Rewritten) -> Rewritten:
        """Return a group for a commit on this state."""
        if item.version == now.state.version or not item.brought:
            return item
        brought = self._lake.renewed(now.state, item.brought)
        return replace(item, brought=brought, files=self._lake.as_live(item.sources[0].live, brought), version=now.state.version)

    def _committed(self, now: Inventory, rewritten: Sequence[Rewritten]) -> bool:
        """Commit on top of the inventory's state; return whether the commit is in the table's history."""
        rewritten = [self._renewed(now, item) for item in rewritten]
        sources = [file for item in rewritten for file in item.sources]
        merged = now.scattered(self._limits, sources)
        base = self._lake.version(now.state)  # now: pyiceberg changes the state's table when it commits
        deletes = self._lake.bring_deletes(now.state, None, now.remaining(merged, sources)) if merged else ()
        mark = uuid.uuid4().hex
        staged = self._lake.replacement(now.state, rewritten, merged, deletes, mark)
        failpoint("maintain.staged")
        self._prove(now, staged, rewritten, merged)
        failpoint("maintain.proven")
        with suppress(Overtaken):  # only what is read back counts
            staged.commit()
        failpoint("maintain.committed")
        state = self._load()
        if not self._lake.has_replaced(state, base, mark):
            return False
        files, listing = sum(len(item.files) for item in rewritten), self._lake.listed(state)
        self.done = replace(
            self.done,
            files_after=len(listing.files),
            deletes_after=len(listing.deletes),
            rewritten=self.done.rewritten + len(sources),
            written=self.done.written + files,
            rows=self.done.rows + sum(file.rows - file.deleted for file in sources),
            bytes=self.done.bytes + sum(file.size for file in sources),
            commits=self.done.commits + 1,
        )
        self._lake.upkeep(state)
        self._note(f"{len(sources)} files rewritten as {files}, {len(merged)} files of deletes merged")
        return True

    def _prove(self, now: Inventory, staged: Staged, rewritten: Sequence[Rewritten], merged: Collection[DeleteFile]) -> None:
        """Compare the files of the snapshot to be with those of the state.

        Raises:
            MaintenanceFailed: they differ in more than the groups.
        """
        gone = {file.path for item in rewritten for file in item.sources}
        new = {file.path: file for item in rewritten for file in item.files}
        with Inventory(self._lake, now.state, staged.listing(), self._positions) as then:
            found = {file.path: file for file in then.files}
            if len(found) != len(then.files):
                raise self._differs("a file of rows would be in the table twice")
            expected = {file.path: file for file in now.files if file.path not in gone}
            for path, file in expected.items():
                if found.get(path) != file:
                    raise self._differs(f"{path}: expected {file.deleted} deleted rows, found {found.get(path)}")
            for path, live in new.items():
                there = found.get(path)
                if there is None or there.rows != live.rows or there.deleted or there.division != _division(rewritten, path):
                    raise self._differs(f"{path}: expected {live.rows} rows without deletes, found {there}")
            if extra := found.keys() - expected.keys() - new.keys():
                raise self._differs(f"{min(extra)} would be added")
            if then.rows != now.rows:
                raise self._differs(f"expected {now.rows} rows, found {then.rows}")
            kept = {item.name for item in now.listing.deletes if item not in merged and item.of not in gone}
            if lost := kept - {item.name for item in then.listing.deletes}:
                raise self._differs(f"{min(lost)} would be removed")

    def _differs(self, what: str) -> MaintenanceFailed:
        return MaintenanceFailed(
            f"{self._lake.kind} {self._lake.place}: the rows before and after a compaction differ: {what}",
            "nothing was committed; run kpipe verify, and report it with the version of kpipe",
        )


def _division(rewritten: Sequence[Rewritten], path: str) -> Any:
    return next(item.sources[0].division for item in rewritten if any(file.path == path for file in item.files))
