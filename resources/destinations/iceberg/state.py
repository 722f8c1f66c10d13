"""An Iceberg table at one snapshot: its columns, and its references to pipelines' ledgers."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from kpipe.errors import LedgerMismatch
from kpipe.schema.columns import Columns
from resources.destinations.iceberg.types import columns_of
from resources.destinations.lakehouse.ledger_file import Pointer, Record

__all__ = ["KEY", "KEYED", "MADE_BY", "IcebergState", "copied"]

KEY = "kpipe.pipeline."  #: prefix of keys in a snapshot's summary; the value is a pipeline's pointer, `seq:mark`
KEYED = ":keyed"  #: no pipeline's name: beside the pointers if a commit with a key was made
MADE_BY = "kpipe.commit"  #: key in the summary of the snapshot that a commit made: its pipeline
_COPY = "kpipe.ledger"  # table property: all pointers
_AT = "kpipe.ledger.snapshot"  # table property: id of the snapshot of main as of which the copy was made


def copied(pointers: Mapping[str, str], snapshot: int) -> dict[str, str]:
    """Return the table properties with a copy of the pointers as of a snapshot of main."""
    return {_COPY: json.dumps({"pipelines": dict(pointers)}), _AT: str(snapshot)}


class IcebergState:
    """An Iceberg table at one snapshot.

    Args:
        table: the table as the catalogue returned it.

    Raises:
        LedgerMismatch: the table has lost its pointers, or main may have been rolled back.
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
        """Return the table properties for a commit that may expire the snapshot with the pointers; see `copied`.

        After a rollback the properties are those of a later snapshot, whose rows main does not have.
        """
        current = self.table.metadata.current_snapshot()
        return copied(self.pointers, current.snapshot_id) if self.pointers and current is not None else {}

    def check(self, record: Record) -> None:
        """Do nothing: rows and pointers are in the same snapshot, so a rollback restores both."""

    def _pointers(self) -> Mapping[str, str]:
        """Read the pointers of all pipelines from the newest snapshot with any: each such snapshot has all pointers.

        That snapshot may have expired. Then the copy in the table's properties is used, if main descends from the copy's
        snapshot. Else earlier metadata files are searched: a rollback leaves the copy of a later snapshot.

        Raises:
            LedgerMismatch: neither proves the pointers.
        """
        meta = self.table.metadata
        chain, found = _chain(meta, meta.current_snapshot_id)
        copy = json.loads(meta.properties.get(_COPY) or "null")
        if found or copy is None:
            return found
        known = {*(item.snapshot_id for item in chain), *(item.parent_snapshot_id for item in chain)}
        if meta.properties.get(_AT) in {str(number) for number in known}:
            return dict(copy["pipelines"])
        if chain and (found := self._earlier(chain[-1].snapshot_id)):
            return found
        raise LedgerMismatch(
            f"Iceberg {self.table.name()}: main has no snapshot with kpipe's ledger: it was rolled back to before kpipe's first"
            " commit, or another program expired the snapshots",
            "after a rollback, set a later snapshot as current, or load into another table; if main was never rolled back, set"
            f" the table property {_AT} to {meta.current_snapshot_id}, its current snapshot",
        )

    def _earlier(self, number: int) -> dict[str, str]:
        """Search the pointers that a snapshot had in earlier metadata files, which have the expired snapshots.

        pyiceberg removes the parent's id from a snapshot when the parent expires.
        """
        for entry in reversed(self.table.metadata.metadata_log):
            try:
                meta = FromInputFile.table_metadata(self.table.io.new_input(entry.metadata_file))
            except (FileNotFoundError, ValueError):  # deleted, or not metadata
                continue
            chain, found = _chain(meta, number)
            if found:
                return found
            if chain:
                number = chain[-1].parent_snapshot_id or chain[-1].snapshot_id
        return {}


def _chain(meta: TableMetadata, number: int | None) -> tuple[list[Snapshot], dict[str, str]]:
    """Follow a snapshot's ancestors to the first with pointers; return those before it, and its pointers."""
    chain = list[Snapshot]()
    while number is not None and (snapshot := meta.snapshot_by_id(number)) is not None:
        said = dict(snapshot.summary.additional_properties) if snapshot.summary else {}
        found = {name.removeprefix(KEY): value for name, value in said.items() if name.startswith(KEY)}
        if found:
            return chain, found
        chain.append(snapshot)
        number = snapshot.parent_snapshot_id
    return chain, {}
