"""An Iceberg table whose batches are audited before they are published, as a destination: it says what waits on the branch."""

from __future__ import annotations

from typing import Any

from kpipe.interfaces import Audited
from resources.destinations.iceberg.state import IcebergState
from resources.destinations.iceberg.table import IcebergLake
from resources.destinations.lakehouse.destination import LakeDestination

__all__ = ["AuditedDestination"]


class AuditedDestination(LakeDestination):
    """One pipeline's table, and the branch that its batches land on first; see `LakeDestination`."""

    lake: IcebergLake

    def held_back(self) -> str:
        """Id of the snapshot with rows that are still due; empty where there is none; see `Auditing`."""
        _, found = self._branch()
        return str(found.snapshot_id) if found is not None else ""

    def audited(self) -> Audited | None:
        """What the checks say of these rows; see `Auditing`."""
        state, found = self._branch()
        return self.lake.audited(state, self.pipeline, found) if found is not None else None

    def _branch(self) -> tuple[Any, Any]:
        """The table, and the branch's snapshot unless the ledger has gone past it: the next batch replaces that one."""
        state, record = self._look()
        if not isinstance(state, IcebergState):
            return None, None
        return state, self.lake.branch(state, self.pipeline, record.seq if record is not None else 0)
