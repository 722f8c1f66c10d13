"""The ledger of one pipeline: a compacted topic of one partition. The newest `state` is valid; each `commit/...` is kept.

Both are written in the transaction that writes the rows, and read with isolation `read_committed`. Other writers are not allowed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kpipe.errors import DestinationError, LedgerMismatch
from kpipe.ledger.ledger import verify_checksum
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from resources.destinations.kafka_sink.cluster import Cluster, Ends, Topic
from resources.destinations.kafka_sink.messages import Message
from resources.destinations.lakehouse.ledger_file import Item, Record

__all__ = ["SETTINGS", "Journal", "JournalState", "State", "Written", "newest_value", "prepare"]

_STATE, _COMMIT = b"state", b"commit/"
#: Settings of a new ledger topic. Compaction deletes superseded states only; segments of one day keep few of them.
SETTINGS = {"cleanup.policy": "compact", "segment.ms": "86400000"}
_FIRST_LOOK, _LONGER = 16, 16  # offsets to read from the end to find a state; factor of the next attempt
_SETTLE_S = 2.0  # usual time until a committed transaction becomes readable


@dataclass(frozen=True)
class Written:
    """A topic that rows were written to, as commits recorded it.

    Attributes:
        id: of the topic.
        starts: log start offsets by partition at the first write.
        rows: rows written so far.
    """

    id: str
    starts: Mapping[int, int] = field(default_factory=dict)
    rows: int = 0

    def encoded(self) -> dict[str, Any]:
        """Return the value as a JSON object."""
        return {"id": self.id, "starts": {str(number): at for number, at in self.starts.items()}, "rows": self.rows}

    @classmethod
    def decoded(cls, said: Mapping[str, Any]) -> Written:
        """Parse a JSON object of `encoded`."""
        return cls(said["id"], {int(number): at for number, at in said["starts"].items()}, said["rows"])


@dataclass(frozen=True)
class State:
    """The state after the newest commit.

    Attributes:
        record: lanes, totals, and the pipeline's row.
        columns: of the rows so far.
        target: id of the topic that rows were written to.
        starts: log start offsets by partition at the first write.
        former: earlier topics with rows, by name; incomplete where versions without this field committed.
    """

    record: Record
    columns: Columns = field(default_factory=Columns)
    target: str = ""
    starts: Mapping[int, int] = field(default_factory=dict)
    former: Mapping[str, Written] = field(default_factory=dict)

    def written(self, topic: str) -> Written | None:
        """Return what commits recorded about a topic; None: no commit wrote to it."""
        return self._all().get(topic)

    def besides(self, topic: str) -> Mapping[str, Written]:
        """Return every topic but this one: the former topics of a commit that writes to it."""
        return {name: found for name, found in self._all().items() if name != topic}

    def _all(self) -> Mapping[str, Written]:
        return {**self.former, self.record.table: Written(self.target, self.starts, self.record.rows)}

    def encoded(self) -> bytes:
        """Serialize the state as a record's value."""
        said = {
            "record": json.loads(self.record.encoded()),
            "columns": {name: str(kind) for name, kind in self.columns},
            "target": self.target,
            "starts": {str(number): at for number, at in self.starts.items()},
            "former": {name: found.encoded() for name, found in self.former.items()},
        }
        return _packed(said)

    @classmethod
    def decoded(cls, data: bytes, where: str = "the ledger") -> State:
        """Parse a record's value; its ledger records the format of all of it."""
        said = json.loads(gzip.decompress(data))
        record = Record.decoded(json.dumps(said["record"]).encode(), where)
        starts = {int(number): at for number, at in said["starts"].items()}
        former = {name: Written.decoded(found) for name, found in said.get("former", {}).items()}
        return cls(record, Columns.of(said["columns"]), said["target"], starts, former)


@dataclass(frozen=True)
class JournalState:
    """The ledger topic at one moment.

    Attributes:
        topic: its identity; None: it does not exist.
        ends: of its partition; while `stable` is below `high`, a transaction is in progress.
        state: the newest; None before the first commit.
    """

    topic: Topic | None
    ends: Ends
    state: State | None


@dataclass(frozen=True)
class _Searched:
    """The commits that were searched so far.

    Attributes:
        topic: id of the ledger topic.
        next: offset to read next; a lower end of the topic means that its log was cut.
        hashes: of their batch ids, 8 bytes a commit.
    """

    topic: str = ""
    next: int = 0
    hashes: np.ndarray[Any, Any] = field(default_factory=lambda: np.array([], np.int64))


class Journal:
    """The ledger topic of one pipeline.

    Args:
        cluster: the topic's cluster.
        topic: its name.
        pipeline: the pipeline's name.
        where: the destination, for messages.
    """

    def __init__(self, cluster: Cluster, topic: str, pipeline: str, where: str) -> None:
        self._cluster, self.topic, self._pipeline, self._where = cluster, topic, pipeline, where
        self._searched = _Searched()

    def prepare(self) -> None:
        """Create the topic if it is missing, and check that it never loses commits.

        Raises:
            DestinationError: its cleanup policy deletes commits, or it does not have exactly one partition.
        """
        prepare(self._cluster, self.topic, self._where, "into.ledger")

    def look(self) -> JournalState:
        """Read the newest state, after a short wait for transactions that are ending.

        Raises:
            DestinationError: the topic cannot be read.
            LedgerMismatch: the state was not written by a commit.
        """
        topic = self._cluster.topic(self.topic)
        if topic is None:
            return JournalState(None, Ends(0, 0, 0), None)
        ends = self._settled(topic)
        newest = newest_value(self._cluster, self.topic, ends, _STATE)
        return JournalState(topic, ends, self._state(newest) if newest is not None else None)

    def _settled(self, topic: Topic) -> Ends:
        return self._cluster.settled(topic, _SETTLE_S)[0]

    def items(self, look: JournalState, after: int = 0) -> Iterator[tuple[int, Item]]:
        """Read commits of the topic at one moment in order, each with its offset; from the offset `after` on.

        Raises:
            DestinationError: the topic cannot be read.
            LedgerMismatch: a commit is missing.
        """
        if look.topic is None:
            return
        first = max(after, look.ends.start)
        for held in self._cluster.read(self.topic, 0, Range(min(first, look.ends.stable), look.ends.stable)):
            for offset, key, value in zip(held.offsets, held.keys(), held.values, strict=True):
                if key is not None and value is not None and key.startswith(_COMMIT):
                    yield offset, json.loads(gzip.decompress(value))

    def all(self, look: JournalState) -> list[Item]:
        """Read every commit, in order.

        Raises:
            LedgerMismatch: a commit is missing.
        """
        found = [item for _, item in self.items(look)]
        seqs = [item["commit"]["seq"] for item in found]
        last = look.state.record.seq if look.state is not None else 0
        if seqs != list(range(1, last + 1)):
            raise LedgerMismatch(
                f"pipeline {self._pipeline}: ledger topic {self.topic} is incomplete: expected {last} commits, found {len(seqs)}:"
                " records were deleted",
                "check the topic's cleanup.policy; rows cannot be verified any more, the newest state is still valid",
            )
        return found

    def find(self, look: JournalState, batch: str) -> int | None:
        """Return the sequence number of a batch; None: it is not committed. Reads each commit once: commits never change.

        After a REREAD, or without lane changes, each commit is searched before it is made (`delivery: at_least_once`).
        """
        if look.state is not None and look.state.record.last == batch:
            return look.state.record.seq
        if look.topic is None:
            return None
        known, end = self._searched, look.ends.stable
        if known.topic != look.topic.id or known.next > end or hash(batch) in known.hashes:
            known = _Searched(look.topic.id)
        found: int | None = None
        hashes: list[int] = []
        for held in self._cluster.read(self.topic, 0, Range(min(max(known.next, look.ends.start), end), end)):
            keys = held.keys()
            for key in keys:
                if key is not None and key.startswith(_COMMIT):
                    _, seq, name = key.decode().split("/", 2)
                    hashes.append(hash(name))
                    found = int(seq) if name == batch else found
        self._searched = _Searched(known.topic, end, np.concatenate((known.hashes, np.array(hashes, np.int64))))
        return found

    def messages(self, item: Item, state: State) -> list[Message]:
        """Build the records of a commit; the state comes last."""
        commit = item["commit"]
        key = f"commit/{commit['seq']:012}/{commit['batch_id']}".encode()
        pairs = ((key, _packed(item)), (_STATE, state.encoded()))
        return [{"topic": self.topic, "partition": 0, "key": key, "value": value} for key, value in pairs]

    def _state(self, data: bytes) -> State:
        try:
            state = State.decoded(data, f"{self._where}, ledger topic {self.topic}")
        except (OSError, EOFError, ValueError, TypeError, KeyError) as error:
            raise self._edited() from error
        if state.record.pipeline != self._pipeline:
            raise self._edited()
        verify_checksum(state.record.ledger, state.record.seal, self._where)
        return state

    def _edited(self) -> LedgerMismatch:
        return LedgerMismatch(
            f"pipeline {self._pipeline}: the ledger in {self._where} was changed by hand: the newest state in topic {self.topic}"
            " was not written by a commit",
            "delete that record; or continue under another pipeline name, with source.start at the topic's end",
        )


def prepare(cluster: Cluster, topic: str, where: str, field: str) -> None:
    """Create a compacted topic of one partition if it is missing, and check that it keeps the newest record of each key.

    Args:
        cluster: the topic's cluster.
        topic: its name.
        where: its owner, for messages.
        field: the field of the definition that names another topic.

    Raises:
        DestinationError: its cleanup policy deletes records, or it does not have exactly one partition.
    """
    found = cluster.topic(topic)
    if found is None:
        cluster.make(topic, SETTINGS)
        found = cluster.topic(topic)
    if found is None or found.partitions != 1:
        how = "is missing after its creation" if found is None else f"expected 1 partition, found {found.partitions}"
        raise DestinationError(f"{where}: ledger topic {topic}: {how}", f"set another topic: {field}")
    policy = cluster.settings(topic).get("cleanup.policy", "")
    if policy != "compact":
        raise DestinationError(
            f"{where}: ledger topic {topic} has cleanup.policy {policy}, which would delete the ledger",
            f"kafka-configs.sh --alter --topic {topic} --add-config cleanup.policy=compact",
        )


def newest_value(cluster: Cluster, topic: str, ends: Ends, key: bytes) -> bytes | None:
    """Return the value of the newest committed record with a key, read from the end; None: there is none.

    Raises:
        DestinationError: the topic cannot be read.
    """
    step = _FIRST_LOOK
    while True:
        low, newest = max(ends.start, ends.stable - step), None
        for held in cluster.read(topic, 0, Range(low, ends.stable)):
            for found, value in zip(held.keys(), held.values, strict=True):
                newest = value if found == key else newest
        if newest is not None or low == ends.start:
            return newest
        step *= _LONGER


def _packed(said: Any) -> bytes:
    return gzip.compress(json.dumps(said, separators=(",", ":"), default=str).encode(), 1, mtime=0)
