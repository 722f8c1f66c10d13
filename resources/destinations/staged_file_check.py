"""Proof that staged files are what the tasks reported, before any table is touched.

Formats verify nothing at commit: a missing, truncated or exchanged file would be accepted and found by a reader later
(docs/design.md, rule 8). So the driver looks at every byte once more. In an object store it asks for the SHA-256 that the store
has computed when the file was put there, and reads the footer: an object is never changed in place.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch.batch import Commit, StagedFile
from kpipe.errors import StagingFailed, StoreUnreachable
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.object_store.open_file import opened
from resources.object_store.uri import is_remote

__all__ = ["Proven", "Writes", "added", "check_totals", "verify"]

_BLOCK = 1 << 20  # bytes hashed at once: large enough for hashlib to release the GIL, small enough for the cache
_AGAIN = "run it again: the batch is read and staged anew"


@dataclass(frozen=True)
class Proven:
    """A staged file that was looked at.

    Attributes:
        path: without any symbolic link below the staging root; or the object's name.
        rows: as its footer says.
        names: of its columns, in order.
        shape: names and types as text: files of one shape can be read together.
    """

    path: str
    rows: int
    names: tuple[str, ...]
    shape: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Writes:
    """A batch's files of rows and of deletes."""

    rows: Sequence[Proven]
    deletes: Sequence[Proven] = ()


def added(files: Sequence[Proven]) -> dict[Part, Holding]:
    """How many rows the files hold of each partition, and the sum of their offsets."""
    result: dict[Part, Holding] = {}
    for file in files:
        names = [name for name in ("_kafka_topic", "_kafka_partition") if name in file.names]
        found = pq.read_table(file.path, columns=[*names, "_kafka_offset"])
        for row in found.group_by(names).aggregate([([], "count_all"), ("_kafka_offset", "sum")]).to_pylist():
            topic, number = row.get("_kafka_topic"), row["_kafka_partition"]
            name = f"{topic}:{number}" if topic else number
            old = result.get(name, Holding())
            result[name] = Holding(old.rows + row["count_all"], old.offsets + (row["_kafka_offset_sum"] or 0))
    return result


def verify(files: Sequence[StagedFile], roots: Sequence[Path | str]) -> list[Proven]:
    """Look at every file: place, size, rows, hash, footer.

    Args:
        files: as reported.
        roots: folders that staged files may lie in, at any depth; or beginnings of objects' names.

    Raises:
        StagingFailed: a file is not what was reported; the message names it.
    """
    return [_in_store(file, roots) if is_remote(file.path) else _verify(file, _place(file.path, roots)) for file in files]


def _place(path: str, roots: Sequence[Path | str]) -> str:
    """The path with the root resolved, proven to lead through no symbolic link below it."""
    for root in roots:
        if is_remote(root):
            continue
        real = Path(os.path.realpath(root))
        for known in (Path(os.path.abspath(root)), real):  # resolve() would follow the links looked for
            if Path(path).is_absolute() and Path(path).is_relative_to(known) and ".." not in Path(path).parts:
                place = str(real / Path(path).relative_to(known))
                if os.path.realpath(place) != place:
                    raise StagingFailed(f"staged file {path!r} is reached through a symbolic link", _AGAIN)
                return place
    raise _outside(path, roots)


def _outside(path: str, roots: Sequence[Path | str]) -> StagingFailed:
    where = ", ".join(map(str, roots)) or "nowhere"
    return StagingFailed(f"staged file {path!r} lies outside of the staging folders ({where})", "stage below one of them")


def _in_store(file: StagedFile, roots: Sequence[Path | str]) -> Proven:
    """The same of an object: its place, its size, what the store has summed up, its footer."""
    from resources.object_store.s3 import store

    if ".." in file.path.split("/") or not any(
        file.path.startswith(f"{str(root).rstrip('/')}/") for root in roots if is_remote(root)
    ):
        raise _outside(file.path, roots)
    try:
        found = store().head(file.path)
        if found is None:
            raise StagingFailed(f"staged file {file.path!r} is gone", _AGAIN)
        if found.size != file.size:
            raise StagingFailed(f"staged file {file.path!r} holds {found.size} bytes, {file.size} were reported", _AGAIN)
        if not found.sha256:
            hint = "use a store that keeps SHA-256 checksums of objects"
            raise StagingFailed(f"staged file {file.path!r}: the store cannot tell what it holds", hint)
        if found.sha256 != file.sha256:
            raise StagingFailed(f"staged file {file.path!r} holds other bytes than were reported (sha256)", _AGAIN)
        with opened(file.path) as stream:
            return _read(file, file.path, stream)
    except OSError as error:
        kind = StoreUnreachable if getattr(error, "passes", False) else StagingFailed
        raise kind(f"staged file {file.path!r} cannot be read: {error.strerror or error}", _AGAIN) from error


def _verify(file: StagedFile, place: str) -> Proven:
    try:
        # O_NONBLOCK: to open a pipe would wait for its writer. Python refuses folders here.
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        stream = os.fdopen(descriptor, "rb", closefd=True)
    except OSError as error:
        raise StagingFailed(f"staged file {place!r} cannot be read: {error.strerror}", _AGAIN) from error
    with stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise StagingFailed(f"staged file {place!r} is not a regular file", _AGAIN)
        if found.st_size != file.size:
            raise StagingFailed(f"staged file {place!r} holds {found.st_size} bytes, {file.size} were reported", _AGAIN)
        digest = hashlib.sha256()
        while block := stream.read(_BLOCK):
            digest.update(block)
        if digest.hexdigest() != file.sha256:
            raise StagingFailed(f"staged file {place!r} holds other bytes than were reported (sha256)", _AGAIN)
        stream.seek(0)
        return _read(file, place, stream)


def _read(file: StagedFile, place: str, stream: BinaryIO) -> Proven:
    try:
        with pq.ParquetFile(stream) as parquet:
            rows, schema = parquet.metadata.num_rows, parquet.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise StagingFailed(f"staged file {place!r} is not a Parquet file: {error}", _AGAIN) from error
    if rows != file.rows:
        raise StagingFailed(f"staged file {place!r} holds {rows} rows, {file.rows} were reported", _AGAIN)
    shape = tuple((field.name, str(field.type)) for field in schema)
    return Proven(place, rows, tuple(schema.names), shape)


def check_totals(commit: Commit) -> None:
    """The files together hold as many rows and dead letters as the batch counted.

    Raises:
        StagingFailed: they do not.
    """
    totals = commit.totals
    for name, files, counted in (
        ("rows", commit.files, totals.rows),
        ("dead letters", commit.dead_letters, totals.dead_letters),
        ("deletes", commit.deletes, totals.deletes),
    ):
        staged = sum(file.rows for file in files)
        if staged != counted:
            raise StagingFailed(f"batch {commit.id}: {staged} {name} are staged, {counted} were counted")
