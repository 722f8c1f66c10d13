"""The methods of `Maintainable`, for lakehouse destinations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.maintenance.facts import Maintained
from kpipe.maintenance.plan import Limits
from resources.destinations.lakehouse.ledger_file import Record
from resources.destinations.lakehouse.maintenance.removal import Removal
from resources.destinations.lakehouse.table_format import State, Table

__all__ = ["Maintaining"]


class Maintaining:
    """The methods of `Maintainable`, for `LakeDestination`."""

    lake: Table
    pipeline: str

    def _look(self) -> tuple[State | None, Record | None]:
        raise NotImplementedError

    def maintain(
        self,
        limits: Limits,
        scratch: Path,
        dry_run: bool = False,
        note: Callable[[str], None] = lambda _: None,
        retention_s: float | None = None,
    ) -> Maintained:
        """Compact the table, and remove old files; see `Maintainable`."""
        lake: Any = self.lake
        if not hasattr(lake, "listed"):
            raise NotAvailable(
                f"pipeline {self.pipeline}: maintenance is not available for {lake.kind} {lake.place}",
                "set into.type: iceberg or delta",
            )
        if self._look()[1] is None:
            raise InvalidPipeline(f"pipeline {self.pipeline}: nothing committed yet", f"kpipe run {self.pipeline}")
        from resources.destinations.lakehouse.maintenance.compaction import Compaction  # imported late: it loads DuckDB

        compaction = Compaction(lake, limits, scratch, note)
        try:
            done = compaction.plan() if dry_run else compaction.run()
        finally:
            compaction.close()
        if dry_run or retention_s is None:
            return done
        found = Removal(lake, retention_s, note).run()
        return replace(done, expired=found.expired, removed=found.removed, waiting=found.waiting)
