"""Parquet files in a folder; the newest manifest lists the files of the table.

    orders/NAME.parquet                 rows, for readers of all files in the folder
    orders/_files/NAME.parquet          rows before they are moved there; leftovers of failed batches
    orders/_manifest/VERSION.json       one for each commit; creating the name is the commit.
    orders/_manifest/files-VERSION.json all files up to that version, so that a manifest lists only later ones
    orders/_kpipe/                      the ledger files

A file is moved beside the others only after its manifest exists: readers of the folder never see uncommitted rows.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError, LedgerMismatch
from kpipe.ledger import format_version
from kpipe.provenance.facts import Query, Snapshot
from kpipe.schema.columns import Columns
from resources.destinations.lakehouse.data_files import Brought, bring
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.ledger_file import Pointer, Record
from resources.destinations.lakehouse.row_search import Condition, filtered
from resources.destinations.lakehouse.schema_evolution import grown
from resources.destinations.lakehouse.table_format import Overtaken
from resources.destinations.sql.column_matching import widening
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.arrow_types import staged_type
from resources.type_compatibility import COORDINATES

__all__ = ["STEPS", "ParquetFolder"]

_MANIFEST, _WAITING = "_manifest", "_files"
_ENTRY = re.compile(r"([0-9]{20})\.json")
_SUMMED = 64  # commits between two full lists of files: manifests stay small
_ALWAYS = Columns(tuple(COORDINATES)[:3])

#: Upgrades of manifests, by the format that each upgrades from; see `lakehouse/ledger_file.py`.
STEPS: dict[int, Callable[[dict[str, Any]], None]] = {0: format_version.unchanged, 1: format_version.unchanged}
Files = Mapping[str, int]  # number of rows by file name


@dataclass(frozen=True)
class _State:
    """The folder as a manifest describes it.

    Attributes:
        version: of the manifest.
        columns: all columns.
        pointers: of all pipelines, `seq:mark`.
        summed: version of the full list `older`; -1: no list yet.
        older: files in that list.
        newer: files since then.
    """

    version: int
    columns: Columns
    pointers: Mapping[str, str]
    summed: int = -1
    older: Files = field(default_factory=dict)
    newer: Files = field(default_factory=dict)

    def pointer(self, pipeline: str) -> Pointer | None:
        """Return the manifest's reference to the pipeline's ledger."""
        return Pointer.read(self.pointers.get(pipeline))

    def check(self, record: Record) -> None:
        """Do nothing: one manifest names rows and ledger, so they always match."""

    def __contains__(self, name: str) -> bool:
        return name in self.newer or name in self.older


class ParquetFolder:
    """A folder of Parquet files, on a local disk or in an object store.

    Args:
        folder: created at the first commit.
    """

    kind = "Parquet"
    kept = 32  # needed by slow readers only

    def __init__(self, folder: Folder) -> None:
        self._folder, self._waiting = folder, folder.below(_WAITING)
        self.ledger = folder.below("_kpipe")
        self._older: tuple[int, Files] = (-1, {})

    @property
    def place(self) -> str:
        """The folder."""
        return self._folder.place

    def load(self) -> _State | None:
        """Read the newest manifest; None: it does not exist.

        Raises:
            DestinationError: it cannot be read.
            LedgerMismatch: it, or its list of files, was not written by a commit.
            FormatTooNew: a newer kpipe wrote it.
        """
        versions = self._versions()
        if not versions:
            return None
        said = format_version.upgraded(self._read(f"{versions[-1]:020}.json"), f"{self.kind} {self.place}", STEPS)
        older = self._summed_up(said["summed"]) if said["summed"] >= 0 else {}
        columns = Columns.of(said["columns"])
        return _State(said["version"], columns, said["pointers"], said["summed"], older, said["files"])

    def prepare(self, state: _State | None, wanted: Columns) -> Columns:
        """Return the columns with these added; see `Table.prepare`."""
        known = state.columns if state is not None else Columns()
        return grown(known, widening(known, wanted if state is not None or wanted else _ALWAYS))

    def bring(self, schema: Columns, commit: Commit, staged: Sequence[Proven]) -> Sequence[Brought]:
        """Write staged files to the folder of uncommitted files; see `Table.bring`."""
        wanted = pa.schema([(name, staged_type(kind)) for name, kind in schema])
        return bring(self._waiting, wanted, schema, commit, staged)

    def land(self, state: _State | None, schema: Columns, brought: Sequence[Brought], record: Record, pointer: Pointer) -> None:
        """Create the next manifest; see `Table.land`."""
        version = record.base + 1
        summed, newer = (state.summed, dict(state.newer)) if state is not None else (-1, {})
        if state is not None and version % _SUMMED == 0:  # every writer writes the same bytes
            summed, newer = state.version, {}
            files = {**state.older, **state.newer}
            self._folder.write(f"{_MANIFEST}/files-{summed:020}.json", json.dumps({"files": files}).encode())
        pointers = dict(state.pointers) if state is not None else {}
        said = {
            format_version.MEMBER: format_version.FORMAT_VERSION,
            "version": version,
            "columns": {name: str(kind) for name, kind in schema},
            "pointers": {**pointers, record.pipeline: f"{pointer.seq}:{pointer.mark:016x}"},
            "summed": summed,
            "files": {**newer, **{file.name: file.rows for file in brought}},
            "commit": {"pipeline": record.pipeline, "batch": record.last, "time": time.time()},
        }
        if not self._folder.claim(f"{_MANIFEST}/{version:020}.json", json.dumps(said).encode()):
            raise Overtaken(f"version {version} exists")

    def rows(self, state: _State, names: Sequence[str]) -> Any:
        """Return the rows as Arrow, for counting."""
        kinds = {name.lower(): staged_type(kind) for name, kind in state.columns}
        schema = pa.schema([(name, kinds[name.lower()]) for name in names])
        files = (self._columns(name, names) for name in (*state.older, *state.newer))
        return pa.concat_tables([schema.empty_table(), *files], promote_options="default")

    def matching(self, state: _State, names: Sequence[str], where: Sequence[Condition], limit: int | None) -> pa.Table:
        """Return these columns of the rows that match, from one file after the other; see `Table.matching`."""
        kinds = {name: staged_type(kind) for name, kind in state.columns}
        schema = pa.schema([(name, kinds[name]) for name in dict.fromkeys([*names, *(name for name, _, _ in where)])])
        found, count = [schema.empty_table()], 0
        for name in (*state.older, *state.newer):
            if limit is not None and count >= limit:
                break
            table = pa.concat_tables([schema.empty_table(), self._columns(name, schema.names)], promote_options="default")
            found.append(filtered(table, where, limit))
            count += found[-1].num_rows
        return pa.concat_tables(found).slice(0, limit).select(list(names))

    def _columns(self, file: str, names: Sequence[str]) -> pa.Table:
        """Read these columns of a file, without those that were added later."""
        with self._opened(file) as stream:
            parquet = pq.ParquetFile(stream)
            return parquet.read([name for name in names if name in parquet.schema_arrow.names])

    def landed(self, state: _State, pipeline: str, seqs: Collection[int]) -> Mapping[int, Snapshot]:
        """Return nothing: readers of the folder always see all files; see `Table.landed`."""
        return {}

    def queries(self, state: _State | None, snapshot: Snapshot, condition: str) -> Sequence[Query]:
        """Return nothing; see `Table.queries`."""
        return ()

    def upkeep(self, state: _State | None) -> None:
        """Move files of the manifest beside the others, also those of a killed run; delete old manifests.

        Every step is idempotent and safe to run concurrently: a file is linked at its new place before the old one is deleted.
        """
        if state is None:
            return
        with suppress(DestinationError):
            ready = [name for name in self._waiting.names("") if name in state]
            for name in ready:
                self._folder.take(f"{self._waiting.place}/{name}", name)
            if ready:
                self._folder.settle()
            for name in ready:
                self._waiting.remove(name)
            if state.version % _SUMMED == 1:
                self._forget(state.version - _SUMMED)

    def _forget(self, before: int) -> None:
        """Delete manifests and lists before that version. A commit on such an old state cannot become the newest."""
        for version in self._versions():
            if version < before:
                self._folder.remove(f"{_MANIFEST}/{version:020}.json")
        lists = sorted(name for name in self._folder.names(_MANIFEST) if name.startswith("files-"))
        for name in lists[:-2]:
            self._folder.remove(f"{_MANIFEST}/{name}")

    def _versions(self) -> list[int]:
        matches = map(_ENTRY.fullmatch, self._folder.names(_MANIFEST))
        return sorted(int(match[1]) for match in matches if match is not None)

    def _summed_up(self, version: int) -> Files:
        if self._older[0] != version:
            self._older = version, self._read(f"files-{version:020}.json")["files"]
        return self._older[1]

    def _read(self, name: str) -> Any:
        data = self._folder.read(f"{_MANIFEST}/{name}")
        try:
            return json.loads(data or b"")
        except ValueError as error:
            what = "missing" if data is None else "not written by a commit"
            raise LedgerMismatch(f"{self.place}: {_MANIFEST}/{name} is {what}", "restore a backup of the folder") from error

    def _opened(self, name: str) -> Any:
        """Open a file at its final place, or at the one before; it may be moved meanwhile."""
        for folder in (self._folder, self._waiting, self._folder):
            with suppress(DestinationError):
                return folder.opened(name)
        raise DestinationError(f"{self.place}: {name} is missing, but the manifest lists it", "restore a backup of the folder")
