"""Choose the data files of a table that a compaction rewrites, in groups of one new file each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = ["FileFacts", "Limits", "groups", "rounds"]

_SMALL = 0.75  # a file below this part of the target size is small; Iceberg's `rewrite_data_files` has the same default


@dataclass(frozen=True)
class Limits:
    """Thresholds of a compaction.

    Attributes:
        target_file_mb: size of new files, MB.
        min_input_files: number of small files, or of files of deletes, of one partition that are rewritten together.
        delete_ratio: share of deleted rows from which a file is rewritten alone, too.
    """

    target_file_mb: int = 128
    min_input_files: int = 5
    delete_ratio: float = 0.3

    @property
    def target(self) -> int:
        """Size of new files, bytes."""
        return self.target_file_mb << 20


@dataclass(frozen=True)
class FileFacts:
    """Facts about a data file.

    Attributes:
        rows: number of its rows, deleted ones included.
        size: bytes.
        deleted: number of deleted rows.
        division: partition; only files of one partition are rewritten together.
        is_movable: whether kpipe can rewrite it.
    """

    rows: int
    size: int
    deleted: int = 0
    division: Any = field(default=None, compare=True)
    is_movable: bool = True

    @property
    def left(self) -> int:
        """Estimated bytes of the rows that are not deleted."""
        return self.size * (self.rows - self.deleted) // self.rows if self.rows else 0


_File = TypeVar("_File", bound=FileFacts)


def groups(files: Iterable[_File], limits: Limits) -> list[list[_File]]:
    """Return the groups of files to rewrite, in the order of the files.

    Every rewriting makes the number of files, or the number of deleted rows, smaller. So repeated compactions end.

    Args:
        files: of a snapshot, oldest first.
        limits: thresholds.
    """
    parts: dict[Any, list[_File]] = {}
    for file in files:
        if file.is_movable and (_is_small(file, limits) or _is_worn(file, limits)):
            parts.setdefault(file.division, []).append(file)
    return [group for part in parts.values() for group in _packed(part, limits) if _pays(group, limits)]


def rounds(chosen: Sequence[Sequence[_File]], most: int) -> list[list[Sequence[_File]]]:
    """Divide groups into rounds, each of which one commit replaces.

    Args:
        chosen: groups.
        most: bytes of a round, which may have a single larger group.
    """
    found: list[list[Sequence[_File]]] = []
    size = 0
    for group in chosen:
        bytes_of = sum(file.size for file in group)
        if not found or size + bytes_of > most:
            found.append([])
            size = 0
        found[-1].append(group)
        size += bytes_of
    return found


def _is_small(file: FileFacts, limits: Limits) -> bool:
    return file.left < _SMALL * limits.target


def _is_worn(file: FileFacts, limits: Limits) -> bool:
    return file.deleted > 0 and file.deleted >= limits.delete_ratio * file.rows


def _packed(files: Sequence[_File], limits: Limits) -> list[list[_File]]:
    """Divide files of one partition so that each group makes a file of the target size at most."""
    found: list[list[_File]] = []
    size = 0
    for file in files:
        if not found or size + file.left > limits.target:
            found.append([])
            size = 0
        found[-1].append(file)
        size += file.left
    return found


def _pays(group: Sequence[FileFacts], limits: Limits) -> bool:
    return len(group) >= limits.min_input_files > 1 or any(_is_worn(file, limits) for file in group)
