"""Store commits as files: the newest in the ledger file, older ones in segments, which are merged as their number grows.

A commit writes some 64 KiB at most, however long the history is, and a full read opens few files.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from kpipe.errors import LedgerMismatch
from kpipe.verification.recount import Entry
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.ledger_file import Item, Record, Segment, folder_of, mark, missing
from resources.destinations.ledger_rows import entry

__all__ = ["BatchSearch", "entries", "extended", "items", "with_letters"]

_TAIL_BYTES, _TAIL_COMMITS = 64 << 10, 64  # limits of the history in a ledger file before it becomes a segment
_FANOUT = 16  # segments of one level that are merged into one of the next


def extended(folder: Folder, record: Record, item: Item) -> Record:
    """Append a commit to the record's history. Writes a segment when the record's part is full.

    Raises:
        DestinationError: a file cannot be written.
        LedgerMismatch: an older segment was not written by a commit.
    """
    tail = (*record.tail, item)
    size = len(json.dumps(tail, default=str))
    if len(tail) < _TAIL_COMMITS and size < _TAIL_BYTES:
        return replace(record, tail=tail)
    segments, gone = [*record.segments, _made(folder, record.pipeline, 0, tail)], list(record.gone)
    level = 0
    while sum(segment.level == level for segment in segments) >= _FANOUT:
        merged = [segment for segment in segments if segment.level == level]
        inside = [item for segment in merged for item in _read(folder, record.pipeline, segment)]
        segments = [segment for segment in segments if segment.level > level]
        segments.append(_made(folder, record.pipeline, level + 1, inside))
        gone += [(record.seq, segment.name) for segment in merged]
        level += 1
    return replace(record, tail=(), segments=tuple(segments), gone=tuple(gone))


def entries(folder: Folder, record: Record) -> list[Entry]:
    """Read every committed range, in order of commit; see `items`."""
    names = ("cluster_id", "topic_id", "topic", "batch_source_partition_id", "batch_earliest_offset")
    ordered = (sorted(item["ranges"], key=lambda row: tuple(row[name] for name in names)) for item in items(folder, record))
    return [entry(row) for rows in ordered for row in rows]


def items(folder: Folder, record: Record, newest_first: bool = False, after: int = 0) -> Iterator[Item]:
    """Read commits with a higher sequence number than `after`.

    Raises:
        LedgerMismatch: a segment is missing, or was not written by a commit.
    """
    if newest_first:
        yield from (item for item in reversed(record.tail) if item["commit"]["seq"] > after)
        for segment in reversed(record.segments):
            if segment.last > after:
                found = _read(folder, record.pipeline, segment)
                yield from (item for item in reversed(found) if item["commit"]["seq"] > after)
        return
    for segment in record.segments:
        if segment.last > after:
            found = _read(folder, record.pipeline, segment)
            yield from (item for item in found if item["commit"]["seq"] > after)
    yield from (item for item in record.tail if item["commit"]["seq"] > after)


def with_letters(items: Iterable[Item], limit: int | None) -> Iterator[Item]:
    """Yield commits with dead letters until they contain `limit` letters."""
    found = 0
    for item in items:
        if limit is not None and found >= limit:
            return
        if item["dead"]:
            found += sum(file["rows"] for file in item["dead"])
            yield item


class BatchSearch:
    """Find the commits of batches, and read each segment once: segments never change.

    After a REREAD, or without lane changes, each commit is searched before it is made (`delivery: at_least_once`).
    """

    def __init__(self) -> None:
        self._hashes: dict[str, np.ndarray] = {}  # of the batches of each segment, by its name: 8 bytes a commit

    def find(self, folder: Folder, record: Record, batch: str) -> Item | None:
        """Return the commit of a batch; None: it is not committed. Reads the newest commits first."""
        self._hashes = {
            segment.name: known for segment in record.segments if (known := self._hashes.get(segment.name)) is not None
        }
        found = _of_batch(record.tail, batch)
        for segment in reversed(record.segments):
            known = self._hashes.get(segment.name)
            if found is not None:
                break
            if known is None or hash(batch) in known:
                inside = _read(folder, record.pipeline, segment)
                self._hashes[segment.name] = np.array([hash(item["commit"]["batch_id"]) for item in inside], np.int64)
                found = _of_batch(inside, batch)
        return found


def _of_batch(items: Sequence[Item], batch: str) -> Item | None:
    return next((item for item in reversed(items) if item["commit"]["batch_id"] == batch), None)


def _made(folder: Folder, pipeline: str, level: int, inside: Sequence[Item]) -> Segment:
    data = gzip.compress(json.dumps(list(inside), separators=(",", ":"), default=str).encode(), 1, mtime=0)
    first, last = inside[0]["commit"]["seq"], inside[-1]["commit"]["seq"]
    made = Segment(f"{first:012}-{last:012}-{mark(data):016x}.json.gz", mark(data), level, first, last)
    folder.write(f"{folder_of(pipeline)}/{made.name}", data)
    return made


def _read(folder: Folder, pipeline: str, segment: Segment) -> Sequence[Item]:
    data = folder.read(f"{folder_of(pipeline)}/{segment.name}")
    if data is None:
        raise missing(folder, pipeline, segment.name)
    if mark(data) != segment.mark:
        raise LedgerMismatch(
            f"pipeline {pipeline}: the history in {folder.place} was changed by hand: {segment.name} is not written by a commit",
            "restore a backup of the folder",
        )
    found: Sequence[Item] = json.loads(gzip.decompress(data))
    return found
