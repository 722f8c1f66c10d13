"""The table: what is in it, and how it changes all at once (resources/destinations/lakehouse/table_format.py).

FOLDER/catalogue.sqlite   version, columns, the files that are rows, and of each pipeline where its ledger is
FOLDER/*.parquet          rows; those that the catalogue does not name are nobody's
FOLDER/_kpipe/            the ledger's own files, which kpipe writes
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns
from resources.destinations.lakehouse.data_files import Brought, bring
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.ledger_file import Pointer, Record
from resources.destinations.lakehouse.schema_evolution import grown
from resources.destinations.lakehouse.table_format import Overtaken
from resources.destinations.sql.column_matching import widening
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.arrow_types import staged_type
from resources.type_compatibility import COORDINATES

__all__ = ["Shelf"]

_ALWAYS = Columns(tuple(COORDINATES)[:3])
_TABLES = """
CREATE TABLE IF NOT EXISTS state (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER, columns TEXT);
CREATE TABLE IF NOT EXISTS pointers (pipeline TEXT PRIMARY KEY, seq INTEGER, mark TEXT);
CREATE TABLE IF NOT EXISTS files (name TEXT PRIMARY KEY);
"""


@dataclass(frozen=True)
class State:
    """The shelf as the catalogue says it is."""

    version: int
    columns: Columns
    pointers: Mapping[str, Pointer]
    files: Sequence[str]

    def pointer(self, pipeline: str) -> Pointer | None:
        return self.pointers.get(pipeline)

    def check(self, record: Record) -> None:
        """Rows and ledger are named by one transaction, so there is nothing more to prove."""


class Shelf:
    """One table."""

    kind = "Shelf"
    kept = 8  # for how many commits a file of the ledger stays that a newer one has replaced

    def __init__(self, folder: Path) -> None:
        self._path, self._folder = folder, LocalFolder(folder)
        self.ledger = self._folder.below("_kpipe")

    @property
    def place(self) -> str:
        return str(self._path)

    def load(self) -> State | None:
        """The newest state, through a fresh look."""
        if not (self._path / "catalogue.sqlite").exists():
            return None
        with self._catalogue() as catalogue:
            catalogue.execute("BEGIN")  # all of it is of one moment
            found = catalogue.execute("SELECT version, columns FROM state").fetchone()
            if found is None:
                return None
            pointers = catalogue.execute("SELECT pipeline, seq, mark FROM pointers").fetchall()
            files = [name for (name,) in catalogue.execute("SELECT name FROM files ORDER BY rowid")]
        known = {pipeline: Pointer(seq, int(mark, 16)) for pipeline, seq, mark in pointers}
        return State(found[0], Columns.of(json.loads(found[1])), known, files)

    def prepare(self, state: State | None, wanted: Columns) -> Columns:
        """The columns with these; `widening` refuses those that cannot be."""
        known = state.columns if state is not None else Columns()
        return grown(known, widening(known, wanted if state is not None or wanted else _ALWAYS))

    def bring(self, schema: Columns, commit: Commit, staged: Sequence[Proven]) -> Sequence[Brought]:
        """Files that the catalogue does not name yet."""
        wanted = pa.schema([(name, staged_type(kind)) for name, kind in schema])
        return bring(self._folder, wanted, schema, commit, staged)

    def land(self, state: State | None, schema: Columns, brought: Sequence[Brought], record: Record, pointer: Pointer) -> None:
        """One transaction of SQLite, upon that very state or not at all."""
        self._path.mkdir(parents=True, exist_ok=True)
        columns = json.dumps({name: str(kind) for name, kind in schema})
        with self._catalogue() as catalogue:
            catalogue.executescript(_TABLES)
            catalogue.execute("BEGIN IMMEDIATE")
            if state is None:
                done = catalogue.execute("INSERT OR IGNORE INTO state VALUES (1, 0, ?)", [columns])
            else:
                change = "UPDATE state SET version = version + 1, columns = ? WHERE version = ?"
                done = catalogue.execute(change, [columns, state.version])
            if done.rowcount != 1:
                raise Overtaken(f"version {state.version if state else -1} is not the newest any more")
            catalogue.executemany("INSERT INTO files VALUES (?)", [(file.name,) for file in brought])
            catalogue.execute(
                "INSERT OR REPLACE INTO pointers VALUES (?, ?, ?)", [record.pipeline, pointer.seq, f"{pointer.mark:x}"]
            )
            catalogue.execute("COMMIT")

    def rows(self, state: State, names: Sequence[str]) -> Any:
        """For counting."""
        schema = pa.schema([(name, staged_type(kind)) for name, kind in state.columns])
        wanted = pa.schema([schema.field(name) for name in names])
        files = [pq.read_table(self._path / name, columns=list(names)) for name in state.files]
        return pa.concat_tables([wanted.empty_table(), *files], promote_options="default")

    def upkeep(self, state: State | None) -> None:
        """Nothing: SQLite looks after itself."""

    @contextmanager
    def _catalogue(self) -> Iterator[sqlite3.Connection]:
        """A fresh connection; what it has not committed when it closes is rolled back."""
        with closing(sqlite3.connect(self._path / "catalogue.sqlite", timeout=30, isolation_level=None)) as catalogue:
            catalogue.execute("PRAGMA synchronous = FULL")
            yield catalogue
