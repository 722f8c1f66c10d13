"""Write rows of one partition as new files of the target size, with large row groups."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq

from resources.destinations.lakehouse.data_files import Brought, cast_column, file_facts
from resources.destinations.lakehouse.folder import Folder
from resources.parquet_statistics import bounded_columns
from resources.table_partitions import Values

__all__ = ["renamed", "write_rows"]

_GROUP_ROWS, _GROUP_BYTES = 131_072, 64 << 20  # rows that are collected for a row group


def write_rows(
    folder: Folder, wanted: pa.Schema, blocks: Iterator[pa.Table], stem: str, values: Values, target: int
) -> list[Brought]:
    """Write rows with all columns of a table into its folder, durably.

    Args:
        folder: of the table.
        wanted: the table's columns as Arrow fields.
        blocks: rows with these columns.
        stem: beginning of the files' names; no other file has it.
        values: partition values that all rows share.
        target: bytes from which a new file begins.

    Raises:
        SchemaConflict: a column's values cannot be converted to the table's type.
        DestinationError: a file cannot be written.
    """
    made = list[Brought]()
    pieces, numbers = _collected(blocks), count()
    block = next(pieces, None)
    while block is not None:
        name, rows = f"{stem}-{next(numbers):05}.parquet", 0
        with folder.aside() as aside:
            with aside.open("xb") as sink:
                with pq.ParquetWriter(sink, wanted, compression="snappy", write_statistics=bounded_columns(wanted)) as out:
                    while block is not None and (not rows or sink.tell() < target):
                        columns = [cast_column(block.column(field.name), field, name) for field in wanted]
                        out.write_table(pa.table(columns, schema=wanted))
                        rows += len(block)
                        block = next(pieces, None)
                sink.flush()
                os.fsync(sink.fileno())
            folder.take(str(aside), name)
        made.append(file_facts(folder, name, rows, values))
    if made:
        folder.settle()
    return made


def renamed(folder: Folder, files: Sequence[Brought]) -> list[Brought]:
    """Give new files further names, durably, for a commit on a later version than that on which they were written.

    Removals rely on it: a name that was without reference at one version is never committed on a later one.

    Raises:
        DestinationError: a file is missing, or a name cannot be written.
    """
    made = [replace(file, name=f"kpipe-{uuid.uuid4().hex}.parquet") for file in files]
    for old, new in zip(files, made, strict=True):
        folder.take(f"{folder.place}/{old.name}", new.name)
    if made:
        folder.settle()
    return made


def _collected(blocks: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Join small blocks: each one becomes a row group."""
    held: list[pa.Table] = []
    rows = size = 0
    for block in blocks:
        if not len(block):
            continue
        held.append(block)
        rows, size = rows + len(block), size + block.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.concat_tables(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.concat_tables(held)
