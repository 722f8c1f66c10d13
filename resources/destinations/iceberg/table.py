"""Commit batches to an Iceberg table: directly to main, or through an audit branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Transaction
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)  # fmt: skip

from kpipe.batch.batch import Commit
from kpipe.batch_audit import Audited
from kpipe.definition.lakehouse_options import Part
from kpipe.errors import AuditFailed, DestinationError
from kpipe.failpoints import failpoint
from kpipe.schema.columns import Columns
from resources.destinations.iceberg.audit import Audit, added, branch_of
from resources.destinations.iceberg.catalogue import FAILURES, OVERTAKEN, Catalogue
from resources.destinations.iceberg.data_files import append, location
from resources.destinations.iceberg.new_names import check_new_names, complete_mapping, published, unpublished
from resources.destinations.iceberg.partitions import divide, parts_of
from resources.destinations.iceberg.removal import IcebergRemoval, expire
from resources.destinations.iceberg.state import KEY, KEYED, MADE_BY, IcebergState, copied
from resources.destinations.iceberg.time_travel import IcebergTimeTravel
from resources.destinations.iceberg.transaction import OneAttempt, sending
from resources.destinations.iceberg.types import TYPES, arrow_schema, declared
from resources.destinations.lakehouse.data_files import Brought, bring
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.ledger_file import Pointer, Record, folder_of
from resources.destinations.lakehouse.partitions import agreed
from resources.destinations.lakehouse.schema_evolution import grown
from resources.destinations.lakehouse.table_format import Overtaken
from resources.destinations.sql.column_matching import widening
from resources.destinations.staged_file_check import Proven
from resources.type_compatibility import COORDINATES

__all__ = ["NAMESPACE", "IcebergLake"]

NAMESPACE = "default"
_CLASS = "write.py-location-provider.impl"
_KEEP = "history.expire.min-snapshots-to-keep"  # Iceberg's property; kpipe sets it on tables that it creates
_AT_ONCE = 32  # snapshots that one commit expires: expiry needs a commit of its own
_ALWAYS = Columns(tuple(COORDINATES)[:3])


@dataclass(frozen=True)
class _Schema:
    """The table's schema after a commit."""

    columns: Columns
    changed: bool  # the table lacks some of the columns
    parts: tuple[Part, ...] = ()
    divides: bool = False  # the table is not yet partitioned by `parts`
    version: int = 0  # of the table before the commit


class IcebergLake(IcebergTimeTravel, IcebergRemoval):
    """An Iceberg table.

    Args:
        folder: root folder; this table's files are in NAMESPACE/TABLE below it.
        table: its name.
        catalogue: the catalogue of its current metadata.
        namespace: of the table.
        audit: checks of a batch's rows before it is published to main; None: batches are committed to main directly.
        parts: partition columns of a table that kpipe creates.
    """

    kind = "Iceberg"
    kept = 256  # a rollback by up to so many commits still finds its ledger file

    def __init__(
        self,
        folder: Folder,
        table: str,
        catalogue: Catalogue,
        namespace: str = NAMESPACE,
        audit: Audit | None = None,
        parts: Sequence[Part] = (),
    ) -> None:
        self._parts = tuple(parts)
        self._folder, self._catalogue, self._namespace, self._audit = folder, catalogue, namespace, audit
        self._name = f"{namespace}.{table}"
        # Not in the table's folder: tools delete files there that no snapshot names.
        self.ledger = folder.below("_kpipe").below(folder_of(table if namespace == NAMESPACE else self._name))
        self._table = folder.below(namespace).below(table)
        self._data = self._table.below("data")
        self._catalog: Catalog | None = None

    @property
    def place(self) -> str:
        """Folder, catalogue unless it is beside the tables, and table name."""
        return ", ".join(filter(None, (self._folder.place, self._catalogue.place, self._name)))

    def load(self) -> IcebergState | None:
        """Load the newest state; None: the catalogue or the table does not exist.

        Raises:
            DestinationError: the table cannot be read, or has properties that kpipe does not support.
            LedgerMismatch: see `IcebergState`.
        """
        if not self._catalogue.exists():
            return None
        try:
            table = self._opened().load_table(self._name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except FAILURES as error:
            raise self._failed(error) from None  # a chained error could show secrets in tracebacks
        unfit = {
            "a partition transform other than identity, year, month, day or hour of a top-level column": parts_of(table) is None,
            "a required column": any(field.required for field in table.schema().fields),
            # pyiceberg imports and calls the class that it names: writers of the table could run code here.
            f"the property {_CLASS}": _CLASS in table.properties,
        }
        for what, found in unfit.items():
            if found:
                raise DestinationError(f"Iceberg {self.place}: not supported: {what}", "choose another table")
        try:
            return IcebergState(table)
        except OSError as error:  # of an earlier metadata file
            raise self._failed(error) from None

    def prepare(self, state: IcebergState | None, wanted: Columns) -> _Schema:
        """Return the table's schema with these columns; see `Table.prepare`."""
        known = state.columns if state is not None else Columns()
        steps = widening(known, wanted if state is not None or wanted else _ALWAYS)
        if state is not None:
            check_new_names(state.table, [path for path, _ in steps], f"Iceberg {self.place}")
            complete_mapping(state.table.metadata, f"Iceberg {self.place}")  # raises before files are written
        columns = grown(known, steps)
        has = (parts_of(state.table) or ()) if state is not None else ()
        fresh = state is None or not state.table.metadata.snapshots or not known.without(COORDINATES.names())
        parts = agreed(has, self._parts, fresh, columns.names(), f"Iceberg {self.place}")
        return _Schema(columns, bool(steps), parts, parts != has, state.version if state is not None else 0)

    def bring(self, schema: _Schema, commit: Commit, staged: Sequence[Proven]) -> Sequence[Brought]:
        """Write staged files into the table's folder; see `Table.bring`."""
        return bring(self._data, arrow_schema(schema.columns), schema.columns, commit, staged, schema.parts, schema.version)

    def land(self, state: IcebergState | None, schema: _Schema, brought: Sequence[Any], record: Record, pointer: Pointer) -> None:
        """Commit the next snapshot; see `Table.land`."""
        pointers = {**(state.pointers if state is not None else {}), record.pipeline: f"{pointer.seq}:{pointer.mark:016x}"}
        if record.balance is not None:
            pointers[KEYED] = "true"
        if brought:
            pointers = (self._audit or Audit({})).noted(pointers, record.pipeline, pointer.seq)
        with sending(self._failed):
            if brought and self._audit is not None:
                self._publish(state, schema, brought, record.pipeline, pointers)
                return
            change = self._created(schema) if state is None else OneAttempt(state.table)
            self._shape(change, schema, state is None)
            self._add(change, brought, pointers, record.pipeline)
            current = change.table_metadata.current_snapshot()
            assert current is not None
            change.set_properties(_said(pointers, current.snapshot_id, schema))
            change.commit_transaction()

    def _shape(self, change: Transaction, schema: _Schema, made: bool) -> None:
        """Stage new columns and the partitioning. A table that is being created has its columns already."""
        if schema.changed and not made:
            with change.update_schema(case_sensitive=False) as update:
                update.union_by_name(arrow_schema(schema.columns))
        if schema.divides:
            divide(change, schema.parts)

    def _add(
        self, change: Transaction, brought: Sequence[Any], pointers: Mapping[str, str], pipeline: str, to: str = "main"
    ) -> None:
        """Stage the files and the summary of the next snapshot."""
        summary = {**{f"{KEY}{name}": value for name, value in pointers.items()}, MADE_BY: pipeline}
        append(change, self._data, brought, summary, to)

    def _publish(
        self, state: IcebergState | None, schema: _Schema, brought: Sequence[Any], pipeline: str, pointers: Mapping[str, str]
    ) -> None:
        """Commit to a branch, check the rows there, and make the branch's snapshot main's, including the ledger.

        Main, its columns and the ledger are unchanged until the last step, which is one commit.

        A missing or unpartitioned table needs a commit first. That commit ends the attempt: the state that the batch was
        validated against is not main's any more.

        Raises:
            Overtaken: another commit was first, or the table is ready now.
            AuditFailed: rows fail a check. They stay on the branch for queries until the next batch.
        """
        assert self._audit is not None
        if state is None or schema.divides:  # without rows, main's readers see no difference
            change = self._created(schema) if state is None else OneAttempt(state.table)
            self._shape(change, schema, state is None)
            change.commit_transaction()
            failpoint("commit.divided")
            raise Overtaken("the table was partitioned for this batch")
        branch, meta = branch_of(pipeline), state.table.metadata
        head = meta.refs["main"].snapshot_id if "main" in meta.refs else None
        change = OneAttempt(state.table)
        stood = meta.refs.get(branch)
        if head is not None:  # 1: the branch starts at main's snapshot
            change._apply(*change._set_ref_snapshot(head, branch, "branch"))
        elif stood is not None:
            held = _new(AssertRefSnapshotId, ref=branch, snapshot_id=stood.snapshot_id)
            change._apply((_new(RemoveSnapshotRefUpdate, ref_name=branch),), (held,))
        self._shape(change, schema, made=False)
        self._add(change, brought, pointers, pipeline, branch)
        wider = change.table_metadata.current_schema_id
        if wider != meta.current_schema_id:  # main's readers keep their schema until step 3
            change.set_properties(unpublished(meta, change.table_metadata, pipeline))
            change._apply((_new(SetCurrentSchemaUpdate, schema_id=meta.current_schema_id),))
        change.commit_transaction()
        failpoint("commit.branch")
        table = self._opened().load_table(self._name)  # 2
        found = table.metadata.snapshot_by_name(branch)
        said = found.summary.additional_properties if found is not None and found.summary is not None else {}
        if found is None or said.get(f"{KEY}{pipeline}") != pointers[pipeline]:
            raise Overtaken(f"another commit replaced branch {branch}")
        paths = {location(self._data, file.name) for file in brought if isinstance(file, Brought)}
        failures = self._audit.failures(table, found.snapshot_id, paths)
        failpoint("commit.audit")
        if failures:
            raise AuditFailed(
                f"Iceberg {self.place}: the batch was not published: "
                + "; ".join(f"check {name}: {words}" for name, words in failures.items()),
                f"query branch {branch}, which has these rows until the next batch; fix the transform, or change into.audit",
            )
        updates: list[Any] = [  # 3
            _new(SetSnapshotRefUpdate, ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=found.snapshot_id),
            _new(RemoveSnapshotRefUpdate, ref_name=branch),
            _new(SetPropertiesUpdate, updates=_said(pointers, found.snapshot_id, schema)),
        ]
        if wider != meta.current_schema_id:
            updates.append(_new(SetCurrentSchemaUpdate, schema_id=wider))
            updates.append(_new(SetPropertiesUpdate, updates=published(table.metadata, wider, pipeline)))
        held_all = (
            _new(AssertTableUUID, uuid=meta.table_uuid),
            _new(AssertRefSnapshotId, ref="main", snapshot_id=head),
            _new(AssertRefSnapshotId, ref=branch, snapshot_id=found.snapshot_id),
            _new(AssertCurrentSchemaId, current_schema_id=meta.current_schema_id),
        )
        table.catalog.commit_table(table, held_all, tuple(updates))

    def branch(self, state: IcebergState, pipeline: str, seq: int) -> Snapshot | None:
        """Return the snapshot of the pipeline's branch if it is later than commit `seq`; None: it is obsolete."""
        found = state.table.metadata.snapshot_by_name(branch_of(pipeline))
        said = found.summary.additional_properties if found is not None and found.summary is not None else {}
        pointer = Pointer.read(said.get(f"{KEY}{pipeline}"))
        return found if pointer is not None and pointer.seq > seq else None

    def audited(self, state: IcebergState, pipeline: str, snapshot: Snapshot) -> Audited:
        """Check the rows that this snapshot of the branch added, by the current definition."""
        audit, table = self._audit or Audit({}), state.table
        rows, failed, unfit = audit.look(table, snapshot.snapshot_id, added(table, snapshot))
        failed.update({name: str(error) for name, error in unfit.items()})
        return Audited(branch_of(pipeline), str(snapshot.snapshot_id), rows, failed)

    def passed_since(self, state: IcebergState, pipeline: str) -> Mapping[str, int]:
        """Return by name the commit since which each batch of the pipeline passed a check; see `Auditing.passed_since`."""
        return (self._audit or Audit({})).since(state.pointers, pipeline)

    def rows(self, state: IcebergState, names: Sequence[str]) -> Any:
        """Return these columns of all rows as Arrow, for counting."""
        return state.table.scan(selected_fields=tuple(names)).to_arrow()

    def upkeep(self, state: IcebergState | None) -> None:
        """Expire the oldest snapshots if the table's properties limit their number: each makes every commit larger.

        Best effort: a concurrent commit only delays it. Deletes no files: operators remove orphan files with their tools.
        """
        if state is None:
            return
        meta = state.table.metadata
        keep = int(state.table.properties.get(_KEEP) or 0)
        if not keep or len(meta.snapshots) < keep + _AT_ONCE:
            return
        named = {ref.snapshot_id for ref in meta.refs.values()}
        oldest = sorted(meta.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)[:-keep]
        with suppress(Overtaken, *OVERTAKEN, *FAILURES):
            expire(state, [snapshot.snapshot_id for snapshot in oldest if snapshot.snapshot_id not in named])

    def _opened(self) -> Catalog:
        if self._catalog is None:
            self._catalog = self._catalogue.opened(self._folder)
        return self._catalog

    def _failed(self, error: Exception) -> DestinationError:
        found = self._catalogue.failed(error)
        return type(found)(f"Iceberg {self._name} cannot be read: {found.what}", found.hint)

    def _created(self, schema: _Schema) -> Transaction:
        catalog = self._opened()
        catalog.create_namespace_if_not_exists(self._namespace)
        return catalog.create_table_transaction(
            self._name,
            arrow_schema(schema.columns),
            location=location(self._table),
            properties={
                "commit.manifest-merge.enabled": "true",
                "write.metadata.delete-after-commit.enabled": "true",
                _KEEP: str(self.kept),
            },
        )


def _new(kind: Any, **fields: Any) -> Any:
    """Create a value of one of pyiceberg's types, untyped: their declared field names have hyphens, as in the format."""
    return kind(**fields)


def _said(pointers: Mapping[str, str], snapshot: int, schema: _Schema) -> dict[str, str]:
    """Return the table properties that change with each commit."""
    return {**copied(pointers, snapshot), TYPES: declared(schema.columns)}
