"""Results of maintenance, and the optional interface of destinations that support it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from kpipe.maintenance.plan import Limits

__all__ = ["Fingerprint", "Maintainable", "Maintained"]

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Fingerprint:
    """Count and hashes of rows, independent of their order: equal for equal rows, and with near certainty only for these.

    Attributes:
        rows: number of rows.
        content: sums of two 64-bit hashes of all columns, modulo 2^64.
        places: sum of a 64-bit hash of topic, partition and offset, modulo 2^64; 0 for a table without these columns.
    """

    rows: int = 0
    content: tuple[int, int] = (0, 0)
    places: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        """Return the fingerprint of both sets of rows together."""
        content = tuple((mine + its) & _MASK for mine, its in zip(self.content, other.content, strict=True))
        return Fingerprint(self.rows + other.rows, (content[0], content[1]), (self.places + other.places) & _MASK)


@dataclass(frozen=True)
class Maintained:
    """Numbers of a run of maintenance; with `dry_run`, those of its plan.

    Attributes:
        files_before, files_after: data files of the table.
        deletes_before, deletes_after: files of deletes, or deletion vectors.
        rewritten: data files that were replaced.
        written: data files that replace them.
        rows: number of rows in the files that were rewritten, each of which was compared.
        bytes: size of the files that were rewritten.
        commits: snapshots that maintenance has made.
        overtaken: attempts that another commit has overtaken.
        left: groups of files that were not rewritten, as other commits changed them each time.
        expired: snapshots that were expired.
        removed: files that were removed.
        waiting: files that no snapshot has, and that stay until the retention time has passed.
    """

    files_before: int = 0
    files_after: int = 0
    deletes_before: int = 0
    deletes_after: int = 0
    rewritten: int = 0
    written: int = 0
    rows: int = 0
    bytes: int = 0
    commits: int = 0
    overtaken: int = 0
    left: int = 0
    expired: int = 0
    removed: int = 0
    waiting: int = 0

    def __add__(self, other: Maintained) -> Maintained:
        """Return the result for both tables together."""
        mine, its = asdict(self), asdict(other)
        return Maintained(**{name: mine[name] + its[name] for name in mine})

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes by name."""
        return asdict(self)


@runtime_checkable
class Maintainable(Protocol):
    """Optional interface of a destination whose tables need maintenance."""

    def maintain(
        self,
        limits: Limits,
        scratch: Path,
        dry_run: bool = False,
        note: Callable[[str], None] = ...,
        retention_s: float | None = None,
    ) -> Maintained:
        """Compact the table, and remove what no reader needs. Its rows stay the same, or nothing is committed.

        Safe at any time beside runs, readers and other maintenance: a commit lands on exactly the state that was read.

        Args:
            limits: thresholds.
            scratch: folder for temporary files.
            dry_run: only plan.
            note: called with one line for each commit.
            retention_s: how long superseded snapshots and files are kept; None: nothing is removed.

        Raises:
            InvalidPipeline: the pipeline has never committed, or the format does not support maintenance.
            MaintenanceFailed: the rows before and after differ. Nothing was committed.
            DestinationError: the table cannot be read or written.
        """
        ...
