"""Interface of a table format with deleted positions: files of a snapshot, their rows in order, and new deletes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from kpipe.batch.batch import Commit
from resources.table_partitions import Values

__all__ = ["Changes", "Deleting", "Live", "LiveFile", "Version"]


@dataclass(frozen=True)
class Version:
    """Identity of a table's content.

    Attributes:
        table: a table that is created again has another one.
        snapshot: empty if the table has no snapshot.
        parent: of the snapshot.
    """

    table: str
    snapshot: str
    parent: str = ""


@dataclass(frozen=True)
class LiveFile:
    """A data file of a snapshot.

    Attributes:
        path: as the table's metadata names it; a path is never written twice.
        rows: number of its rows, deleted ones included.
        seq: sequence number; deletes with a lower one do not apply to it.
        spec: id of its partitioning.
        values: its partition values: texts, whole numbers, true and false, NULL.
    """

    path: str
    rows: int
    seq: int = 0
    spec: int = 0
    values: Values = ()


@dataclass(frozen=True)
class Live:
    """The files of a snapshot.

    Attributes:
        files: of rows.
        deletes: files of deleted positions, with their sequence numbers.
    """

    files: Sequence[LiveFile] = ()
    deletes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Changes:
    """The files that a commit has added and removed.

    Attributes:
        files: new files of rows.
        deletes: paths of new files of deletes.
        ended: paths of removed files of deletes.
        removed: paths of removed files of rows.
    """

    files: Sequence[LiveFile] = ()
    deletes: Sequence[str] = ()
    ended: Sequence[str] = ()
    removed: Sequence[str] = ()


class Deleting(Protocol):
    """A table format in which a commit can delete rows by file and position; see `Table`."""

    def version(self, state: Any) -> Version:
        """Return the identity of the state's content."""

    def live(self, state: Any) -> Live:
        """Return the files of the state.

        Raises:
            DestinationError: the table has deletes or partition values that kpipe does not support.
        """

    def blocks(self, state: Any, file: LiveFile, names: Sequence[str]) -> Iterator[pa.Table]:
        """Read columns of all rows of a file in order, deleted ones included; NULL where the file lacks a column."""

    def rows_at(self, state: Any, file: LiveFile, names: Sequence[str], places: np.ndarray) -> Iterator[pa.Table]:
        """Read columns of the rows of a file at sorted positions, in order, few at once; see `blocks`."""

    def positions(self, state: Any, path: str) -> Iterator[pa.Table]:
        """Read a file of deletes: columns `path` and `position`."""

    def bring_rows(self, schema: Any, commit: Commit, blocks: Iterator[pa.Table]) -> Sequence[Any]:
        """Write rows of staged types into the table's folder, durably; no commit references them yet."""

    def bring_deletes(
        self,
        state: Any,
        schema: Any,
        deleted: Iterator[tuple[LiveFile, Iterator[pa.Table]]],
        emptied: Sequence[LiveFile] = (),
    ) -> Sequence[Any]:
        """Write deleted positions into the table's folder, durably.

        Args:
            state: that the batch changes.
            schema: of `prepare`.
            deleted: positions by partition: any file of the partition, and tables of `path` and `position`, sorted.
            emptied: files to remove from the table, because none of their rows stays.
        """

    def added(self, state: Any, brought: Sequence[Any]) -> Changes:
        """Return what a commit has changed, which made the state."""
