"""An Iceberg table at one snapshot: its columns, and what it says of pipelines."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyiceberg.table import Table

from kpipe.errors import LedgerMismatch
from kpipe.schema.columns import Columns
from resources.destinations.iceberg.types import columns_of
from resources.destinations.lakehouse.ledger_file import Pointer, Record

__all__ = ["COPY", "KEY", "IcebergState"]

KEY = "kpipe.pipeline."  #: in a snapshot's summary: a pipeline's pointer, `seq:mark`
COPY = "kpipe.ledger"  #: in the table's properties: all pointers, and the sequence number of their snapshot


class IcebergState:
    """An Iceberg table at one snapshot.

    Args:
        table: as the catalogue has it.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.pointers = self._pointers()

    @property
    def version(self) -> int:
        """The table's last sequence number."""
        return int(getattr(self.table.metadata, "last_sequence_number", 0))

    @property
    def columns(self) -> Columns:
        """All columns, coordinates too."""
        return columns_of(self.table.schema(), self.table.properties, str(self.table.name()))

    def pointer(self, pipeline: str) -> Pointer | None:
        """What the newest snapshot of kpipe's says of the pipeline."""
        return Pointer.read(self.pointers.get(pipeline))

    def check(self, record: Record) -> None:
        """A table that is rolled back takes its ledger along, so there is nothing more to prove."""

    def _pointers(self) -> Mapping[str, str]:
        """Of all pipelines: in the summary of the newest snapshot that has any; each carries those of all.

        Raises:
            LedgerMismatch: they are in no snapshot that is left, and the copy is not of one that expired.
        """
        meta = self.table.metadata
        snapshot, oldest = meta.current_snapshot(), None
        while snapshot is not None:
            said = dict(snapshot.summary.additional_properties) if snapshot.summary else {}
            found = {name.removeprefix(KEY): value for name, value in said.items() if name.startswith(KEY)}
            if found:
                return found
            oldest = snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = meta.snapshot_by_id(parent) if parent is not None else None
        copy = json.loads(meta.properties.get(COPY) or "null")
        if copy is None:
            return {}
        if oldest is None or copy["sequence"] >= (oldest.sequence_number or 0):
            raise LedgerMismatch(
                f"Iceberg {self.table.name()}: it was rolled back to a snapshot before the first one of kpipe's",
                "roll it forward to the newest snapshot; or load into another table",
            )
        pointers: Mapping[str, str] = copy["pipelines"]
        return pointers
