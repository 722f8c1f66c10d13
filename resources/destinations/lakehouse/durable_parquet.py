"""Write a Parquet file that a power cut does not empty once it has a name in the table's folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from resources.parquet_statistics import bounded_columns

__all__ = ["durable_writer"]


@contextmanager
def durable_writer(path: Path, schema: pa.Schema, compression: str = "snappy") -> Iterator[pq.ParquetWriter]:
    """Yield a writer of this file; a normal exit has fsynced it, as `Folder.take` expects."""
    with pq.ParquetWriter(path, schema, compression=compression, write_statistics=bounded_columns(schema)) as writer:
        yield writer
    with path.open("rb") as written:
        os.fsync(written.fileno())
