"""Merge a batch with a key into a table format: copy the rows of its keys into DuckDB, merge them there, and write files.

DuckDB's merge (resources/destinations/duckdb/upsert.py) decides what becomes of each write, as in a DuckDB table. Its table has
only the rows that the batch may change, with their file and position (matched_rows.py).
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns, ListOf, MapOf, Scalar, Struct, Type
from kpipe.topics import Part
from kpipe.verification.recount import Adopted
from kpipe.verification.verify import Holding
from resources.destinations.arrow_types import cast
from resources.destinations.duckdb.upsert import DUPLICATES, merge
from resources.destinations.lakehouse.durable_parquet import durable_writer
from resources.destinations.lakehouse.keyed.key_index import KeyIndex
from resources.destinations.lakehouse.keyed.matched_rows import AT, FILE, MATCHED, MatchedRows
from resources.destinations.lakehouse.live_files import Deleting, LiveFile
from resources.destinations.sql.ledger.adopted import foreign
from resources.destinations.sql.ledger.opening_balance import has_unplaced
from resources.destinations.sql.ledger.row_balance import NOWHERE
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.arrow_types import staged_type
from resources.duckdb_engine.file_connection import Connection, quote
from resources.duckdb_engine.mysql_functions import register
from resources.duckdb_engine.sandbox import closed, literal
from resources.duckdb_engine.sql_types import sql_type
from resources.durable_files import make_folder
from resources.object_store.open_file import opened
from resources.object_store.uri import is_remote

__all__ = ["LETTERS", "MergeSession", "Merged", "is_damage"]

_GONE, _EMPTIED = "temp.kpipe_gone", "temp.kpipe_emptied"
_INDEX = "index.duckdb"
_BUSY = ("Could not set lock", "file handle conflict", "already attached")  # in DuckDB's errors
_OLD_S = 86_400  # age of folders of killed runs that are removed
_DAMAGE = (duckdb.IOException, duckdb.InternalException, duckdb.FatalException, duckdb.SerializationException)
_ROWS = 65_536  # rows in a block
_PLACES = "(SELECT tn AS _kafka_topic, p AS _kafka_partition, o AS _kafka_offset FROM idx.rows)"
_TEXT = Scalar("VARCHAR")
LETTERS = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()), ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
        ("stage", pa.string()), ("reason", pa.string()),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Merged:
    """The result of a merge.

    Attributes:
        commit: with the outcome of its writes.
        delta: change of the table's rows by partition.
        duplicates: file of rows that became dead letters; None: there are none.
    """

    commit: Commit
    delta: Mapping[Part, Holding]
    duplicates: Proven | None


class MergeSession:
    """One attempt to merge a batch. Close it in the end.

    Args:
        cache: folder of the index; its content may be removed at any time.
        roots: folders of staged files.
    """

    def __init__(self, cache: Path, roots: Sequence[Path | str]) -> None:
        make_folder(cache)
        self._cache = cache.resolve()
        self._aside = self._cache / f"merge-{uuid.uuid4().hex}"
        self._aside.mkdir(mode=0o700)
        self._path = self._cache / _INDEX
        for old in self._cache.glob("merge-*"):
            with suppress(OSError):
                if time.time() - old.stat().st_mtime > _OLD_S:
                    shutil.rmtree(old)
        local = [str(Path(root).resolve()) for root in roots if not is_remote(root)]
        self.connection: Connection = closed([], [*local, str(self._cache)], str(self._aside / "spill"))
        register(self.connection)
        self._lake: Any = None
        self._state: Any = None
        self._columns, self._key = Columns(), Columns()
        self._base = ""
        self._index: KeyIndex | None = None
        self._merged: Merged | None = None

    def close(self) -> None:
        """Close the connection and remove temporary files."""
        self.connection.close()
        shutil.rmtree(self._aside, ignore_errors=True)

    def begin(self, lake: Deleting, state: Any | None, columns: Columns, batch: KeyedBatch) -> None:
        """Open the index of the state that the batch changes.

        Args:
            lake: the table.
            state: of the table; None: it does not exist.
            columns: of the state.
            batch: the writes; its columns are those of the table after the commit.

        Raises:
            DestinationError: a file differs from the table's metadata.
        """
        self._lake, self._state, self._columns = lake, state, columns
        if state is not None:
            self._base = lake.version(state).snapshot  # now: pyiceberg changes the state's table when it commits
            self._key = Columns(tuple((name, kind) for name in batch.key if (kind := batch.known.get(name)) is not None))
            self._index = self._open_index()

    def counted(self) -> list[tuple[str, int, Holding]]:
        """Return the rows of the state and the sum of their offsets, by topic and partition, as the balance counts them."""
        if self._index is None:
            return []
        found = self.connection.execute(
            f"SELECT CASE WHEN p IS NULL THEN '' ELSE coalesce(tn, '') END, coalesce(p, {NOWHERE}), count(*), coalesce(sum(o), 0)"
            " FROM idx.rows GROUP BY 1, 2"
        ).fetchall()
        return [(topic, number, Holding(rows, int(offsets))) for topic, number, rows, offsets in found]

    def foreign(self, adopted: Adopted, alone: bool) -> Mapping[Part, Holding]:
        """Return the rows at offsets that another loader has read; see `foreign`."""
        return foreign(self.connection, _PLACES, True, adopted, alone) if self._index is not None else {}

    def has_unplaced(self) -> bool:
        """Return whether rows of a partition have no offset."""
        return self._index is not None and has_unplaced(self.connection, _PLACES)

    def merge(self, batch: KeyedBatch) -> Merged:
        """Merge the batch of `begin` into the rows of its keys.

        Raises:
            KpipeError: see `merge` in resources/destinations/duckdb/upsert.py.
        """
        batch = self._local(batch)
        parts = [f"{quote(name)} {sql_type(kind)}" for name, kind in batch.known]
        name = quote("main", batch.table)
        self.connection.execute(f"CREATE TABLE {name} ({', '.join(parts)}, {FILE} INTEGER, {AT} BIGINT)")
        self.connection.execute("CREATE TEMP TABLE kpipe_matched (f INTEGER, pos BIGINT)")
        self.connection.execute("CREATE TEMP TABLE kpipe_emptied (f INTEGER)")
        rows = MatchedRows(self.connection, self._index, self._key, batch) if self._index is not None else None
        if rows is not None:
            rows.copy(self._lake, self._state, self._columns)
        done, delta = merge(self.connection, batch)
        self.connection.execute(
            f"CREATE TEMP TABLE kpipe_gone AS SELECT f, pos FROM {MATCHED} AS m WHERE NOT EXISTS"
            f" (SELECT 1 FROM {name} AS t WHERE t.{FILE} = m.f AND t.{AT} = m.pos)"
        )
        if rows is not None and rows.empties:
            stay = f"SELECT r.f FROM idx.rows AS r ANTI JOIN {_GONE} AS g ON g.f = r.f AND g.pos = r.pos"
            self.connection.execute(f"INSERT INTO {_EMPTIED} SELECT id FROM idx.files WHERE id NOT IN ({stay})")
        self._merged = Merged(done, delta, self._duplicates(batch.commit, done))
        return self._merged

    def added(self, batch: KeyedBatch) -> Iterator[pa.Table]:
        """Read the rows to add, with all columns of the table, in the types of staged files."""
        values = ", ".join(f"CAST({quote(name)} AS {sql_type(_exported(kind))}) AS {quote(name)}" for name, kind in batch.known)
        schema = pa.schema([(name, staged_type(kind)) for name, kind in batch.known])
        found = self.connection.sql(f"SELECT {values} FROM {quote('main', batch.table)} WHERE {FILE} IS NULL")
        with found.to_arrow_reader(_ROWS) as reader:
            for block in reader:
                arrays = [cast(pa.chunked_array([block.column(at)]), field.type) for at, field in enumerate(schema)]
                yield pa.table(arrays, schema=schema)

    def removed(self) -> Iterator[tuple[LiveFile, Iterator[pa.Table]]]:
        """Read the deleted positions by partition, sorted by path and position; without those of `emptied`."""
        which = f"g.f NOT IN (SELECT e.f FROM {_EMPTIED} AS e)"
        if not self.connection.execute(f"SELECT 1 FROM {_GONE} AS g WHERE {which} LIMIT 1").fetchall():
            return
        groups = self.connection.execute(
            "SELECT f.spec, f.parts, any_value(f.id) FROM idx.files AS f"
            f" WHERE f.id IN (SELECT g.f FROM {_GONE} AS g WHERE {which}) GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        assert self._index is not None
        for spec, parts, number in groups:
            file = self._index.file(number)
            found = self.connection.sql(
                f"SELECT f.path, g.pos AS position FROM {_GONE} AS g JOIN idx.files AS f ON f.id = g.f"
                f" WHERE f.spec = $1 AND f.parts = $2 AND {which} ORDER BY f.path, g.pos",
                params=[spec, parts],
            )
            with found.to_arrow_reader(_ROWS) as reader:
                yield file, (pa.Table.from_batches([block]) for block in reader)

    def emptied(self) -> list[LiveFile]:
        """Return the files of which no row stays after a delete of all rows."""
        found = self.connection.execute(f"SELECT f FROM {_EMPTIED} ORDER BY f").fetchall()
        return [self._index.file(number) for (number,) in found] if self._index is not None else []

    def advance(self, lake: Deleting, state: Any, brought: Sequence[Any]) -> None:
        """Bring the index up to date after the commit, if it is the only one since `begin`.

        Args:
            lake: the table.
            state: after the commit.
            brought: what the commit has added.
        """
        if self._index is None or self._merged is None:
            return
        if lake.version(state).parent == self._base:
            with suppress(duckdb.Error):
                self._index.advance(lake, state, self._base, lake.added(state, brought), _GONE)

    def discard(self) -> None:
        """Close the session, and remove the index that it has used: it is damaged."""
        self.close()
        if self._path.parent == self._cache:
            for path in self._cache.glob(f"{_INDEX}*"):
                path.unlink(missing_ok=True)

    def _open_index(self) -> KeyIndex:
        try:
            self.connection.execute(f"ATTACH {literal(str(self._path))} AS idx")
        except duckdb.Error as error:
            if not any(text in str(error) for text in _BUSY):
                raise
            self._path = self._aside / _INDEX  # another run uses it
            self.connection.execute(f"ATTACH {literal(str(self._path))} AS idx")
        index = KeyIndex(self.connection, self._key)
        index.begin(self._lake, self._state, self._columns)
        return index

    def _local(self, batch: KeyedBatch) -> KeyedBatch:
        """Copy files of an object store to this disk: DuckDB reads local files only."""

        def here(file: Proven) -> Proven:
            if not is_remote(file.path):
                return file
            path = self._aside / f"{uuid.uuid4().hex}.parquet"
            with opened(file.path) as source, path.open("xb") as copy:
                shutil.copyfileobj(source, copy)
            return replace(file, path=str(path))

        files = batch.files
        return replace(batch, files=replace(files, rows=[*map(here, files.rows)], deletes=[*map(here, files.deletes)]))

    def _duplicates(self, commit: Commit, done: Commit) -> Proven | None:
        """Write the records whose rows were duplicates as a file of dead letters."""
        expected = done.totals.dead_letters - commit.totals.dead_letters
        if not expected:
            return None
        topics, numbers = zip(*((step.source.topic.name, step.source.partition) for step in commit.steps), strict=True)
        sql = DUPLICATES.replace("$7", "$1").replace("$8", "$2")
        names = ", ".join(map(quote, LETTERS.names))
        found = self.connection.sql(f"SELECT {names} FROM ({sql})", params=[list(topics), list(numbers)])
        path, rows = self._aside / "duplicates.parquet", 0
        with durable_writer(path, LETTERS) as writer, found.to_arrow_reader(_ROWS) as reader:
            for block in reader:
                writer.write_table(pa.Table.from_batches([block]).cast(LETTERS))
                rows += len(block)
        assert rows == expected, (rows, expected)
        return Proven(str(path), rows, path.stat().st_size, tuple(LETTERS.names), ())


def _exported(kind: Type) -> Type:
    """Return the type in which DuckDB exports a column as in staged files: JSON, UUID and HUGEINT as text, at any depth."""
    if isinstance(kind, ListOf):
        return ListOf(_exported(kind.item))
    if isinstance(kind, MapOf):
        return MapOf(_exported(kind.item))
    if isinstance(kind, Struct):
        return Struct(tuple((name, _exported(item)) for name, item in kind.fields))
    return _TEXT if kind.name in ("JSON", "UUID", "HUGEINT") else kind


def is_damage(error: duckdb.Error) -> bool:
    """Return whether the cause may be a damaged index. Errors of checksums have no class of their own."""
    return type(error) is duckdb.Error or isinstance(error, _DAMAGE)
