"""An Iceberg table at one snapshot: its columns, and its references to pipelines' ledgers."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyiceberg.table import Table

from kpipe.errors import LedgerMismatch
from kpipe.schema.columns import Columns
from resources.destinations.iceberg.types import columns_of
from resources.destinations.lakehouse.ledger_file import Pointer, Record

__all__ = ["COPY", "KEY", "KEYED", "IcebergState"]

KEY = "kpipe.pipeline."  #: prefix of keys in a snapshot's summary; the value is a pipeline's pointer, `seq:mark`
KEYED = ":keyed"  #: no pipeline's name: beside the pointers if a commit with a key was made
COPY = "kpipe.ledger"  #: table property: all pointers, and the sequence number of their snapshot


class IcebergState:
    """An Iceberg table at one snapshot.

    Args:
        table: the table as the catalogue returned it.

    Raises:
        LedgerMismatch: the table was rolled back to a snapshot before kpipe's first commit.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._sequence = 0  # of the snapshot with the pointers
        self.pointers = self._pointers()

    @property
    def version(self) -> int:
        """The table's last sequence number."""
        return int(getattr(self.table.metadata, "last_sequence_number", 0))

    @property
    def columns(self) -> Columns:
        """All columns, including coordinates."""
        return columns_of(self.table.schema(), self.table.properties, str(self.table.name()))

    @property
    def is_keyed(self) -> bool:
        """Return whether some pipeline has written the table with a key."""
        return KEYED in self.pointers

    def pointer(self, pipeline: str) -> Pointer | None:
        """Return the pipeline's pointer from kpipe's newest snapshot; None: the pipeline never committed here."""
        return Pointer.read(self.pointers.get(pipeline))

    def copied(self) -> dict[str, str]:
        """Return the table property with a copy of the pointers, for a commit that expires their snapshot.

        After a rollback the property is that of a later snapshot, whose rows main does not have.
        """
        return {COPY: json.dumps({"pipelines": dict(self.pointers), "sequence": self._sequence})} if self.pointers else {}

    def check(self, record: Record) -> None:
        """Do nothing: rows and pointers are in the same snapshot, so a rollback restores both."""

    def _pointers(self) -> Mapping[str, str]:
        """Read the pointers of all pipelines from the newest snapshot with any: each such snapshot has all pointers.

        If snapshots have expired, the copy in the table's properties is used.

        Raises:
            LedgerMismatch: no remaining snapshot has pointers, and the copy is not from an expired snapshot.
        """
        meta = self.table.metadata
        snapshot, oldest = meta.current_snapshot(), None
        while snapshot is not None:
            said = dict(snapshot.summary.additional_properties) if snapshot.summary else {}
            found = {name.removeprefix(KEY): value for name, value in said.items() if name.startswith(KEY)}
            if found:
                self._sequence = snapshot.sequence_number or 0
                return found
            oldest = snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = meta.snapshot_by_id(parent) if parent is not None else None
        copy = json.loads(meta.properties.get(COPY) or "null")
        if copy is None:
            return {}
        if oldest is None or copy["sequence"] >= (oldest.sequence_number or 0):
            raise LedgerMismatch(
                f"Iceberg {self.table.name()} was rolled back to a snapshot before kpipe's first commit",
                "set the newest snapshot as current again; or load into another table",
            )
        pointers: Mapping[str, str] = copy["pipelines"]
        self._sequence = copy["sequence"]
        return pointers
