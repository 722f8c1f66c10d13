"""Iceberg destination with audits: batches are checked on a branch before they are published to main."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kpipe.batch_audit import Audited
from resources.destinations.iceberg.state import IcebergState
from resources.destinations.iceberg.table import IcebergLake
from resources.destinations.lakehouse.destination import LakeDestination

__all__ = ["AuditedDestination"]


class AuditedDestination(LakeDestination):
    """One pipeline's table and its audit branch; see `LakeDestination`."""

    lake: IcebergLake

    def held_back(self) -> str:
        """Return the id of the branch's unpublished snapshot; empty: none; see `Auditing`."""
        _, found = self._branch()
        return str(found.snapshot_id) if found is not None else ""

    def audited(self) -> Audited | None:
        """Check the unpublished rows again; see `Auditing`."""
        state, found = self._branch()
        return self.lake.audited(state, self.pipeline, found) if found is not None else None

    def passed_since(self) -> Mapping[str, int]:
        """Return by name the commit since which each batch passed a check; see `Auditing`."""
        state, _ = self._look()
        return self.lake.passed_since(state, self.pipeline) if isinstance(state, IcebergState) else {}

    def _branch(self) -> tuple[Any, Any]:
        """Return the table and the branch's snapshot; no snapshot if the ledger is past it: the next batch replaces it."""
        state, record = self._look()
        if not isinstance(state, IcebergState):
            return None, None
        return state, self.lake.branch(state, self.pipeline, record.seq if record is not None else 0)
