"""Write keys and hashes of contents to Parquet files, divided by key, in bounded memory."""

# ruff: noqa: S608 - numbers of this module
from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from resources.audit.by_key.records import Rows

__all__ = ["Spill", "finished_files", "schema"]

_FLUSH = 16_000_000  # bytes of hashes that wait in memory
_CHUNKS = 200_000  # column chunks of open files: their metadata stays in memory until the end of a file
_CONFIG: dict[str, Any] = {"threads": "1", "memory_limit": "128MB", "temp_directory": "", "autoinstall_known_extensions": "false"}


def schema(columns: int) -> pa.Schema:
    """Return the columns of the files: key, coordinates, `h0` and so on: hashes of contents.

    `later`: above the end of the range; `absent`: a record without a value.
    """
    fields = [
        ("key", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("later", pa.bool_()), ("absent", pa.bool_()),
    ]  # fmt: skip
    return pa.schema(
        [pa.field(name, kind, False) for name, kind in [*fields, *((f"h{at}", pa.uint64()) for at in range(columns))]]
    )


class Spill:
    """Writer of one part; a context manager. Files have their names when the part is complete.

    Args:
        folder: of all parts of a side; created if it is missing.
        part: number of the part.
        buckets: number of divisions. Equal keys are in the same one.
        columns: number of compared columns.
    """

    def __init__(self, folder: Path, part: int, buckets: int, columns: int) -> None:
        self._folder, self._part, self._buckets, self._schema = folder, part, buckets, schema(columns)
        self._writers: dict[int, pq.ParquetWriter] = {}
        self._waiting: list[pa.Table] = []
        self._bytes = self._chunks = self._file = 0
        self._made: list[Path] = []
        hashes = "".join(
            f", CASE WHEN c{at} IS NULL THEN 0 ELSE md5_number_lower(c{at}) END::UBIGINT AS h{at}" for at in range(columns)
        )
        self._sql = (
            f'SELECT key, "partition", "offset", later, absent{hashes}, (md5_number_upper(key) % {buckets})::INTEGER AS bucket'
            " FROM block"
        )

    def __enter__(self) -> Spill:
        self._folder.mkdir(exist_ok=True)
        for path in self._folder.glob(f"*-{self._part:05}-*"):  # of an attempt that was interrupted
            path.unlink()
        self._db = duckdb.connect(":memory:", config=_CONFIG)
        return self

    def add(self, rows: Rows, partition: int = 0, later: bool = False) -> None:
        """Append records of one partition, or rows of the table, which have no offsets."""
        count = len(rows.keys)
        if not count:
            return
        columns: dict[str, pa.Array] = {
            "key": pa.array(rows.keys, pa.string()),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(rows.offsets or [0] * count, pa.int64()),
            "later": pa.array([later] * count, pa.bool_()),
            "absent": pa.array(rows.absent or [False] * count, pa.bool_()),
            **{f"c{at}": pa.array(column, pa.string()) for at, column in enumerate(rows.contents)},
        }
        self._db.register("block", pa.table(columns))
        made: pa.Table = self._db.sql(self._sql).to_arrow_table()
        self._db.unregister("block")
        self._waiting.append(made)
        self._bytes += made.nbytes
        if self._bytes >= _FLUSH:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        made = pa.concat_tables(self._waiting).sort_by("bucket")
        self._waiting, self._bytes = [], 0
        ends = made.column("bucket").value_counts().to_pylist()
        start, made = 0, made.drop_columns("bucket").cast(self._schema)
        for item in ends:  # in order: the table is sorted
            number, count = item["values"], item["counts"]
            self._writer(number).write_table(made.slice(start, count), row_group_size=count)
            self._chunks += len(self._schema)
            start += count
        if self._chunks >= _CHUNKS:
            self._close()

    def _writer(self, bucket: int) -> pq.ParquetWriter:
        if bucket not in self._writers:
            path = self._folder / f".{bucket:04}-{self._part:05}-{self._file:03}.parquet"
            self._made.append(path)
            self._writers[bucket] = pq.ParquetWriter(path, self._schema, compression="zstd", use_dictionary=["later", "absent"])
        return self._writers[bucket]

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers, self._chunks, self._file = {}, 0, self._file + 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._flush()
            self._close()
            if kind is None:
                for path in self._made:
                    with path.open("rb") as file:
                        os.fsync(file.fileno())
                for path in self._made:
                    path.replace(path.with_name(path.name[1:]))
        finally:
            self._db.close()
            for path in self._made:
                with suppress(OSError):
                    path.unlink(missing_ok=True)


def finished_files(folder: Path, parts: int, columns: int, bucket: int | None = None) -> Sequence[str]:
    """Return the files of the first parts, of one bucket or of all; one of them is empty, so that there is always one.

    Args:
        folder: of the side.
        parts: number of parts that are complete.
        columns: number of compared columns.
        bucket: number of the bucket; None: all.
    """
    empty = folder / "empty.parquet"
    if not empty.exists():
        folder.mkdir(exist_ok=True)  # a topic without records has no part
        pq.write_table(schema(columns).empty_table(), empty)
    names = folder.glob(f"{'*' if bucket is None else f'{bucket:04}'}-*.parquet")
    return [str(empty), *sorted(str(path) for path in names if int(path.name.split("-")[1]) < parts)]
