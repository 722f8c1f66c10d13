"""Write and read one pipeline's ledger as an immutable file (a record), whose name contains a checksum of its content.

A commit writes the next record, and the table's own commit names it (`Pointer`). So lanes, history and dead letters become
visible together with the rows, or never. A record that no table names is unused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kpipe.batch.batch import Commit
from kpipe.errors import LedgerMismatch
from kpipe.ledger import format_version
from kpipe.ledger.ledger import Lane, Ledger, checksum, verify_checksum
from kpipe.ledger.tail import Tail
from kpipe.topics import PartitionId, TopicId
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.ledger_rows import SKIPS, end_rows

__all__ = [
    "STEPS",
    "Pointer",
    "Record",
    "Segment",
    "check_by_topic",
    "folder_of",
    "lane_id",
    "lane_of",
    "lane_values",
    "mark",
    "missing",
    "pipeline_of",
    "read",
    "read_all",
    "write",
]

Item = Mapping[str, Any]  # one commit: its row of kpipe_commits, its ranges, its dead-letter files

#: Upgrade steps by the format that they upgrade from. A record is upgraded when it is read, and written by the next commit.
#: Segments and dead-letter files are never rewritten: their readers must support every format.
STEPS: dict[int, Callable[[dict[str, Any]], None]] = {0: format_version.unchanged, 1: format_version.unchanged}


def mark(data: bytes) -> int:
    """Return a checksum of a file's bytes: 63 bits, which fit into the version of a Delta transaction."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") >> 1


def folder_of(pipeline: str) -> str:
    """Return the name of the pipeline's folder: in hexadecimal, so that case-insensitive file systems distinguish all names."""
    return pipeline.encode().hex()


def pipeline_of(folder: str) -> str | None:
    """Return the pipeline of a folder; None: not a pipeline's folder."""
    try:
        return bytes.fromhex(folder).decode()
    except ValueError:
        return None


@dataclass(frozen=True)
class Pointer:
    """Reference from the table's commit to a pipeline's current record.

    Attributes:
        seq: sequence number of the pipeline's last commit.
        mark: checksum of its record's bytes.
        lanes: next offset by lane, for tables that store it as well.
    """

    seq: int
    mark: int
    lanes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, said: str | None) -> Pointer | None:
        """Parse the form `SEQ:MARK` in a table, with MARK in hexadecimal; None: no value."""
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
        mark: checksum of its bytes.
        level: number of merges.
        first, last: sequence numbers of its first and last commit.
    """

    name: str
    mark: int
    level: int
    first: int
    last: int


@dataclass(frozen=True)
class Record:
    """A pipeline's ledger after one commit.

    Attributes:
        pipeline: its name.
        uid: registration id, created by the first commit and never changed.
        seq: sequence number of the last commit.
        seal: checksum of the lanes (`kpipe.ledger.ledger.checksum`).
        lanes: all lanes.
        table: name of the table that the last commit wrote.
        base: version of the table on which the commit was made.
        rows: number of rows written so far.
        dead_letters: number of dead letters so far.
        skipped: number of forward seeks, accepted losses, and batches that failed finally.
        reread: whether offsets were ever made unread again: then lanes alone do not show whether a batch is committed.
        last: id of the last batch.
        created: time of the first commit, seconds since 1970.
        updated: time of the last commit, seconds since 1970.
        config: the pipeline's definition for display.
        published: every commit up to this one is published, or has nothing to publish.
        ends: rows of `kpipe_partitions` by partition.
        tail: the newest commits, oldest first.
        segments: files with older commits, in order.
        `gone`: superseded files, with the sequence number of the commit that superseded them.
        balance: of a table with a key (`row_balance.py`): topic, partition, change of the number of rows and of the sum of their
            offsets by this pipeline's commits; None: it has committed nothing since the table has a key.
        baseline: rows of the table that no commit counts, found by the first commit with a key.
        number: of a pipeline with tables by topic (topics/): number of the last commit among those to all tables; 0: the pipeline
            has one table, and `seq` is the number.
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
    balance: tuple[tuple[str, int, int, int], ...] | None = None
    baseline: int = 0
    number: int = 0

    @property
    def ledger(self) -> Ledger:
        """The lanes as the core's ledger."""
        return Ledger(self.pipeline, self.seq, self.lanes, self.dead_letters)

    def after(self, commit: Commit, ledger: Ledger, table: str, config: Mapping[str, Any], now: float) -> Record:
        """Return the record of the next commit with new sums, ledger and ends; other attributes are unchanged.

        Args:
            commit: the commit.
            ledger: after the commit.
            table: name of the table that it writes.
            config: the pipeline's definition for display.
            now: seconds since 1970.
        """
        moved = (lane for change in commit.changes for lane in (change.expect, change.become))
        ends = {json.dumps([row["cluster_id"], row["topic_id"], row["topic"], row["partition"]]): row for row in end_rows(commit)}
        return replace(
            self,
            seq=ledger.seq,
            seal=self.seal ^ checksum(moved),
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
        """Return the bytes of the record's file."""
        said: dict[str, Any] = {format_version.MEMBER: format_version.FORMAT_VERSION}
        said |= {item.name: getattr(self, item.name) for item in fields(self)}
        if self.balance is None:  # as every kpipe has written it
            del said["balance"], said["baseline"]
        if not self.number:
            del said["number"]
        said["lanes"] = [lane_values(lane) for lane in self.lanes.values()]
        said["segments"] = [[getattr(segment, item.name) for item in fields(Segment)] for segment in self.segments]
        return json.dumps(said, separators=(",", ":"), default=str).encode()

    @classmethod
    def decoded(cls, data: bytes, where: str = "the ledger") -> Record:
        """Parse the bytes of a record's file.

        Raises:
            FormatTooNew: a newer kpipe wrote it.
            ValueError, TypeError, KeyError: it is not a record.
        """
        said = format_version.upgraded(json.loads(data), where, STEPS)
        lanes = (lane_of(values) for values in said["lanes"])
        said["lanes"] = {lane.key: lane for lane in lanes}
        said["tail"] = tuple(said["tail"])
        said["segments"] = tuple(Segment(*values) for values in said["segments"])
        said["gone"] = tuple((seq, name) for seq, name in said["gone"])
        if "balance" in said:
            said["balance"] = tuple(tuple(item) for item in said["balance"])
        return cls(**said)


def read(folder: Folder, pipeline: str, pointer: Pointer, where: str) -> Record | None:
    """Read the record that the pointer names; None: the file is missing (superseded, or lost).

    Raises:
        LedgerMismatch: a commit did not write it.
        FormatTooNew: a newer kpipe wrote it.
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
    verify_checksum(record.ledger, record.seal, where)
    return record


def read_all(folder: Folder, pointer_of: Callable[[str], Pointer | None], where: str) -> Iterator[Record]:
    """Read the records of all pipelines that have committed to a table.

    Args:
        folder: of the table's ledgers.
        pointer_of: returns the table's reference to a pipeline's ledger, at the version to read.
        where: the table, for messages.

    Raises:
        LedgerMismatch, FormatTooNew: see `read`; or a record is missing: superseded (`at_one_version`), or lost.
    """
    for pipeline in filter(None, map(pipeline_of, folder.names(""))):
        pointer = pointer_of(pipeline)
        if pointer is None:
            continue
        record = read(folder, pipeline, pointer, where)
        if record is None:
            raise missing(folder, pipeline, pointer.name)
        yield record


def missing(folder: Folder, pipeline: str, name: str) -> LedgerMismatch:
    """Return the error of a missing file of a pipeline's ledger. Its cause shows `at_one_version` that it may be superseded."""
    error = LedgerMismatch(
        f"pipeline {pipeline}: ledger file {name} is missing in {folder.place}", "restore a backup of the folder"
    )
    error.__cause__ = FileNotFoundError(name)
    return error


def write(folder: Folder, record: Record) -> Pointer:
    """Write the record's file. It has no effect until a table names it.

    Raises:
        DestinationError: the file cannot be written.
    """
    data = record.encoded()
    pointer = Pointer(record.seq, mark(data), {lane_id(lane): lane.next for lane in record.lanes.values()})
    folder.write(f"{folder_of(record.pipeline)}/{pointer.name}", data)
    return pointer


def check_by_topic(record: Record, by_topic: bool, where: str) -> None:
    """Check that a table contains the whole ledger of its pipeline, or with tables by topic that of a topic.

    Raises:
        LedgerMismatch: `into.table` was edited from one to the other.
    """
    if bool(record.number) != by_topic:
        held = "the ledger of one topic only" if record.number else "the ledger of all topics"
        raise LedgerMismatch(
            f"pipeline {record.pipeline}: {where} contains {held}, which an edit of into.table does not move",
            "undo the change of into.table, or use another pipeline name",
        )


def lane_id(lane: Lane) -> str:
    """Return a unique text for a lane."""
    topic = lane.source.topic
    return json.dumps([topic.cluster, topic.topic_id, topic.name, lane.source.partition, lane.start], separators=(",", ":"))


def _edited(pipeline: str, where: str, pointer: Pointer) -> LedgerMismatch:
    return LedgerMismatch(
        f"pipeline {pipeline}: the ledger in {where} was changed by hand: record {pointer.name} was not written by a commit",
        "restore a backup; or use another pipeline name, with source.start at the end of the table",
    )


def lane_values(lane: Lane) -> list[Any]:
    """Return a lane as a value of JSON."""
    topic = lane.source.topic
    values = [topic.cluster, topic.topic_id, topic.name, lane.source.partition, lane.start, lane.next, lane.end, lane.kind]
    return [*values, lane.tail.text] if lane.tail is not None else values


def lane_of(values: list[Any]) -> Lane:
    """Parse what `lane_values` returns.

    Raises:
        ValueError: it is something else.
    """
    cluster, topic_id, topic, partition, start, following, end, kind, *more = values  # the fingerprint may be missing
    tail = Tail.read(next(iter(more), None), following)
    return Lane(PartitionId(TopicId(cluster, topic_id, topic), partition), start, following, end, kind, tail)
