"""Copy the rows of a table that a batch may change into DuckDB: those of its keys, and all rows if it deletes all (TRUNCATE).

A copy has key and coordinates, which the index has. Other columns are read from the files only where the merge needs the values:
all columns for expressions of `into.update`, else the columns that a change event left out, of the rows of its keys.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.errors import DestinationError
from kpipe.schema.columns import Columns, Type
from kpipe.tables.changes import EMPTIES, HIDDEN, UNCHANGED, marked_columns
from resources.destinations.duckdb.target_table import projection
from resources.destinations.lakehouse.keyed.key_index import KeyIndex, as_staged
from resources.destinations.lakehouse.live_files import Deleting
from resources.destinations.sql.column_matching import by_shape
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.merge.merge_staging import only
from resources.duckdb_engine.file_connection import Connection, quote
from resources.duckdb_engine.sql_types import READ, sql_type

__all__ = ["AT", "FILE", "MATCHED", "MatchedRows"]

FILE, AT = '"kpipe: file"', '"kpipe: position"'  # columns of the copy; no table has these names by chance
#: Relation of the copied rows: columns `f`, the id of a file, `pos`, and those of the index.
MATCHED = "temp.kpipe_matched"
_KEYS = "temp.kpipe_keys"
_READ = READ.format("?")
_REPAIR = "repair the table"
_SHORT = {"_kafka_partition": "p", "_kafka_offset": "o", "_kafka_topic": "tn"}


class MatchedRows:
    """The rows that one batch may change.

    Args:
        connection: with the index, and the table of the merge in the schema `main`.
        index: of the state.
        key: key columns, with their types in the table.
        batch: the writes, in local files.
    """

    def __init__(self, connection: Connection, index: KeyIndex, key: Columns, batch: KeyedBatch) -> None:
        self._connection, self._index, self._key, self._batch = connection, index, key, batch
        self.empties = self._empties()  # whether the batch deletes all rows

    def copy(self, lake: Deleting, state: Any, columns: Columns) -> None:
        """Copy the rows of a state into the table of the merge.

        Args:
            lake: the table.
            state: of the table.
            columns: of the state.
        """
        batch = self._batch
        self._collect_keys()
        self._match()
        had = set(columns.names())
        known = [item for item in batch.known if item[0] in had]
        if batch.rule.on_conflict == "update":
            self._read(lake, state, known, "true")
            return
        self._index_rows("NOT keeps")
        if not (kept := self._kept_columns()):
            return
        needed = {*batch.key, *_SHORT}
        self._read(lake, state, [item for item in known if item[0] in needed or item[0].lower() in kept], "keeps")

    def _collect_keys(self) -> None:
        """Collect the keys of all writes, each with whether a write of it keeps values of its row."""
        kinds = ", ".join(f"k{at} {sql_type(kind)}" for at, (_, kind) in enumerate(self._key))
        self._connection.execute(f"CREATE TEMP TABLE kpipe_keys ({kinds}, keeps BOOLEAN)")
        batch = self._batch
        for gone, files in ((False, batch.files.rows), (True, batch.files.deletes)):
            for same in by_shape(files):
                meant = batch.commit.writing(columns=only(batch.commit.only.columns, batch.key)) if gone else batch.commit
                values = dict(zip(*projection(self._connection, same[0], meant, batch.known, HIDDEN), strict=True))
                wanted = ", ".join(values[quote(name)] for name in batch.key)
                keeps = f"{UNCHANGED} IS NOT NULL" if UNCHANGED in same[0].names else "false"
                self._connection.execute(
                    f"INSERT INTO {_KEYS} SELECT DISTINCT {wanted}, {keeps} FROM {_READ}", [[file.path for file in same]]
                )

    def _match(self) -> None:
        width = range(len(self._key))
        names, same = ", ".join(f"k{at}" for at in width), " AND ".join(f"k.k{at} = r.k{at}" for at in width)
        keys = f"(SELECT {names}, bool_or(keeps) AS keeps FROM {_KEYS} GROUP BY {names})"
        join = "LEFT JOIN" if self.empties else "JOIN"
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE kpipe_matched AS SELECT r.*, coalesce(k.keeps, false) AS keeps FROM idx.rows AS r"
            f" {join} {keys} AS k ON {same}"
        )

    def _empties(self) -> bool:
        files = [file.path for file in self._batch.files.deletes if EMPTIES in file.names]
        return bool(files and self._connection.execute(f"SELECT 1 FROM {_READ} WHERE {EMPTIES} LIMIT 1", [files]).fetchall())

    def _kept_columns(self) -> set[str]:
        """Return the columns, in lower case, whose value a write of an existing row keeps."""
        files = [file.path for file in self._batch.files.rows if UNCHANGED in file.names]
        if not files or not self._connection.execute(f"SELECT 1 FROM {MATCHED} WHERE keeps LIMIT 1").fetchall():
            return set()
        found = self._connection.execute(f"SELECT DISTINCT {UNCHANGED} FROM {_READ} WHERE {UNCHANGED} IS NOT NULL", [files])
        return marked_columns(text for (text,) in found.fetchall())

    def _index_rows(self, which: str) -> None:
        """Copy key and coordinates from the index."""
        batch = self._batch
        names = [quote(name) for name in batch.key] + [FILE, AT]
        values = [f"k{at}" for at in range(len(batch.key))] + ["f", "pos"]
        for name, short in _SHORT.items():
            if name in batch.known.names():
                names, values = [*names, name], [*values, short]
        table = quote("main", batch.table)
        self._connection.execute(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM {MATCHED} WHERE {which}"
        )

    def _read(self, lake: Deleting, state: Any, wanted: Sequence[tuple[str, Type]], which: str) -> None:
        """Read columns of matched rows from their files, one file after another."""
        connection, table = self._connection, quote("main", self._batch.table)
        names = ", ".join([*(quote(name) for name, _ in wanted), FILE, AT])
        values = ", ".join([*(f"CAST({quote(name)} AS {sql_type(kind)})" for name, kind in wanted), FILE, AT])
        files = connection.execute(f"SELECT DISTINCT f FROM {MATCHED} WHERE {which} ORDER BY f").fetchall()
        for (number,) in files:
            found = connection.sql(f"SELECT pos FROM {MATCHED} WHERE f = {number:d} AND {which} ORDER BY pos")
            places = found.to_arrow_table().column(0).to_numpy()
            del found
            file, done = self._index.file(number), 0
            for block in lake.rows_at(state, file, [name for name, _ in wanted], places):
                mine = places[done : done + len(block)]
                done += len(block)
                rows = as_staged(block, wanted)
                rows = rows.append_column(FILE[1:-1], pa.array(np.full(len(mine), number, np.int32)))
                rows = rows.append_column(AT[1:-1], pa.array(mine))
                connection.register("kpipe_block", rows)
                connection.execute(f"INSERT INTO {table} ({names}) SELECT {values} FROM kpipe_block")
                connection.unregister("kpipe_block")
            if done != len(places):
                raise DestinationError(f"{file.path}: expected {len(places)} rows of the batch's keys, found {done}", _REPAIR)
