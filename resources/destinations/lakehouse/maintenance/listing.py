"""The files of a snapshot as maintenance sees them, and what a table format must offer for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from kpipe.maintenance.plan import FileFacts
from resources.destinations.lakehouse.data_files import Brought
from resources.destinations.lakehouse.live_files import Deleting, LiveFile

__all__ = ["Compacting", "DeleteFile", "Listing", "Rewritten", "Staged", "StoredFile"]


@dataclass(frozen=True)
class StoredFile(FileFacts):
    """A data file of a snapshot. Two are equal if file and deleted rows are the same.

    Attributes:
        live: path, sequence number and partition.
        mark: equal for equal deleted positions.
    """

    live: LiveFile = field(default_factory=lambda: LiveFile("", 0))
    mark: str = ""
    entry: Any = field(default=None, compare=False, repr=False)  #: as the metadata has it

    @property
    def path(self) -> str:
        """Path, as the table's metadata names it."""
        return self.live.path


@dataclass(frozen=True)
class DeleteFile:
    """A file of deleted positions, or a deletion vector.

    Attributes:
        name: no other one has it.
        read: reads it as tables of `path` and `position`.
        division: its partition.
        seq: sequence number; it applies to files with the same or a lower one.
        is_rewritten: whether files of deletes of a partition can be merged.
        of: the only file that it applies to, with which it goes; empty: any of its partition.
    """

    name: str
    read: Callable[[], Iterator[pa.Table]] = field(compare=False)
    division: Hashable = None
    seq: int = 0
    is_rewritten: bool = False
    of: str = ""


@dataclass(frozen=True)
class Listing:
    """The files of a snapshot, from its metadata.

    Attributes:
        files: of rows, oldest first; the number of deleted rows is not known yet.
        deletes: files of deletes.
    """

    files: Sequence[StoredFile]
    deletes: Sequence[DeleteFile]


@dataclass(frozen=True)
class Rewritten:
    """Files of rows, and the new files with the same rows that no commit references yet.

    Attributes:
        sources: the replaced files.
        brought: the new files.
        files: the new files as the metadata will name them.
        version: of the table when the new files got their names.
    """

    sources: Sequence[StoredFile]
    brought: Sequence[Brought]
    files: Sequence[LiveFile]
    version: int = 0


class Staged(Protocol):
    """A commit that replaces files, before it is sent."""

    def listing(self) -> Listing:
        """Read the files of the snapshot to be, from the metadata that the commit publishes."""

    def commit(self) -> None:
        """Send the commit.

        Raises:
            Overtaken: the table has a later state, or the outcome is unknown. The caller reads back.
        """


class Compacting(Deleting, Protocol):
    """A table format whose files can be rewritten; see `Table`."""

    def listed(self, state: Any) -> Listing:
        """Return the files of a state.

        Raises:
            DestinationError: the table has deletes that kpipe does not support.
        """

    def stored_schema(self, state: Any) -> pa.Schema:
        """Return the table's columns in the types of its files."""

    def bring_live(self, state: Any, near: LiveFile, blocks: Iterator[pa.Table], target: int) -> Sequence[Brought]:
        """Write the rows of one partition into the table's folder, durably, in files of some `target` bytes."""

    def renewed(self, state: Any, brought: Sequence[Brought]) -> Sequence[Brought]:
        """Give new files other names, durably, for a commit on a later state."""

    def as_live(self, near: LiveFile, brought: Sequence[Brought]) -> Sequence[LiveFile]:
        """Return new files of the partition of `near` as the metadata will name them."""

    def replacement(
        self,
        state: Any,
        rewritten: Sequence[Rewritten],
        merged: Collection[DeleteFile],
        deletes: Sequence[Any],
        mark: str,
    ) -> Staged:
        """Stage a commit on top of exactly the state.

        Args:
            state: the state.
            rewritten: files to replace.
            merged: files of deletes to remove.
            deletes: results of `bring_deletes`, to add.
            mark: id of the commit.
        """

    def has_replaced(self, state: Any, base: Any, mark: str) -> bool:
        """Return whether the commit with this id is in the history of `state`, after the state `base`."""
