"""Verify that staged files match the tasks' reports, before any table is changed.

Table formats verify nothing at commit: a missing, truncated or replaced file would be found by a reader later (docs/design.md,
rule 8). So the driver reads every byte again. In an object store it compares the SHA-256 that the store keeps since the put, and
reads the footer: objects are never changed in place.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kpipe.batch.batch import Commit, StagedFile
from kpipe.errors import StagingFailed, StoreUnreachable
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.object_store.open_file import opened
from resources.object_store.uri import is_remote

__all__ = ["Proven", "Writes", "added", "check_totals", "row_bytes", "verify"]

_BLOCK = 1 << 20  # bytes hashed per call: large enough for hashlib to release the GIL, small enough for the cache
_VECTOR_ROWS = 2048  # DuckDB's; as many large rows are in memory at least (resources/duckdb_engine/row_groups.py)
_LARGE = 64 << 10  # a quarter of a block of DuckDB: row groups of a few such rows waste little
_FIXED = 8  # bytes of a NULL or a number in memory; Parquet stores a column of NULL in a few bytes
_AGAIN = "run it again: the batch is read and staged again"


@dataclass(frozen=True)
class Proven:
    """A verified staged file.

    Attributes:
        path: without symbolic links below the staging root; or the object's name.
        rows: by its footer.
        size: of its rows in memory, about, by its footer: of many columns, most values may be NULL.
        names: of its columns, in order.
        shape: names and types as text: files of one shape can be read together.
    """

    path: str
    rows: int
    size: int
    names: tuple[str, ...]
    shape: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Writes:
    """A batch's files of rows and of deletes."""

    rows: Sequence[Proven]
    deletes: Sequence[Proven] = ()


def added(files: Sequence[Proven]) -> dict[Part, Holding]:
    """Return the number of rows and the sum of offsets by partition."""
    from pyarrow import parquet

    result: dict[Part, Holding] = {}
    for file in files:
        names = [name for name in ("_kafka_topic", "_kafka_partition") if name in file.names]
        with opened(file.path) as stream:
            found = parquet.read_table(stream, columns=[*names, "_kafka_offset"])
        for row in found.group_by(names).aggregate([([], "count_all"), ("_kafka_offset", "sum")]).to_pylist():
            topic, number = row.get("_kafka_topic"), row["_kafka_partition"]
            name = f"{topic}:{number}" if topic else number
            old = result.get(name, Holding())
            result[name] = Holding(old.rows + row["count_all"], old.offsets + (row["_kafka_offset_sum"] or 0))
    return result


def row_bytes(tables: Sequence[Sequence[Proven]]) -> int:
    """Return the mean size of a row of the table whose rows are the largest; fewer rows than a vector count as a vector.

    Large rows do not: a few of them would pass as small rows, next to which DuckDB merges the row groups of large ones.
    """
    counted = [(sum(file.size for file in files), sum(file.rows for file in files)) for files in tables]
    return max((_mean(size, rows) for size, rows in counted), default=0)


def _mean(size: int, rows: int) -> int:
    mean = -(-size // max(1, rows))
    return mean if mean > _LARGE else -(-size // max(_VECTOR_ROWS, rows))


def verify(files: Sequence[StagedFile], roots: Sequence[Path | str]) -> list[Proven]:
    """Verify every file: location, size, rows, hash, footer.

    Args:
        files: as reported.
        roots: folders that contain staged files at any depth; or prefixes of object names.

    Raises:
        StagingFailed: a file differs from its report; the message names it.
    """
    return [_in_store(file, roots) if is_remote(file.path) else _verify(file, _place(file.path, roots)) for file in files]


def _place(path: str, roots: Sequence[Path | str]) -> str:
    """Return the path with its root resolved; reject symbolic links below the root."""
    for root in roots:
        if is_remote(root):
            continue
        real = Path(os.path.realpath(root))
        for known in (Path(os.path.abspath(root)), real):  # resolve() would follow the links to reject
            if Path(path).is_absolute() and Path(path).is_relative_to(known) and ".." not in Path(path).parts:
                place = str(real / Path(path).relative_to(known))
                if os.path.realpath(place) != place:
                    raise StagingFailed(f"staged file {path!r} is reached through a symbolic link", _AGAIN)
                return place
    raise _outside(path, roots)


def _outside(path: str, roots: Sequence[Path | str]) -> StagingFailed:
    where = ", ".join(map(str, roots)) or "nowhere"
    return StagingFailed(
        f"staged file {path!r} is outside of the staging folders ({where})", "stage files below one of these folders"
    )


def _in_store(file: StagedFile, roots: Sequence[Path | str]) -> Proven:
    """Verify an object: location, size, the store's checksum, footer."""
    from resources.object_store.clients import store

    if ".." in file.path.split("/") or not any(
        file.path.startswith(f"{str(root).rstrip('/')}/") for root in roots if is_remote(root)
    ):
        raise _outside(file.path, roots)
    try:
        found = store(file.path).head(file.path)
        if found is None:
            raise StagingFailed(f"staged file {file.path!r} is missing", _AGAIN)
        if found.size != file.size:
            raise StagingFailed(f"staged file {file.path!r} expected {file.size} bytes, found {found.size}", _AGAIN)
        if not found.sha256:
            hint = "use an object store with SHA-256 checksums"
            raise StagingFailed(f"staged file {file.path!r}: the store has no SHA-256 checksum of it", hint)
        if found.sha256 != file.sha256:
            raise StagingFailed(f"staged file {file.path!r} differs from the reported SHA-256", _AGAIN)
        with opened(file.path) as stream:
            return _read(file, file.path, stream)
    except OSError as error:
        kind = StoreUnreachable if getattr(error, "passes", False) else StagingFailed
        raise kind(f"staged file {file.path!r} cannot be read: {error.strerror or error}", _AGAIN) from error


def _verify(file: StagedFile, place: str) -> Proven:
    try:
        # O_NONBLOCK: opening a pipe would wait for its writer. Opening a folder raises.
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        stream = os.fdopen(descriptor, "rb", closefd=True)
    except OSError as error:
        raise StagingFailed(f"staged file {place!r} cannot be read: {error.strerror}", _AGAIN) from error
    with stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise StagingFailed(f"staged file {place!r} is not a regular file", _AGAIN)
        if found.st_size != file.size:
            raise StagingFailed(f"staged file {place!r} expected {file.size} bytes, found {found.st_size}", _AGAIN)
        digest = hashlib.sha256()
        while block := stream.read(_BLOCK):
            digest.update(block)
        if digest.hexdigest() != file.sha256:
            raise StagingFailed(f"staged file {place!r} differs from the reported SHA-256", _AGAIN)
        stream.seek(0)
        return _read(file, place, stream)


def _read(file: StagedFile, place: str, stream: BinaryIO) -> Proven:
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(stream) as footer:
            rows, schema = footer.metadata.num_rows, footer.schema_arrow
            size = sum(footer.metadata.row_group(at).total_byte_size for at in range(footer.num_row_groups))
    except (ArrowException, OSError) as error:
        raise StagingFailed(f"staged file {place!r} is not a Parquet file: {error}", _AGAIN) from error
    if rows != file.rows:
        raise StagingFailed(f"staged file {place!r} expected {file.rows} rows, found {rows}", _AGAIN)
    size = max(size, rows * len(schema.names) * _FIXED)
    shape = tuple((field.name, str(field.type)) for field in schema)
    return Proven(place, rows, size, tuple(schema.names), shape)


def check_totals(commit: Commit) -> None:
    """Check that the files contain as many rows and dead letters as the batch counted.

    Raises:
        StagingFailed: the numbers differ.
    """
    for name, files, counted in (
        ("dead letters", commit.dead_letters, commit.totals.dead_letters),
        *(("rows", write.files, write.totals.rows) for write in commit.tables),
        *(("deletes", write.deletes, write.totals.deletes) for write in commit.tables),
    ):
        staged = sum(file.rows for file in files)
        if staged != counted:
            raise StagingFailed(f"batch {commit.id}: {staged} {name} are staged, {counted} were counted")
