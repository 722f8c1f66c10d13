"""The shelf as a place that kpipe's suite runs in. In a module of its own: processes that the suite starts import it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kpipe.interfaces import Destination
from kpipe.tables.upsert import KeyRule
from kpipe_shelf.shelf import Shelf
from resources.destinations.lakehouse import LakeDestination
from resources.duckdb_engine.arrow_types import staged_type
from resources.testing.lake import LakePlace


class ShelfPlace(LakePlace):
    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None) -> Destination:
        return LakeDestination(Shelf(self.folder / table), table, pipeline, {"source_type": "KAFKA"}, (self.staging,))

    def sql(self, statement: str, *parameters: Any, table: str = "tweets") -> list[Any]:
        with closing(sqlite3.connect(self.folder / table / "catalogue.sqlite", isolation_level=None)) as catalogue:
            return catalogue.execute(statement, parameters).fetchall()

    def files(self, table: str = "tweets") -> list[Path]:
        return [self.folder / table / name for (name,) in self.sql("SELECT name FROM files ORDER BY rowid", table=table)]

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        state = Shelf(self.folder / table).load()
        if state is None:
            return []
        nothing = pa.schema([(name, staged_type(kind)) for name, kind in state.columns]).empty_table()
        files = [pq.read_table(path) for path in self.files(table)]
        found = pa.concat_tables([nothing, *files], promote_options="default").to_pylist()
        return sorted(found, key=lambda row: (row["_kafka_partition"] or 0, row["_kafka_offset"] or 0))

    def pointer(self, pipeline: str) -> str:
        ((seq, mark),) = self.sql("SELECT seq, mark FROM pointers WHERE pipeline = ?", pipeline)
        return f"{seq:012}-{int(mark, 16):016x}.json"

    def point(self, seq: int, sealed: int) -> None:
        self.sql("UPDATE pointers SET seq = ?, mark = ? WHERE pipeline = 'tweets'", seq, f"{sealed:x}")

    def changed(self, partition: int, offset: int, times: int) -> None:
        for path in self.files():
            rows = pq.read_table(path)
            chosen = pc.and_(pc.equal(rows["_kafka_partition"], partition), pc.equal(rows["_kafka_offset"], offset))
            if rows.filter(chosen).num_rows:
                path.unlink()  # the staged file is the same one
                pq.write_table(pa.concat_tables([rows.filter(pc.invert(chosen)), *[rows.filter(chosen)] * times]), path)

    def delete_row(self, partition: int, offset: int) -> None:
        self.changed(partition, offset, 0)

    def double_row(self, partition: int, offset: int) -> None:
        self.changed(partition, offset, 2)

    def drop_table(self) -> None:
        shutil.rmtree(self.folder / "tweets")
