"""Index of a table's keys: the file and the position of each live row, in a DuckDB file that may be removed at any time.

The index is a cache. It counts only for the snapshot and the key that it names. If another writer has committed, it is brought
up to date by comparing the files of both snapshots: rows of new files are added, those of removed files are dropped, new deletes
are applied. If a file of deletes has disappeared, as after a compaction, its rows may be back; if a rollback brings a file back,
older deletes may apply to it. Then the rows of each file are counted, and if one differs, the index is built again. DuckDB
verifies the checksum of each block that it reads, and the number of rows is compared with the stored number.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from kpipe.errors import DestinationError
from kpipe.schema.columns import Columns, Type
from resources.destinations.arrow_types import cast, textual
from resources.destinations.lakehouse.live_files import Changes, Deleting, Live, LiveFile, Version
from resources.duckdb_engine.arrow_types import staged_type
from resources.duckdb_engine.file_connection import Connection, quote
from resources.duckdb_engine.sql_types import sql_type
from resources.type_compatibility import COORDINATES

__all__ = ["KeyIndex"]

_FORMAT = "2"
_WASTE = 1_000_000  # rows that were removed before the index is compacted: DuckDB does not use their space again
_NUMBERS = {"snapshot", "rows", "written"}
_PLACES = (("_kafka_partition", "p"), ("_kafka_offset", "o"), ("_kafka_topic", "tn"))


class KeyIndex:
    """The index in the attached database `idx`.

    Args:
        connection: with the database attached.
        key: key columns of the table, with their types.
    """

    def __init__(self, connection: Connection, key: Columns) -> None:
        self._connection, self._key = connection, key
        self._kinds = ", ".join(f"k{at} {sql_type(kind)}" for at, (_, kind) in enumerate(key))
        self._said = json.dumps([_FORMAT, [[name, str(kind)] for name, kind in key]])

    def begin(self, lake: Deleting, state: Any, columns: Columns) -> None:
        """Make the index that of a state.

        Args:
            lake: the table.
            state: of the table.
            columns: of the state.

        Raises:
            DestinationError: a file differs from the table's metadata.
        """
        version = lake.version(state)
        known = self._meta()
        if (known.get("key"), known.get("table")) != (self._said, version.table) or not known.keys() >= _NUMBERS:
            self._create(version.table)
            known = self._meta()
        if known["snapshot"] != version.snapshot:
            self._renew(lake, state, columns, version)
        found, expected = self._one("SELECT count(*) FROM idx.rows"), int(self._meta()["rows"])
        if found != expected:
            self._create(version.table)
            self._renew(lake, state, columns, version)

    def advance(self, lake: Deleting, state: Any, base: str, changes: Changes, removed: str) -> None:
        """Apply a commit of kpipe, whose files need not be listed again.

        Args:
            lake: the table.
            state: after the commit.
            base: snapshot before the commit.
            changes: its files.
            removed: relation of the deleted rows, as SQL: columns `f`, the id of a file, and `pos`.
        """
        if self._meta()["snapshot"] != base:
            return
        with _Transaction(self._connection) as connection:
            self._load(lake, state, state.columns, changes.files)
            connection.execute(f"DELETE FROM idx.rows AS r USING {removed} AS d WHERE r.f = d.f AND r.pos = d.pos")
            connection.execute("INSERT INTO idx.deletes SELECT unnest($1::VARCHAR[])", [list(changes.deletes)])
            for table, paths in (("deletes", changes.ended), ("files", changes.removed)):
                connection.execute(f"DELETE FROM idx.{table} WHERE path IN (SELECT unnest($1::VARCHAR[]))", [list(paths)])
            self._end(lake.version(state))
        self._compact()

    def file(self, number: int) -> LiveFile:
        """Return a file by its id."""
        (row,) = self._connection.execute("SELECT path, n, seq, spec, parts FROM idx.files WHERE id = $1", [number]).fetchall()
        path, rows, seq, spec, parts = row
        return LiveFile(path, rows, seq, spec, tuple(json.loads(parts)))

    def _create(self, table: str) -> None:
        with _Transaction(self._connection) as connection:
            for name in ("rows", "files", "deletes", "meta"):
                connection.execute(f"DROP TABLE IF EXISTS idx.{name}")
            connection.execute(f"CREATE TABLE idx.rows ({self._kinds}, f INTEGER, pos BIGINT, p INTEGER, o BIGINT, tn VARCHAR)")
            connection.execute(
                "CREATE TABLE idx.files (id INTEGER, path VARCHAR, n BIGINT, seq BIGINT, spec INTEGER, parts VARCHAR)"
            )
            connection.execute("CREATE TABLE idx.deletes (path VARCHAR)")
            connection.execute("CREATE TABLE idx.meta (name VARCHAR, value VARCHAR)")
            values = {"key": self._said, "table": table, "snapshot": "", "rows": "0", "written": "0"}
            connection.executemany("INSERT INTO idx.meta VALUES ($1, $2)", [list(item) for item in values.items()])

    def _meta(self) -> dict[str, str]:
        try:
            return dict(self._connection.execute("SELECT name, value FROM idx.meta").fetchall())
        except duckdb.CatalogException:  # a new file
            return {}

    def _one(self, sql: str) -> int:
        ((found,),) = self._connection.execute(sql).fetchall()
        return int(found)

    def _renew(self, lake: Deleting, state: Any, columns: Columns, version: Version) -> None:
        """Compare the files of the index with those of the state, and apply the difference."""
        live = lake.live(state) if version.snapshot else Live()
        applied = {path for (path,) in self._connection.execute("SELECT path FROM idx.deletes").fetchall()}
        known = dict(self._connection.execute("SELECT path, id FROM idx.files").fetchall())
        latest = max((seq for path, seq in live.deletes.items() if path in applied), default=0)
        back = latest and any(file.seq <= latest for file in live.files if file.path not in known)
        ended = applied - live.deletes.keys()
        there = {file.path for file in live.files}
        with _Transaction(self._connection) as connection:
            gone = [number for path, number in known.items() if path not in there]
            for table, column in (("rows", "f"), ("files", "id")):
                connection.execute(f"DELETE FROM idx.{table} WHERE {column} IN (SELECT unnest($1::INTEGER[]))", [gone])
            self._load(lake, state, columns, [file for file in live.files if file.path not in known])
            for path, seq in live.deletes.items():
                if path not in applied:
                    self._apply(lake.positions(state, path), path, seq)
            connection.execute("DELETE FROM idx.deletes WHERE path IN (SELECT unnest($1::VARCHAR[]))", [list(ended)])
            is_whole = not (ended or back) or self._is_whole(lake, state, live)
            if is_whole:
                self._end(version)
        if not is_whole:
            self._create(version.table)
            self._renew(lake, state, columns, version)
        self._compact()

    def _is_whole(self, lake: Deleting, state: Any, live: Live) -> bool:
        """Return whether the index has as many rows of each file as the table.

        It may have too many rows of a file that came back, and too few of another file. So equal numbers mean equal rows.
        """
        connection = self._connection
        connection.execute("CREATE OR REPLACE TEMP TABLE kpipe_deleted (f INTEGER, pos BIGINT)")
        for path, seq in live.deletes.items():
            for table in lake.positions(state, path):
                connection.register("kpipe_block", table)
                connection.execute(
                    "INSERT INTO temp.kpipe_deleted SELECT f.id, b.position FROM kpipe_block AS b JOIN idx.files AS f"
                    " ON f.path = b.path AND f.seq <= $1",
                    [seq],
                )
                connection.unregister("kpipe_block")
        differing = self._one(
            "SELECT count(*) FROM idx.files AS f"
            " LEFT JOIN (SELECT f, count(DISTINCT pos) AS n FROM temp.kpipe_deleted GROUP BY f) AS d ON d.f = f.id"
            " LEFT JOIN (SELECT f, count(*) AS n FROM idx.rows GROUP BY f) AS r ON r.f = f.id"
            " WHERE f.n - coalesce(d.n, 0) <> coalesce(r.n, 0)"
        )
        connection.execute("DROP TABLE temp.kpipe_deleted")
        return not differing

    def _load(self, lake: Deleting, state: Any, columns: Columns, files: Sequence[LiveFile]) -> None:
        """Add the rows of files."""
        has = {name for name, _ in columns}
        wanted = [(name, f"k{at}", kind) for at, (name, kind) in enumerate(self._key)]
        wanted += [(name, short, kind) for name, short in _PLACES if (kind := COORDINATES.get(name)) is not None]
        present = [(name, kind) for name, _, kind in wanted if name in has]
        names = [short for name, short, _ in wanted if name in has]
        missing = [short for name, short, _ in wanted if name not in has]
        number = self._one("SELECT coalesce(max(id), 0) FROM idx.files")
        for file in files:
            number += 1
            parts = json.dumps(list(file.values))
            self._connection.execute(
                "INSERT INTO idx.files VALUES ($1, $2, $3, $4, $5, $6)",
                [number, file.path, file.rows, file.seq, file.spec, parts],
            )
            at = 0
            for block in lake.blocks(state, file, [name for name, _ in present]):
                table = as_staged(block, present)
                table = table.append_column("kpipe: pos", pa.array(np.arange(at, at + len(block), dtype=np.int64)))
                at += len(block)
                values = ", ".join(f"CAST({quote(name)} AS {sql_type(kind)})" for name, kind in present)
                self._connection.register("kpipe_block", table)
                self._connection.execute(
                    f"INSERT INTO idx.rows ({', '.join(names)}, f, pos{''.join(', ' + name for name in missing)})"
                    f' SELECT {values}, {number:d}, "kpipe: pos"{", NULL" * len(missing)} FROM kpipe_block'
                )
                self._connection.unregister("kpipe_block")
            if at != file.rows:
                raise DestinationError(f"{file.path}: expected {file.rows} rows, found {at}", "repair the table")
            self._add("written", at)

    def _apply(self, positions: Iterator[pa.Table], path: str, seq: int) -> None:
        """Remove the rows of a file of deletes."""
        for table in positions:
            self._connection.register("kpipe_block", table)
            self._connection.execute(
                "DELETE FROM idx.rows AS r USING (SELECT f.id, b.position FROM kpipe_block AS b JOIN idx.files AS f"
                " ON f.path = b.path AND f.seq <= $1) AS d WHERE r.f = d.id AND r.pos = d.position",
                [seq],
            )
            self._connection.unregister("kpipe_block")
        self._connection.execute("INSERT INTO idx.deletes VALUES ($1)", [path])

    def _end(self, version: Version) -> None:
        self._set("snapshot", version.snapshot)
        self._set("rows", str(self._one("SELECT count(*) FROM idx.rows")))

    def _set(self, name: str, value: str) -> None:
        self._connection.execute("UPDATE idx.meta SET value = $2 WHERE name = $1", [name, value])

    def _add(self, name: str, number: int) -> None:
        self._set(name, str(int(self._meta()[name]) + number))

    def _compact(self) -> None:
        """Write the rows again if most of the space is that of removed rows."""
        meta = self._meta()
        if int(meta["written"]) <= 2 * int(meta["rows"]) + _WASTE:
            return
        with _Transaction(self._connection) as connection:
            connection.execute("CREATE TABLE idx.compact AS FROM idx.rows")
            connection.execute("DROP TABLE idx.rows")
            connection.execute("ALTER TABLE idx.compact RENAME TO rows")
            self._set("written", meta["rows"])


def as_staged(block: pa.Table, columns: Sequence[tuple[str, Type]]) -> pa.Table:
    """Return columns of a block in the types of staged files; a TIME that the table has as text stays one."""
    names = {name.lower(): name for name in block.column_names}
    found = [(block.column(names[name.lower()]), staged_type(kind)) for name, kind in columns]
    arrays = [cast(column, textual(column.type, kind)) for column, kind in found]
    return pa.table(arrays, names=[name for name, _ in columns])


class _Transaction:
    """A transaction of the connection: committed unless the block raises."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> Connection:
        self._connection.execute("BEGIN")
        return self._connection

    def __exit__(self, kind: object, *_: object) -> None:
        self._connection.execute("ROLLBACK" if kind is not None else "COMMIT")
