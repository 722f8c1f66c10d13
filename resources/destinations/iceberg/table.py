"""An Iceberg table in a folder with an SQL catalogue: what kpipe makes of its snapshots."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table, Transaction
from sqlalchemy.exc import SQLAlchemyError

from kpipe.batch import Commit
from kpipe.errors import DestinationError, LedgerMismatch
from kpipe.schema import Columns
from resources.destinations.fitting import COORDINATES
from resources.destinations.iceberg.durable import local
from resources.destinations.iceberg.types import TYPES, arrow_schema, columns_of, declared
from resources.destinations.lake.files import Brought, bring
from resources.destinations.lake.folder import Folder
from resources.destinations.lake.record import Pointer, Record, folder_of
from resources.destinations.lake.table import Overtaken
from resources.destinations.lake.widening import grown
from resources.destinations.relational.matching import widening
from resources.destinations.staged import Proven

__all__ = ["IcebergLake", "IcebergState"]

_NAMESPACE = "default"
_TRIES = 10  # at a catalogue that another run is making
_KEY = "kpipe.pipeline."  # in a snapshot's summary: a pipeline's pointer, `seq:mark`
_COPY = "kpipe.ledger"  # in the table's properties: all pointers, and the sequence number of their snapshot
_ALWAYS = Columns(tuple(COORDINATES)[:3])


class _Transaction(Transaction):
    """One try upon the state that was looked at. The library would try again without asking, and delete what it had written.

    It overrides two hooks that are not public: pyiceberg is pinned to one minor version, and contract tests say what they do.
    """

    def _register_snapshot_producer(self, producer: Any) -> None:
        producer._clean_all_uncommitted = lambda: None  # after an unknown answer these may be live
        super()._register_snapshot_producer(producer)

    def _rebuild_snapshot_updates(self) -> None:
        raise Overtaken("another snapshot is the newest")


@dataclass(frozen=True)
class _Schema:
    """The table's columns as they will be, and whether that is news."""

    columns: Columns
    changed: bool


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
        said = self.pointers.get(pipeline)
        if said is None:
            return None
        seq, _, mark = said.partition(":")
        return Pointer(int(seq), int(mark, 16))

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
            found = {name.removeprefix(_KEY): value for name, value in said.items() if name.startswith(_KEY)}
            if found:
                return found
            oldest = snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = meta.snapshot_by_id(parent) if parent is not None else None
        copy = json.loads(meta.properties.get(_COPY) or "null")
        if copy is None:
            return {}
        if oldest is None or copy["sequence"] >= (oldest.sequence_number or 0):
            raise LedgerMismatch(
                f"Iceberg {self.table.name()}: it was rolled back to a snapshot before the first one of kpipe's",
                "roll it forward to the newest snapshot; or load into another table",
            )
        pointers: Mapping[str, str] = copy["pipelines"]
        return pointers


class IcebergLake:
    """An Iceberg table on this machine's disks, in an SQLite catalogue beside it.

    Args:
        folder: of the catalogue and its tables; made at the first commit.
        table: name of the table, in the namespace `default`.
    """

    kind = "Iceberg"
    kept = 256  # commits that a table can be rolled back, and find its ledger

    def __init__(self, folder: Path, table: str) -> None:
        self._path = folder.expanduser().resolve()
        self._name, self._known = f"{_NAMESPACE}.{table}", table
        # Not in the table's own folder: tools remove files there that no snapshot names.
        self.ledger = Folder(self._path / "_kpipe" / folder_of(table))
        self._data = Folder(self._path / _NAMESPACE / table / "data")
        self._catalog: SqlCatalog | None = None

    @property
    def place(self) -> str:
        """The folder and the table's name in the catalogue."""
        return f"{self._path}, {self._name}"

    def load(self) -> IcebergState | None:
        """The newest state; None where there is no catalogue, or no such table in it.

        Raises:
            DestinationError: it cannot be read, or has columns that kpipe cannot fill.
            LedgerMismatch: see `IcebergState`.
        """
        if not (self._path / "catalog.db").is_file():
            return None
        try:
            table = self._opened().load_table(self._name)
        except NoSuchTableError:
            return None
        except (SQLAlchemyError, OSError, ValueError) as error:
            raise DestinationError(f"Iceberg {self.place} cannot be read: {error}", "restore a backup of the folder") from error
        unfit = {
            "partition columns": not table.spec().is_unpartitioned(),
            "a column that must not be null": any(field.required for field in table.schema().fields),
        }
        for what, found in unfit.items():
            if found:
                raise DestinationError(f"Iceberg {self.place} has {what}: kpipe cannot load into it yet", "name another table")
        return IcebergState(table)

    def prepare(self, state: IcebergState | None, wanted: Columns) -> _Schema:
        """The schema with these columns; see `Table.prepare`."""
        known = state.columns if state is not None else Columns()
        steps = widening(known, wanted if state is not None or wanted else _ALWAYS)
        return _Schema(grown(known, steps), bool(steps))

    def bring(self, schema: _Schema, commit: Commit, staged: Sequence[Proven]) -> Sequence[Brought]:
        """Make staged files the table's own; see `Table.bring`."""
        self._data.path.mkdir(parents=True, exist_ok=True)
        return bring(self._data, arrow_schema(schema.columns), schema.columns, commit, staged)

    def land(
        self, state: IcebergState | None, schema: _Schema, brought: Sequence[Brought], record: Record, pointer: Pointer
    ) -> None:
        """Make the next snapshot; see `Table.land`."""
        pointers = {**(state.pointers if state is not None else {}), record.pipeline: f"{pointer.seq}:{pointer.mark:016x}"}
        summary = {f"{_KEY}{name}": value for name, value in pointers.items()}
        copy = {"pipelines": pointers, "sequence": (state.version if state is not None else 0) + 1}
        try:
            change = self._created(schema) if state is None else _Transaction(state.table)
            if state is not None and schema.changed:
                with change.update_schema(case_sensitive=False) as update:
                    update.union_by_name(arrow_schema(schema.columns))
            change.set_properties({_COPY: json.dumps(copy), TYPES: declared(schema.columns)})
            paths = [f"file://{self._data.path / file.name}" for file in brought]
            change.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)
            change.commit_transaction()
        except (CommitFailedException, TableAlreadyExistsError, NamespaceAlreadyExistsError) as error:
            raise Overtaken(str(error)) from error
        except SQLAlchemyError as error:  # the catalogue was locked: what was sent is looked for, and it is tried again
            raise Overtaken(str(error)) from error

    def rows(self, state: IcebergState, names: Sequence[str]) -> Any:
        """The rows as Arrow, for counting."""
        return state.table.scan(selected_fields=tuple(names)).to_arrow()

    def upkeep(self, state: IcebergState | None) -> None:
        """Nothing: snapshots are expired by who decides how long the table's past is kept."""

    def _opened(self) -> SqlCatalog:
        for attempt in range(_TRIES):
            if self._catalog is not None:
                break
            try:
                self._catalog = SqlCatalog("kpipe", **self._settings())
            except SQLAlchemyError:  # its tables are being made by another first run
                if attempt == _TRIES - 1:
                    raise
                time.sleep(random.uniform(0, 0.05 * (attempt + 1)))
        assert self._catalog is not None
        return self._catalog

    def _settings(self) -> dict[str, str]:
        return {
            "uri": f"sqlite:///{self._path / 'catalog.db'}",
            "warehouse": f"file://{self._path}",
            "py-io-impl": "resources.destinations.iceberg.durable.DurableFileIO",
        }

    def _created(self, schema: _Schema) -> Transaction:
        self._path.mkdir(parents=True, exist_ok=True)
        catalog = self._opened()
        catalog.create_namespace_if_not_exists(_NAMESPACE)
        return catalog.create_table_transaction(
            self._name,
            arrow_schema(schema.columns),
            location=f"file://{local(str(self._data.path.parent))}",
            properties={"commit.manifest-merge.enabled": "true", "write.metadata.delete-after-commit.enabled": "true"},
        )
