"""Read one version of a Delta or Iceberg table, file by file."""

# ruff: noqa: S608 - names are quoted; the text for the report is never executed
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from kpipe.audit.coordinates import Coordinates, Fields
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationError, InvalidPipeline
from resources import extras
from resources.audit.column_kinds import arrow_kind
from resources.audit.normalize import extract
from resources.audit.table_address import NoHome, TableAddress
from resources.duckdb_engine.sandbox import quote

__all__ = ["check_lake", "open_delta", "open_iceberg"]

_BATCH, _VALUES = 100_000, 10_000
#: Reader features of Delta that are supported, or do not change which rows a table has.
_FEATURES = frozenset({"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})


class _Delta:
    """One version of a Delta table."""

    def __init__(self, table: Any, folder: Any) -> None:
        from deltalake.exceptions import DeltaError

        self.name, self._table, self._errors = folder.place, table, (DeltaError, OSError, pa.ArrowException)
        self._folder = folder
        self.snapshot = f"version {table.version()}"
        features = set(table.protocol().reader_features or ())
        # Protocols below 3 list no features: there, a property shows that the names in the files are other ones.
        if str(table.metadata().configuration.get("delta.columnMapping.mode") or "none") != "none":
            features.add("columnMapping")
        if features - _FEATURES:
            raise DestinationError(
                f"{self.name} needs reader features that cannot be read: {', '.join(sorted(features - _FEATURES))}",
                "audit a copy without them: CREATE TABLE ... AS SELECT",
            )
        # PyArrow's reader takes less memory. It would return rows that deletion vectors have deleted.
        self._deleted = "deletionVectors" in features

    def transaction(self, application: str) -> int | None:
        """Return the newest version of an application's `txn` action; None: it has none."""
        found = self._table.transaction_version(application)
        return None if found is None else int(found)

    def fields(self) -> Fields:
        """See `OpenTable`."""
        return _fields(pa.schema(self._table.schema().to_arrow()))

    def batches(self, coordinates: Coordinates) -> Iterator[list[pa.Array]]:
        """See `OpenTable`."""
        for batch in self._read(list(dict.fromkeys(column.root for column in coordinates.all))):
            yield extract(batch, coordinates)

    def kinds(self) -> Mapping[str, str]:
        """See `OpenTable`."""
        return {field.name: arrow_kind(field.type) for field in pa.schema(self._table.schema().to_arrow())}

    def contents(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        """See `OpenTable`."""
        return self.values(names)

    def values(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """See `OpenTable`."""
        for batch in self._read(columns, _VALUES):
            yield [batch.column(name) for name in columns]

    def _read(self, roots: Sequence[str], size: int = _BATCH) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._queried(roots) if self._deleted else self._scanned(roots):
                for first in range(0, len(batch), size):
                    yield batch.slice(first, size)
        except self._errors as error:
            text = self._folder.hide(str(error))[:300]
            raise DestinationError(f"{self.name} cannot be read: {text}", "check that its files exist") from None

    def _scanned(self, roots: Sequence[str]) -> Iterator[pa.RecordBatch]:
        scanner = self._table.to_pyarrow_dataset().scanner(
            columns=list(roots), batch_size=_BATCH, batch_readahead=2, fragment_readahead=1
        )
        yield from scanner.to_batches()

    def _queried(self, roots: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from deltalake import QueryBuilder

        query = f"SELECT {', '.join(map(quote, roots))} FROM t"
        # pyarrow reads the stream without the interpreter's lock, unlike deltalake's own iterator.
        yield from pa.RecordBatchReader.from_stream(QueryBuilder().register("t", self._table).execute(query))

    def sql(self, coordinates: Coordinates) -> str:
        """See `OpenTable`."""
        return f"SELECT {_columns(coordinates)} FROM delta.`{self.name}`"

    def values_sql(self, columns: Sequence[str]) -> str:
        """See `OpenTable`."""
        return f"SELECT {', '.join(columns)} FROM delta.`{self.name}`"


@contextmanager
def open_delta(address: TableAddress) -> Iterator[_Delta]:
    """Open a version of a Delta table in a folder or in S3."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise extras.missing("--type delta", "deltalake", "delta", error=error) from error
    from resources.destinations.lakehouse_factory import open_folder

    folder = open_folder(_definition(address), NoHome())
    folder = folder.below(address.table) if address.table else folder
    try:
        table = DeltaTable(folder.place, version=address.snapshot, storage_options=folder.options())
    except (DeltaError, OSError, OverflowError) as error:
        what = "not a Delta table" if address.snapshot is None else f"no Delta table with version {address.snapshot}"
        raise DestinationError(
            f"{folder.place}: {what}: {folder.hide(str(error))[:300]}", "check --database, --table and --snapshot"
        ) from None
    yield _Delta(table, folder)


class _Iceberg:
    """One snapshot of an Iceberg table."""

    def __init__(self, table: Any, name: str, snapshot: int | None, hide: Callable[[str], str] = str) -> None:
        self.name, self._table, self._hide = name, table, hide
        found = table.snapshot_by_id(snapshot) if snapshot is not None else table.current_snapshot()
        if found is None and snapshot is not None:
            raise InvalidPipeline(f"{name}: --snapshot {snapshot} does not exist", "list them: the table's `snapshots` metadata")
        self._id = None if found is None else found.snapshot_id
        # Of a snapshot that is named, pyiceberg reads the columns as they were then; otherwise as they are now.
        self._named = snapshot
        self.snapshot = "no snapshot: the table is empty" if found is None else f"snapshot {found.snapshot_id}"

    def fields(self) -> Fields:
        """See `OpenTable`."""
        return _fields(self._table.scan(snapshot_id=self._named).projection().as_arrow())

    def batches(self, coordinates: Coordinates) -> Iterator[list[pa.Array]]:
        """See `OpenTable`."""
        for batch in self._read(tuple(str(item) if item.struct else item.root for item in coordinates.all)):
            yield extract(batch, coordinates)

    def kinds(self) -> Mapping[str, str]:
        """See `OpenTable`."""
        return {field.name: arrow_kind(field.type) for field in self._table.scan(snapshot_id=self._named).projection().as_arrow()}

    def contents(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        """See `OpenTable`."""
        return self.values(names)

    def values(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """See `OpenTable`."""
        for batch in self._read(tuple(columns), _VALUES):
            yield [batch.column(name) for name in columns]

    def _read(self, names: tuple[str, ...], size: int = _BATCH) -> Iterator[pa.RecordBatch]:
        """Read one data file at a time, with its deletes.

        Uses parts of pyiceberg that are not public: its own reader of batches reads all files at once.
        """
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files

        if self._id is None:
            return
        scan = self._table.scan(snapshot_id=self._named, selected_fields=names)
        try:
            for task in scan.plan_files():
                reader = ArrowScan(self._table.metadata, self._table.io, scan.projection(), AlwaysTrue())
                deletes = _read_all_delete_files(self._table.io, [task])
                for batch in reader._record_batches_from_scan_tasks_and_deletes([task], deletes):
                    for first in range(0, len(batch), size):
                        yield batch.slice(first, size)
        except (ValueError, OSError, NotImplementedError, pa.ArrowException) as error:
            text = self._hide(str(error))[:300]
            raise DestinationError(f"{self.name} cannot be read: {text}", "check that its files exist") from None

    def summaries(self) -> Iterator[Mapping[str, str]]:
        """Yield the properties of the snapshot and of its ancestors, newest first; expired ones are missing."""
        at = self._id
        while at is not None and (found := self._table.snapshot_by_id(at)) is not None:
            yield dict(found.summary.additional_properties) if found.summary is not None else {}
            at = found.parent_snapshot_id

    def sql(self, coordinates: Coordinates) -> str:
        """See `OpenTable`."""
        version = "" if self._id is None else f" VERSION AS OF {self._id}"
        return f"SELECT {_columns(coordinates)} FROM {self.name}{version}"

    def values_sql(self, columns: Sequence[str]) -> str:
        """See `OpenTable`."""
        return f"SELECT {', '.join(columns)} FROM {self.name}" + ("" if self._id is None else f" VERSION AS OF {self._id}")


@contextmanager
def open_iceberg(address: TableAddress) -> Iterator[_Iceberg]:
    """Open a snapshot of an Iceberg table: by its metadata file, or through a catalogue."""
    try:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
        from pyiceberg.exceptions import ValidationError as IcebergInvalid
        from pyiceberg.table import StaticTable

        from resources.destinations.iceberg.catalogue import FAILURES
        from resources.destinations.iceberg.durable import file_io
    except ImportError as error:
        raise extras.missing("--type iceberg", "pyiceberg", "iceberg", error=error) from error
    from resources.destinations.lakehouse_factory import open_catalogue

    if address.database.endswith(".metadata.json"):
        try:
            static = StaticTable.from_metadata(address.database)
        except FileNotFoundError:
            raise DestinationError(f"{address.database}: the file does not exist", "name the newest file of metadata/") from None
        except (*FAILURES, IcebergInvalid) as error:
            why = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise DestinationError(f"{address.database}: cannot be read: {why}", "name the newest file of metadata/") from None
        yield _Iceberg(static, address.database, address.snapshot)
        return
    if not address.table:
        raise InvalidPipeline("--table is missing", "name the table, or its file: --database .../metadata/NAME.metadata.json")
    folder, catalogue = open_catalogue(_definition(address), NoHome())
    name = (*address.namespace.split("."), *address.table.split("."))
    if not catalogue.exists():  # opening it would create one
        raise DestinationError(
            f"{address.database}: contains no catalogue", "name the table's newest .metadata.json, or --catalog"
        )
    try:
        table = catalogue.opened(folder).load_table(name)
        table.io = file_io(folder)
    except (NoSuchTableError, NoSuchNamespaceError):
        raise DestinationError(
            f"{'.'.join(name)}: the table does not exist in the catalogue", "check --namespace and --table"
        ) from None
    except FAILURES as error:
        raise catalogue.failed(error) from None
    yield _Iceberg(table, ".".join(name), address.snapshot, folder.hide)


def _columns(coordinates: Coordinates) -> str:
    return ", ".join(f"{column} AS `{name}`" for name, column in coordinates.named.items())


def _fields(schema: pa.Schema) -> Fields:
    return {field.name: [inner.name for inner in field.type] if pa.types.is_struct(field.type) else None for field in schema}


def check_lake(address: TableAddress) -> None:
    """Check the address without opening anything.

    Raises:
        InvalidPipeline: it is invalid, or contains a secret.
    """
    _definition(address)


def _definition(address: TableAddress) -> Pipeline:
    """Return the definition of a pipeline into the table, from which its folder and its catalogue are opened."""
    into = {
        "type": address.type,
        "database": address.database,
        "table": "audited",
        "credentials": dict(address.credentials),
        **({"namespace": address.namespace} if address.type == "iceberg" else {}),
        **({"catalog": address.catalog} if address.catalog else {}),
        **({"catalog_name": address.catalog_name} if address.catalog_name else {}),
    }
    source = {"brokers": "localhost", "topic": "audited"}
    try:
        return Pipeline.model_validate({"name": "audit", "source": source, "into": into})
    except ValidationError as error:
        text = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InvalidPipeline(f"the table's address: {text}", "see kpipe audit --help") from None
