"""Parquet files in a folder, and manifests of which the newest says what is in the table.

    orders/NAME.parquet                 rows, for whoever reads all files of the folder
    orders/_files/NAME.parquet          the same, until they have been put there; and litter of batches that failed
    orders/_manifest/VERSION.json       one for each commit; its name is claimed, so of two that are made upon one state one lands
    orders/_manifest/files-VERSION.json all files up to that version, so that a manifest has to name those since then only
    orders/_kpipe/                      the ledger's files

A file stands beside the others only after the manifest that names it: no reader of the folder sees rows that are not committed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError, LedgerMismatch
from kpipe.schema.columns import Columns
from resources.destinations.lakehouse.data_files import Brought, bring
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.ledger_file import Pointer, Record
from resources.destinations.lakehouse.table_format import Overtaken
from resources.destinations.lakehouse.type_widening import grown
from resources.destinations.sql.column_matching import widening
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.arrow_types import staged_type
from resources.type_compatibility import COORDINATES

__all__ = ["ParquetFolder"]

_MANIFEST, _WAITING = "_manifest", "_files"
_ENTRY = re.compile(r"([0-9]{20})\.json")
_SUMMED = 64  # commits after which all files are written down once more: a manifest stays small, and few are looked through
_ALWAYS = Columns(tuple(COORDINATES)[:3])

Files = Mapping[str, int]  # rows by name


@dataclass(frozen=True)
class _State:
    """The folder as a manifest says it is.

    Attributes:
        version: of the manifest.
        columns: all columns.
        pointers: of all pipelines, `seq:mark`.
        summed: version up to which `older` holds all files; -1 for none.
        older: those.
        newer: files since then.
    """

    version: int
    columns: Columns
    pointers: Mapping[str, str]
    summed: int = -1
    older: Files = field(default_factory=dict)
    newer: Files = field(default_factory=dict)

    def pointer(self, pipeline: str) -> Pointer | None:
        """What the manifest says of the pipeline."""
        return Pointer.read(self.pointers.get(pipeline))

    def check(self, record: Record) -> None:
        """Rows and ledger are named by one manifest, so there is nothing more to prove."""

    def __contains__(self, name: str) -> bool:
        return name in self.newer or name in self.older


class ParquetFolder:
    """A folder of Parquet files, on a disk or in an object store.

    Args:
        folder: made at the first commit.
    """

    kind = "Parquet"
    kept = 32  # only readers that are slow come late

    def __init__(self, folder: Folder) -> None:
        self._folder, self._waiting = folder, folder.below(_WAITING)
        self.ledger = folder.below("_kpipe")
        self._older: tuple[int, Files] = (-1, {})

    @property
    def place(self) -> str:
        """The folder."""
        return self._folder.place

    def load(self) -> _State | None:
        """What the newest manifest says; None where there is none.

        Raises:
            DestinationError: it cannot be read.
            LedgerMismatch: it, or the list of files that it names, is not what a commit has left.
        """
        versions = self._versions()
        if not versions:
            return None
        said = self._read(f"{versions[-1]:020}.json")
        older = self._summed_up(said["summed"]) if said["summed"] >= 0 else {}
        columns = Columns.of(said["columns"])
        return _State(said["version"], columns, said["pointers"], said["summed"], older, said["files"])

    def prepare(self, state: _State | None, wanted: Columns) -> Columns:
        """The columns with these; see `Table.prepare`."""
        known = state.columns if state is not None else Columns()
        return grown(known, widening(known, wanted if state is not None or wanted else _ALWAYS))

    def bring(self, schema: Columns, commit: Commit, staged: Sequence[Proven]) -> Sequence[Brought]:
        """Make staged files the folder's own, where nobody looks; see `Table.bring`."""
        wanted = pa.schema([(name, staged_type(kind)) for name, kind in schema])
        return bring(self._waiting, wanted, schema, commit, staged)

    def land(self, state: _State | None, schema: Columns, brought: Sequence[Brought], record: Record, pointer: Pointer) -> None:
        """Claim the next manifest's name; see `Table.land`."""
        version = record.base + 1
        summed, newer = (state.summed, dict(state.newer)) if state is not None else (-1, {})
        if state is not None and version % _SUMMED == 0:  # the same bytes, whoever writes them
            summed, newer = state.version, {}
            files = {**state.older, **state.newer}
            self._folder.write(f"{_MANIFEST}/files-{summed:020}.json", json.dumps({"files": files}).encode())
        pointers = dict(state.pointers) if state is not None else {}
        said = {
            "version": version,
            "columns": {name: str(kind) for name, kind in schema},
            "pointers": {**pointers, record.pipeline: f"{pointer.seq}:{pointer.mark:016x}"},
            "summed": summed,
            "files": {**newer, **{file.name: file.rows for file in brought}},
            "commit": {"pipeline": record.pipeline, "batch": record.last, "time": time.time()},
        }
        if not self._folder.claim(f"{_MANIFEST}/{version:020}.json", json.dumps(said).encode()):
            raise Overtaken(f"version {version} was taken")

    def rows(self, state: _State, names: Sequence[str]) -> Any:
        """The rows as Arrow, for counting."""
        kinds = {name.lower(): staged_type(kind) for name, kind in state.columns}
        schema = pa.schema([(name, kinds[name.lower()]) for name in names])
        found = [schema.empty_table()]
        for name in (*state.older, *state.newer):
            with self._opened(name) as stream:
                found.append(pq.read_table(stream, columns=list(names)))
        return pa.concat_tables(found, promote_options="default")

    def upkeep(self, state: _State | None) -> None:
        """Show files that the manifest names, also those of a run that was killed before; forget manifests of long ago.

        Every step can be done twice, and by two at once: a file is beside the others before it leaves where it waited.
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
        """Manifests, and lists that only they name. Who comes with a claim from so long ago is not the newest by it."""
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
            what = "missing" if data is None else "not what a commit has left"
            raise LedgerMismatch(f"{self.place}: {_MANIFEST}/{name} is {what}", "restore a backup of the folder") from error

    def _opened(self, name: str) -> Any:
        """The file where it is shown, or where it waits; it may move meanwhile."""
        for folder in (self._folder, self._waiting, self._folder):
            with suppress(DestinationError):
                return folder.opened(name)
        raise DestinationError(f"{self.place}: {name} is gone, and the manifest names it", "restore a backup of the folder")
