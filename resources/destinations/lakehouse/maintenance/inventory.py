"""A snapshot's files with their deleted rows: read live rows for a rewriting, and hash them for the proof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.maintenance.facts import Fingerprint
from kpipe.maintenance.plan import Limits
from resources.destinations.lakehouse.data_files import cast_column
from resources.destinations.lakehouse.live_files import LiveFile
from resources.destinations.lakehouse.maintenance.listing import Compacting, DeleteFile, Listing, StoredFile
from resources.destinations.lakehouse.maintenance.positions import DeletedPositions

__all__ = ["Inventory"]


class Inventory:
    """The files of one state. Close it in the end.

    Args:
        lake: the table format.
        state: the state.
        listing: its files.
        positions: content of files of deletes that was read before.
    """

    def __init__(self, lake: Compacting, state: Any, listing: Listing, positions: DeletedPositions) -> None:
        self.lake, self.state, self.listing = lake, state, listing
        self._schema = lake.stored_schema(state)
        self._deleted = positions.resolved(listing.files, listing.deletes)
        marks = {file.path: self._deleted.mark(file.path) for file in listing.files}
        self.files: Sequence[StoredFile] = [
            replace(file, deleted=marks[file.path][0], mark=marks[file.path][1]) for file in listing.files
        ]
        self._by_path = {file.path: file for file in self.files}

    def close(self) -> None:
        """Release the deleted positions."""
        self._deleted.close()

    def __enter__(self) -> Inventory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def has(self, files: Sequence[StoredFile]) -> bool:
        """Return whether the state has these files with the same deleted rows."""
        return all(self._by_path.get(file.path) == file for file in files)

    @property
    def rows(self) -> int:
        """Number of rows that are not deleted."""
        return sum(file.rows - file.deleted for file in self.files)

    def live(self, files: Sequence[StoredFile]) -> Iterator[pa.Table]:
        """Read all columns of the rows that are not deleted, file by file, in order."""
        for file in files:
            gone, at = self._deleted.of(file.path), 0
            if len(gone) == file.rows:
                continue
            for block in self._blocks(file.live):
                low, high = np.searchsorted(gone, (at, at + len(block)))
                if high > low:
                    kept = np.ones(len(block), bool)
                    kept[gone[low:high] - at] = False
                    yield block.filter(pa.array(kept))
                else:
                    yield block
                at += len(block)

    def _blocks(self, file: LiveFile) -> Iterator[pa.Table]:
        """Read all rows of a file in the types of new files: an older file may have narrower ones."""
        for block in self.lake.blocks(self.state, file, self._schema.names):
            columns = [cast_column(block.column(field.name), field, file.path) for field in self._schema]
            yield pa.table(columns, schema=self._schema)

    def fingerprint(self, files: Sequence[StoredFile]) -> Fingerprint:
        """Hash the rows of files that are not deleted."""
        blocks = ((file.path, self._blocks(file.live)) for file in files)
        return sum((self._deleted.fingerprint(path, found) for path, found in blocks), Fingerprint())

    def fingerprint_of(self, files: Sequence[LiveFile]) -> Fingerprint:
        """Hash all rows of files that are not in the state yet."""
        blocks = ((file.path, self._blocks(file)) for file in files)
        return sum((self._deleted.fingerprint(path, found) for path, found in blocks), Fingerprint())

    def scattered(self, limits: Limits, touched: Collection[StoredFile]) -> list[DeleteFile]:
        """Return the files of deletes to merge.

        They are those of each partition that has many, or one of whose rewritten files had deleted rows: without these rows,
        deletes would stay that apply to no file.
        """
        counts = Counter(item.division for item in self.listing.deletes if item.is_rewritten)
        wanted: set[Hashable] = {division for division, number in counts.items() if number >= max(limits.min_input_files, 2)}
        wanted |= {file.division for file in touched if file.deleted}
        return [item for item in self.listing.deletes if item.is_rewritten and item.division in wanted]

    def remaining(
        self, merged: Sequence[DeleteFile], without: Collection[StoredFile]
    ) -> Iterator[tuple[LiveFile, Iterator[pa.Table]]]:
        """Read the deleted positions of the merged files by partition, except those of files that are rewritten."""
        gone = {file.path for file in without}
        for division in dict.fromkeys(item.division for item in merged):
            left = [f for f in self.files if f.division == division and f.deleted and f.path not in gone]
            if left:
                yield left[0].live, self._deleted.sorted([file.path for file in left])
