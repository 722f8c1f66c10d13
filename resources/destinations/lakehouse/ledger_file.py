"""The ledger of one pipeline as a file: everything about it at one moment, named by what it holds.

A commit writes the next record, and the table's own commit names it (`Pointer`). So whatever a record speaks of - lanes,
history, dead letters - becomes visible with the rows, at once, or never. A record that no table names is litter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kpipe.batch.batch import Commit
from kpipe.errors import LedgerMismatch
from kpipe.ledger import format_version
from kpipe.ledger.ledger import Lane, Ledger, check_seal, seal
from kpipe.topics import PartitionId, TopicId
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.ledger_rows import SKIPS, end_rows

__all__ = ["STEPS", "Pointer", "Record", "Segment", "folder_of", "lane_id", "mark", "pipeline_of", "read", "write"]

Item = Mapping[str, Any]  # one commit: its row of kpipe_commits, its ranges, its files of dead letters

#: By the format that each upgrades from. A record is upgraded when it is read; the next commit writes it so. Segments and files
#: of dead letters are never written again: what reads them must read every format.
STEPS: dict[int, Callable[[dict[str, Any]], None]] = {0: format_version.unchanged}


def mark(data: bytes) -> int:
    """63 bits over a file's bytes: what fits into a version of a Delta transaction."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") >> 1


def folder_of(pipeline: str) -> str:
    """Name of the pipeline's folder: its name in hex, which every file system tells apart."""
    return pipeline.encode().hex()


def pipeline_of(folder: str) -> str | None:
    """The pipeline whose folder that is; None where it is another's."""
    try:
        return bytes.fromhex(folder).decode()
    except ValueError:
        return None


@dataclass(frozen=True)
class Pointer:
    """What the table's commit says of a pipeline: which record holds, and where its lanes stand.

    Attributes:
        seq: sequence number of the pipeline's last commit.
        mark: over the bytes of its record.
        lanes: next offset by lane, where the table keeps these as well.
    """

    seq: int
    mark: int
    lanes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, said: str | None) -> Pointer | None:
        """What stands in a table as `SEQ:MARK`, the latter in hexadecimal; None where nothing does."""
        if said is None:
            return None
        seq, _, mark = said.partition(":")
        return cls(int(seq), int(mark, 16))

    @property
    def name(self) -> str:
        """Name of the record's file."""
        return f"{self.seq:012}-{self.mark:016x}.json"


@dataclass(frozen=True)
class Segment:
    """A file with older commits.

    Attributes:
        name: of the file.
        mark: over its bytes.
        level: how often it was merged.
        first: sequence number of its first commit.
        last: of its last.
    """

    name: str
    mark: int
    level: int
    first: int
    last: int


@dataclass(frozen=True)
class Record:
    """One moment of a pipeline's ledger.

    Attributes:
        pipeline: its name.
        uid: made at the first commit, never changed.
        seq: sequence number of the last commit.
        seal: over the lanes (`kpipe.ledger.ledger.seal`).
        lanes: all of them.
        table: name of the table that the last commit wrote.
        base: version of the table that the commit was made upon.
        rows: written so far.
        dead_letters: set aside so far.
        skipped: jumps ahead, accepted losses, batches that failed for good.
        reread: whether offsets were ever made unread again: lanes alone do not tell then whether a batch has landed.
        last: id of the last batch.
        created: of the first commit, seconds since 1970.
        updated: of the last.
        config: the pipeline's definition for people.
        published: every commit up to this one has been mirrored, or has nothing to mirror.
        ends: rows of `kpipe_partitions` by partition.
        tail: the newest commits, oldest first.
        segments: files with the older ones, in order.
        gone: names of files that are superseded, with the commit that did it.
    """

    pipeline: str
    uid: str
    seq: int = 0
    seal: int = 0
    lanes: Mapping[tuple[PartitionId, int], Lane] = field(default_factory=dict)
    table: str = ""
    base: int = -1
    rows: int = 0
    dead_letters: int = 0
    skipped: int = 0
    reread: bool = False
    last: str = ""
    created: float = 0.0
    updated: float = 0.0
    config: Mapping[str, Any] = field(default_factory=dict)
    published: int = 0
    ends: Mapping[str, Item] = field(default_factory=dict)
    tail: tuple[Item, ...] = ()
    segments: tuple[Segment, ...] = ()
    gone: tuple[tuple[int, str], ...] = ()

    @property
    def ledger(self) -> Ledger:
        """The lanes as the core knows them."""
        return Ledger(self.pipeline, self.seq, self.lanes, self.dead_letters)

    def after(self, commit: Commit, ledger: Ledger, table: str, config: Mapping[str, Any], now: float) -> Record:
        """Return the record of a commit behind this one: its sums, ledger and ends; what is stored elsewhere stays as it is.

        Args:
            commit: what is written.
            ledger: after the commit.
            table: that it writes.
            config: the pipeline's definition for people.
            now: seconds since 1970.
        """
        moved = (lane for change in commit.changes for lane in (change.expect, change.become))
        ends = {json.dumps([row["cluster_id"], row["topic_id"], row["topic"], row["partition"]]): row for row in end_rows(commit)}
        return replace(
            self,
            seq=ledger.seq,
            seal=self.seal ^ seal(moved),
            lanes=ledger.lanes,
            table=table,
            rows=self.rows + commit.totals.rows,
            dead_letters=self.dead_letters + commit.totals.dead_letters,
            skipped=self.skipped + (commit.kind in SKIPS),
            reread=self.reread or commit.kind == "reread",
            last=commit.id,
            updated=now,
            config={"json": json.dumps(config)},
            ends={**self.ends, **ends},
        )

    def encoded(self) -> bytes:
        """As a file."""
        said: dict[str, Any] = {format_version.MEMBER: format_version.FORMAT_VERSION}
        said |= {item.name: getattr(self, item.name) for item in fields(self)}
        said["lanes"] = [_flat(lane) for lane in self.lanes.values()]
        said["segments"] = [[getattr(segment, item.name) for item in fields(Segment)] for segment in self.segments]
        return json.dumps(said, separators=(",", ":"), default=str).encode()

    @classmethod
    def decoded(cls, data: bytes, where: str = "the ledger") -> Record:
        """From a file.

        Raises:
            FormatTooNew: a newer kpipe has written it.
            ValueError, TypeError, KeyError: it is not a record.
        """
        said = format_version.upgraded(json.loads(data), where, STEPS)
        lanes = (_lane(*values) for values in said["lanes"])
        said["lanes"] = {lane.key: lane for lane in lanes}
        said["tail"] = tuple(said["tail"])
        said["segments"] = tuple(Segment(*values) for values in said["segments"])
        said["gone"] = tuple((seq, name) for seq, name in said["gone"])
        return cls(**said)


def read(folder: Folder, pipeline: str, pointer: Pointer, where: str) -> Record | None:
    """The record that the pointer names; None when there is no such file (it was superseded, or lost).

    Raises:
        LedgerMismatch: it is not what a commit has left.
        FormatTooNew: a newer kpipe has written it.
    """
    data = folder.read(f"{folder_of(pipeline)}/{pointer.name}")
    if data is None:
        return None
    try:
        record = Record.decoded(data, where) if mark(data) == pointer.mark else None
    except (ValueError, TypeError, KeyError) as error:
        raise _edited(pipeline, where, pointer) from error
    if record is None or (record.pipeline, record.seq) != (pipeline, pointer.seq):
        raise _edited(pipeline, where, pointer)
    check_seal(record.ledger, record.seal, where)
    return record


def write(folder: Folder, record: Record) -> Pointer:
    """Make the record's file; nobody sees it before a table names it.

    Raises:
        DestinationError: the disk refuses.
    """
    data = record.encoded()
    pointer = Pointer(record.seq, mark(data), {lane_id(lane): lane.next for lane in record.lanes.values()})
    folder.write(f"{folder_of(record.pipeline)}/{pointer.name}", data)
    return pointer


def lane_id(lane: Lane) -> str:
    """What names a lane in text."""
    topic = lane.source.topic
    return json.dumps([topic.cluster, topic.topic_id, topic.name, lane.source.partition, lane.start], separators=(",", ":"))


def _edited(pipeline: str, where: str, pointer: Pointer) -> LedgerMismatch:
    return LedgerMismatch(
        f"pipeline {pipeline}: the ledger in {where} was changed by hand: record {pointer.name} is not what a commit has left",
        "restore a backup; or go on under another pipeline name, with source.start where the table ends",
    )


def _flat(lane: Lane) -> list[Any]:
    topic = lane.source.topic
    return [topic.cluster, topic.topic_id, topic.name, lane.source.partition, lane.start, lane.next, lane.end, lane.kind]


def _lane(cluster: str, topic_id: str, topic: str, partition: int, start: int, next: int, end: int | None, kind: str) -> Lane:
    return Lane(PartitionId(TopicId(cluster, topic_id, topic), partition), start, next, end, kind)
