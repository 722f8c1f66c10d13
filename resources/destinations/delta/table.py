"""Commit batches to a Delta table in a folder: add files and the next log entry."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError

from kpipe.batch.batch import Commit
from kpipe.definition.lakehouse_options import Part
from kpipe.errors import DestinationError, InvalidPipeline, SchemaConflict
from kpipe.schema.columns import Columns
from resources.destinations.delta import log
from resources.destinations.delta.keyed import Replaced, upgraded
from resources.destinations.delta.log import DeltaState
from resources.destinations.delta.removal import DeltaRemoval
from resources.destinations.delta.time_travel import DeltaTimeTravel
from resources.destinations.delta.types import arrow, columns_of, has_local_times, widened
from resources.destinations.lakehouse.data_files import Brought, bring
from resources.destinations.lakehouse.folder import Folder, LocalFolder
from resources.destinations.lakehouse.ledger_file import Pointer, Record
from resources.destinations.lakehouse.partitions import agreed
from resources.destinations.lakehouse.table_format import Overtaken
from resources.destinations.staged_file_check import Proven
from resources.type_compatibility import COORDINATES

__all__ = ["DeltaLake"]

_CHECKPOINT = 20  # versions between checkpoints: reading 20 entries costs less than writing checkpoints more often
# Writer versions that imply features: a table with table features would have to list these by name.
_LISTED = (3, 4, 5, 6)
# Columns that every pipeline has: a table must have columns, and the ledger is committed before the first record is read.
_ALWAYS = Columns(tuple(COORDINATES)[:3])


@dataclass(frozen=True)
class _Schema:
    """The table's schema after a commit.

    Attributes:
        fields: of Delta's schema.
        changed: whether the fields or the partition columns differ from the table's.
        parts: partition columns.
        version: of the table before the commit.
    """

    fields: list[dict[str, Any]]
    changed: bool
    parts: tuple[Part, ...] = ()
    version: int = -1

    @property
    def columns(self) -> Columns:
        """All columns, including coordinates."""
        return columns_of(self.fields, "Delta")


class DeltaLake(DeltaTimeTravel, DeltaRemoval):
    """A Delta table in a folder, on a disk or in an object store.

    Args:
        folder: created by the first commit; a path is local.
        parts: partition columns of a table that kpipe creates.

    Raises:
        InvalidPipeline: Delta has partition columns only, no transforms.
    """

    kind = "Delta"
    kept = 32  # only slow readers need superseded ledger files: a restored table keeps the newest ledger

    def __init__(self, folder: Folder | Path, parts: Sequence[Part] = ()) -> None:
        for part in parts:
            if part.unit:
                raise InvalidPipeline(
                    f"into.partition_by: {part}: Delta has no partition transforms: expected a column",
                    f"set: {{{part.unit}: date_trunc('{part.unit}', {part.column})::DATE}}, and into.partition_by: [{part.unit}]",
                )
        self._parts = tuple(parts)
        self._folder: Folder = LocalFolder(folder.expanduser().resolve()) if isinstance(folder, Path) else folder
        # Delta's tools, including VACUUM, ignore names that begin with an underscore.
        self.ledger = self._folder.below("_kpipe")
        self._last: DeltaState | None = None

    @property
    def place(self) -> str:
        """The folder."""
        return self._folder.place

    def load(self) -> DeltaState | None:
        """Load the newest version; None: the table does not exist.

        Raises:
            DestinationError: it cannot be read, or has properties that kpipe does not support.
        """
        state = (self._last.followed() if self._last is not None else None) or log.load(self._folder)
        self._last = state
        if state is not None:
            log.check_writable(state, self.place)
        return state

    def prepare(self, state: DeltaState | None, wanted: Columns) -> _Schema:
        """Return the table's schema with these columns; see `Table.prepare`."""
        known = list(state.about.fields) if state is not None else []
        fields = widened(known, wanted if state is not None or wanted else _ALWAYS, self.place)
        payload = columns_of(known, self.place).without(COORDINATES.names())
        if not payload:  # the table has no rows, only a ledger: payload columns come first
            fields = sorted(fields, key=lambda field: field["name"] in COORDINATES)
        has = [Part(name) for name in state.about.partitions] if state is not None else []
        names = [field["name"] for field in fields]
        parts = agreed(has, self._parts, not payload, names, f"Delta {self.place}")
        if parts and len(parts) == len(fields):
            raise DestinationError(
                f"Delta {self.place}: into.partition_by names all columns: expected a column that is not in it", "remove one"
            )
        return _Schema(fields, fields != known or list(parts) != has, parts, state.version if state is not None else -1)

    def bring(self, schema: _Schema, commit: Commit, staged: Sequence[Proven]) -> Sequence[Brought]:
        """Write staged files into the table's folder; see `Table.bring`."""
        wanted = pa.schema([(field["name"], arrow(field["type"])) for field in schema.fields])
        return bring(self._folder, wanted, columns_of(schema.fields, self.place), commit, staged, schema.parts, schema.version)

    def land(self, state: DeltaState | None, schema: _Schema, brought: Sequence[Any], record: Record, pointer: Pointer) -> None:
        """Commit the next log entry; see `Table.land`."""
        replaced = [file for file in brought if isinstance(file, Replaced)]
        actions = [self._about(state, record, replaces=bool(replaced)), *self._described(state, schema, replaced)]
        actions += [action for file in replaced for action in file.actions]
        said = {**log.transactions(record.pipeline, pointer), **({log.KEYED: 1} if record.balance is not None else {})}
        actions += [{"txn": {"appId": name, "version": version}} for name, version in said.items()]
        kinds = {field["name"]: field["type"] for field in schema.fields}
        divided = {part.column: kinds[part.column] for part in schema.parts}
        actions += [log.add(file, divided) for file in brought if isinstance(file, Brought)]
        data = b"".join(json.dumps(action, separators=(",", ":")).encode() + b"\n" for action in actions)
        version = record.base + 1
        if not self._folder.claim(log.entry_name(version), data):
            raise Overtaken(f"another commit created version {version}")

    def _described(self, state: DeltaState | None, schema: _Schema, replaced: Sequence[Replaced]) -> list[dict[str, Any]]:
        """Return the actions of protocol and metadata, if they change."""
        about = state.about if state is not None else None
        protocols = [{"protocol": log.protocol(schema.fields)}]
        if state is not None:
            protocols = _upgraded(state, schema) if schema.changed else []
        settings = dict(about.settings) if about is not None else {}
        if any(file.vector is not None for file in replaced):
            made = protocols[0]["protocol"] if protocols else {}
            action, settings = upgraded(about, made, self.place)
            protocols = [{"protocol": action}] if action is not None else protocols
        if about is None or schema.changed or settings != about.settings:
            return [*protocols, {"metaData": self._meta(state, schema, settings)}]
        return protocols

    def rows(self, state: DeltaState, names: Sequence[str]) -> Any:
        """Return these columns of all rows as Arrow, for counting."""
        table = state.opened()
        try:
            # A table, not a dataset: DuckDB's filter IS NOT NULL on a dataset returns rows of files without the column
            # (deltalake 1.6.6 with pyarrow 26).
            return table.to_pyarrow_dataset().to_table(columns=list(names))
        except (DeltaError, NotImplementedError, ValueError):  # for example deletion vectors, which the query engine supports
            asked = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
            found = QueryBuilder().register("t", table).execute(f"SELECT {asked} FROM t")  # noqa: S608 - quoted
            # pyarrow reads the stream without the interpreter's lock; `found.read_all()` would stop all threads meanwhile.
            return pa.RecordBatchReader.from_stream(found).read_all()

    def upkeep(self, state: DeltaState | None) -> None:
        """Write a checkpoint every `_CHECKPOINT` versions; best effort, and several writers do not conflict."""
        if state is not None and state.version % _CHECKPOINT == 0 and state.version:
            with suppress(DeltaError, OSError, DestinationError):
                state.opened().create_checkpoint()

    def _about(self, state: DeltaState | None, record: Record, replaces: bool) -> dict[str, Any]:
        """Return the commitInfo action, for operators and other tools."""
        said = {"pipeline": record.pipeline, "seq": record.seq, "batch": record.last}
        return {
            "commitInfo": {
                "timestamp": int(time.time() * 1000),
                "operation": "MERGE" if replaces else "WRITE" if state is not None else "CREATE TABLE",
                "operationParameters": {} if replaces else {"mode": "Append"},
                # Rows with a key depend on the keys that were there: other writers must see that they read the table.
                "isBlindAppend": not replaces and record.balance is None,
                "engineInfo": "kpipe",
                "kpipe": json.dumps(said),
            }
        }

    def _meta(self, state: DeltaState | None, schema: _Schema, settings: Mapping[str, str]) -> dict[str, Any]:
        known = state.about if state is not None else None
        return {
            "id": known.id if known else str(uuid.uuid4()),
            **({"name": known.name} if known and known.name else {}),
            **({"description": known.description} if known and known.description else {}),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": schema.fields}),
            "partitionColumns": [part.column for part in schema.parts],
            "configuration": dict(settings),
            "createdTime": known.created if known else int(time.time() * 1000),
        }


def _upgraded(state: DeltaState, schema: _Schema) -> list[dict[str, Any]]:
    """Return the protocol action that adds timestampNtz; empty if the new fields do not need it, or the table has it.

    Raises:
        SchemaConflict: the table's writer version cannot be raised.
    """
    about = state.about
    new = any(has_local_times(field["type"]) for field in schema.fields)
    if not new or "timestampNtz" in about.writes:
        return []
    if about.writer in _LISTED:
        raise SchemaConflict(
            f"the Delta table has writer version {about.writer}: a TIMESTAMP column needs the table feature timestampNtz",
            "declare TIMESTAMP WITH TIME ZONE, or add the table feature timestampNtz to the table",
        )
    made = log.protocol(schema.fields)
    return [
        {
            "protocol": {
                **made,
                "readerFeatures": sorted({*about.reads, *made["readerFeatures"]}),
                "writerFeatures": sorted({*about.writes, *made["writerFeatures"]}),
            }
        }
    ]
