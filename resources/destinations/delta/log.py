"""Read a Delta table's log with the deltalake library, and build the next log entry.

kpipe writes entries itself, as only this combines three properties (findings 1 to 4 of the library's contract tests):

- Rows, new columns and the ledger are in one entry.
- The entry is made on top of exactly the state that was read.
- No retry happens without kpipe.

Source of the entries' format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kpipe.errors import DestinationError, LedgerMismatch, SchemaConflict
from kpipe.schema.columns import Columns
from resources.destinations.delta.restores import LastCommit, transaction
from resources.destinations.delta.table_metadata import Table, of_meta, of_protocol
from resources.destinations.delta.types import columns_of, has_local_times
from resources.destinations.lakehouse.data_files import Brought, day
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.ledger_file import Pointer, Record, lane_id

__all__ = [
    "KEYED", "DeltaState", "add", "check_writable", "entry_name", "load", "protocol", "transaction", "transactions",
]  # fmt: skip

#: Table features that allow entries which only add files.
_FEATURES = {
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns", "columnMapping",
    "deletionVectors", "timestampNtz", "domainMetadata", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening",
}  # fmt: skip
_LOG = "_delta_log"
#: Application transaction of a table that was written with a key; no pipeline's name.
KEYED = "kpipe::keyed"


def transactions(pipeline: str, pointer: Pointer) -> dict[str, int]:
    """Return the application transactions of a pipeline: sequence number, checksum of the ledger file, and every lane."""
    lanes = {transaction(pipeline, f"lane:{name}"): to for name, to in pointer.lanes.items()}
    return {transaction(pipeline, "seq"): pointer.seq, transaction(pipeline, "record"): pointer.mark, **lanes}


def entry_name(version: int) -> str:
    """Return the name of a version's log entry."""
    return f"{_LOG}/{version:020}.json"


def add(file: Brought, divided: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the action that adds a file to the table.

    Args:
        file: in the table's folder.
        divided: partition columns with their Delta types.

    Raises:
        SchemaConflict: Delta cannot represent a partition value exactly.
    """
    held = {"minValues": file.low, "maxValues": file.high, "nullCount": file.nulls}
    parts = divided or {}
    told = {kind: {name: end for name, end in ends.items() if name not in parts} for kind, ends in held.items()}
    return {
        "add": {
            "path": quote(file.name),
            "partitionValues": {
                name: _text(name, kind, value) for (name, kind), value in zip(parts.items(), file.values, strict=True)
            },
            "size": file.size,
            "modificationTime": file.modified,
            "dataChange": True,
            "stats": json.dumps({"numRecords": file.rows, **told}),
        }
    }


def _text(name: str, kind: Any, value: Any) -> str | None:
    """Return a partition value as the protocol writes it."""
    text = day(value) if kind == "date" and value is not None else value
    if value is not None and text is None:
        raise SchemaConflict(
            f"column {name}: invalid partition value: expected a date in years 1 to 9999",
            f"remove it from into.partition_by, or add to the definition: where: year({name}) BETWEEN 1 AND 9999",
        )
    return _named(name, text)


def _named(name: str, value: Any) -> str | None:
    if value == "":
        raise SchemaConflict(
            f"column {name}: invalid partition value: Delta cannot distinguish an empty text from NULL",
            f"add to the definition: set: {{{name}: NULLIF({name}, '')}}",
        )
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def protocol(fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the protocol action of a new table: the features that readers and writers must support."""
    if not any(has_local_times(field["type"]) for field in fields):
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz", "appendOnly", "invariants"]}
    return {"minReaderVersion": 3, "minWriterVersion": 7, **features}


class DeltaState:
    """A Delta table at one version: the state that the library read once, and later entries.

    The cost of reading entries does not depend on the number of the table's files; the library reads all files each time.

    Args:
        folder: of the table.
        base: the state that the library read.
        version: of this state.
        about: the table's metadata.
        `said`: application transactions that were read, from the base and from later entries; None: the log has none.
        commits: last commits of pipelines whose part of the log was read.
    """

    def __init__(
        self,
        folder: Folder,
        base: DeltaTable,
        version: int,
        about: Table,
        said: dict[str, int | None],
        commits: Mapping[str, LastCommit] | None = None,
    ) -> None:
        self._folder, self._base, self._version, self.about, self._said = folder, base, version, about, said
        self._commits = dict(commits or {})
        self._entry = folder.look(entry_name(version))

    @property
    def is_keyed(self) -> bool:
        """Return whether some pipeline has written the table with a key."""
        return self._transaction(KEYED) is not None

    @property
    def version(self) -> int:
        """The table's version."""
        return self._version

    @property
    def entry(self) -> tuple[int, int, str] | None:
        """Identity of the version's log entry: a folder that was restored has others of the same number; None: unknown."""
        return self._entry

    @property
    def columns(self) -> Columns:
        """All columns, including coordinates."""
        return columns_of(self.about.fields, self._folder.place)

    def opened(self) -> DeltaTable:
        """Open this version with the library.

        Raises:
            DestinationError: it cannot be read.
        """
        try:
            return DeltaTable(self._folder.place, version=self._version, storage_options=self._folder.options())
        except (DeltaError, OSError, ValueError) as error:
            raise _unreadable(self._folder, error) from error

    def followed(self) -> DeltaState | None:
        """Read the entries since this version, and return the newest state; None: the log was replaced, or entries are missing.

        Entries are missing after a checkpoint, when they were cleaned up.
        """
        if self._entry is None or self._folder.look(entry_name(self._version)) != self._entry:
            return None
        version, about, said, commits = self._version, self.about, dict(self._said), dict(self._commits)
        while (data := self._folder.read(entry_name(version + 1))) is not None:
            version += 1
            actions = _actions(data)
            commits = {pipeline: commit.after(actions) for pipeline, commit in commits.items()}
            for action in actions:
                if "txn" in action:
                    said[action["txn"]["appId"]] = action["txn"]["version"]
                elif "metaData" in action:
                    about = replace(about, **of_meta(action["metaData"]))
                elif "protocol" in action:
                    about = replace(about, **of_protocol(action["protocol"]))
        summed = self._folder.read(f"{_LOG}/_last_checkpoint")
        if summed and json.loads(summed)["version"] > version:  # entries after this version were cleaned up
            return None
        return DeltaState(self._folder, self._base, version, about, said, commits)

    def _transaction(self, name: str) -> int | None:
        """Return the newest version of an application transaction. The base is read for each name once, also by later states.

        The library replays the base's log. Its entries may be cleaned up later, and its credentials expire.
        """
        if name not in self._said:
            try:
                self._said[name] = self._base.transaction_version(name)
            except (DeltaError, OSError, ValueError) as error:
                raise _unreadable(self._folder, error) from error
        return self._said[name]

    def pointer(self, pipeline: str) -> Pointer | None:
        """Return the log's reference to the pipeline's ledger; None: the pipeline never committed here.

        Raises:
            LedgerMismatch: the log contains only one of its two application transactions.
        """
        seq, mark = self._transaction(transaction(pipeline, "seq")), self._transaction(transaction(pipeline, "record"))
        if seq is None and mark is None:
            return None
        if seq is None or mark is None:
            raise LedgerMismatch(
                f"pipeline {pipeline}: the log of {self._folder.place} was changed by hand: one of two ledger transactions is"
                " missing",
                "restore a backup; or use another pipeline name, with source.start at the end of the table",
            )
        return Pointer(seq, mark)

    def check(self, record: Record) -> None:
        """Check that the table was not restored to a version before the pipeline's last commit.

        A restore removes rows but keeps application transactions, so the ledger alone does not show it.

        Raises:
            LedgerMismatch: the table was restored, or the lanes in the log differ from the ledger file.
        """
        self._check_lanes(record)
        commit = self._last_commit(record)
        if commit.by_time and not commit.whole:
            raise LedgerMismatch(
                f"pipeline {record.pipeline}: {self._folder.place} was restored to {commit.restored}: the log does not show"
                f" whether the table contains the pipeline's last commit (version {commit.made})",
                f"restore it by number to version {commit.made}; or start again with another pipeline name",
            )
        if not commit.whole:
            raise LedgerMismatch(
                f"pipeline {record.pipeline}: {self._folder.place} was restored to {commit.restored}, without the pipeline's last"
                f" commit (version {commit.made}): rows recorded in the ledger are missing from the table",
                f"restore it to version {commit.made}; or start again with another pipeline name",
            )

    def _last_commit(self, record: Record) -> LastCommit:
        """Return the pipeline's last commit as this version shows it. Each entry is read once, also by later states."""
        commit = self._commits.get(record.pipeline)
        if commit is None or commit.base != record.base:
            commit = LastCommit.of(record)
        while commit.read < self.version:
            data = self._folder.read(entry_name(commit.read + 1))
            commit = commit.after(_actions(data) if data is not None else None)
        self._commits[record.pipeline] = commit
        return commit

    def _check_lanes(self, record: Record) -> None:
        """Check that each lane has the same next offset in the log and in the ledger file."""
        for lane in record.lanes.values():
            said = self._transaction(transaction(record.pipeline, f"lane:{lane_id(lane)}"))
            if said != lane.next:
                raise LedgerMismatch(
                    f"pipeline {record.pipeline}: the log of {self._folder.place} was changed by hand: lane {lane_id(lane)}"
                    f": expected next offset {lane.next}, found {said}",
                    "restore a backup; or use another pipeline name, with source.start at the end of the table",
                )


def _actions(entry: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in entry.splitlines()]


def load(folder: Folder) -> DeltaState | None:
    """Load the newest version; None: the folder has no log.

    Raises:
        DestinationError: it cannot be read.
    """
    if not any(name.endswith(".json") for name in folder.names(_LOG)):
        return None
    try:
        table = DeltaTable(folder.place, storage_options=folder.options())
        meta, protocol = table.metadata(), table.protocol()
        about = Table(
            str(meta.id),
            meta.name,
            meta.description,
            meta.created_time,
            json.loads(table.schema().to_json())["fields"],
            meta.partition_columns,
            meta.configuration,
            protocol.min_writer_version,
            protocol.reader_features or (),
            protocol.writer_features or (),
        )
        return DeltaState(folder, table, int(table.version()), about, {KEYED: table.transaction_version(KEYED)})
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        raise _unreadable(folder, error) from error


def _unreadable(folder: Folder, error: Exception) -> DestinationError:
    folder.look(entry_name(0))  # raises the store's own error if it does not answer
    return DestinationError(
        f"Delta {folder.place} cannot be read: {folder.hide(str(error))}",
        "check its _delta_log, or restore a backup of the folder",
    )


def check_writable(state: DeltaState, place: str) -> None:
    """Reject a table with a property that prevents adding files, or that expires the ledger.

    Raises:
        DestinationError: names the property.
    """
    about, settings = state.about, state.about.settings
    refused = {
        "delta.setTransactionRetentionDuration, which expires the ledger": "delta.setTransactionRetentionDuration" in settings,
        "column mapping": settings.get("delta.columnMapping.mode", "none") != "none",
        "commit timestamps in the log": settings.get("delta.enableInCommitTimestamps") == "true",
        "row tracking": settings.get("delta.enableRowTracking") == "true",
        "a constraint": any(name.startswith("delta.constraints.") for name in settings),
        "generated or identity columns, or invariants": any(
            name.startswith(("delta.generationExpression", "delta.identity", "delta.invariants"))
            for field in about.fields
            for name in field.get("metadata") or {}
        ),
        "a NOT NULL column": any(not field["nullable"] for field in about.fields),
    }
    unknown = set(about.writes) - _FEATURES
    refused |= {f"table feature {name}": True for name in sorted(unknown)}
    refused[f"writer version {about.writer}"] = about.writer > 7
    for what, found in refused.items():
        if found:
            raise DestinationError(
                f"Delta {place}: not supported: {what}",
                "change the table's properties, or choose another table",
            )
