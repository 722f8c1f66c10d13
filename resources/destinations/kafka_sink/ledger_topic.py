"""The ledger of one pipeline as a topic of one partition, compacted: the newest `state` holds, each `commit/...` is kept.

Both are written by the transaction that writes the rows, and read as committed. Nobody else writes there.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kpipe.errors import DestinationError, LedgerMismatch
from kpipe.ledger.ledger import check_seal
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from resources.destinations.kafka_sink.cluster import Cluster, Ends, Topic
from resources.destinations.kafka_sink.messages import Message
from resources.destinations.lakehouse.ledger_file import Item, Record

__all__ = ["SETTINGS", "Journal", "Look", "State", "Written"]

_STATE, _COMMIT = b"state", b"commit/"
#: What the topic is made with. Only superseded states go; a log of one day in a segment keeps little of them.
SETTINGS = {"cleanup.policy": "compact", "segment.ms": "86400000"}
_FIRST_LOOK, _LONGER = 16, 16  # offsets read back from the end until a state is among them; then so many times more
_SETTLE_S = 2.0  # a transaction that has been decided becomes readable within that, as a rule


@dataclass(frozen=True)
class Written:
    """A topic that rows were written to, as commits have noted it.

    Attributes:
        id: of the topic.
        starts: where its partitions began when they were written first.
        rows: written so far.
    """

    id: str
    starts: Mapping[int, int] = field(default_factory=dict)
    rows: int = 0

    def encoded(self) -> dict[str, Any]:
        """As a member of a record's value."""
        return {"id": self.id, "starts": {str(number): at for number, at in self.starts.items()}, "rows": self.rows}

    @classmethod
    def decoded(cls, said: Mapping[str, Any]) -> Written:
        """From a member of a record's value."""
        return cls(said["id"], {int(number): at for number, at in said["starts"].items()}, said["rows"])


@dataclass(frozen=True)
class State:
    """What the newest commit says.

    Attributes:
        record: lanes, totals, and the pipeline's own row.
        columns: of the rows so far.
        target: id of the topic that rows were written to.
        starts: where its partitions began when they were written first.
        former: topics that rows were written to before, by name. Those that versions without this field have left are missing.
    """

    record: Record
    columns: Columns = field(default_factory=Columns)
    target: str = ""
    starts: Mapping[int, int] = field(default_factory=dict)
    former: Mapping[str, Written] = field(default_factory=dict)

    def written(self, topic: str) -> Written | None:
        """Return what commits have noted of a topic; None where none has."""
        return self._all().get(topic)

    def besides(self, topic: str) -> Mapping[str, Written]:
        """Return every topic but this one: the former ones of a commit that writes to it."""
        return {name: found for name, found in self._all().items() if name != topic}

    def _all(self) -> Mapping[str, Written]:
        return {**self.former, self.record.table: Written(self.target, self.starts, self.record.rows)}

    def encoded(self) -> bytes:
        """As the value of a record."""
        said = {
            "record": json.loads(self.record.encoded()),
            "columns": {name: str(kind) for name, kind in self.columns},
            "target": self.target,
            "starts": {str(number): at for number, at in self.starts.items()},
            "former": {name: found.encoded() for name, found in self.former.items()},
        }
        return _packed(said)

    @classmethod
    def decoded(cls, data: bytes) -> State:
        """From the value of a record."""
        said = json.loads(gzip.decompress(data))
        record = Record.decoded(json.dumps(said["record"]).encode())
        starts = {int(number): at for number, at in said["starts"].items()}
        former = {name: Written.decoded(found) for name, found in said.get("former", {}).items()}
        return cls(record, Columns.of(said["columns"]), said["target"], starts, former)


@dataclass(frozen=True)
class Look:
    """One look at the topic.

    Attributes:
        topic: as it was; None where there is none.
        ends: of its partition; while `stable` is below `high`, some transaction that wrote there has not ended.
        state: the newest; None when nothing has been committed.
    """

    topic: Topic | None
    ends: Ends
    state: State | None


class Journal:
    """The topic of one pipeline's ledger.

    Args:
        cluster: that holds it.
        topic: its name.
        pipeline: the pipeline's name.
        where: the destination, for messages.
    """

    def __init__(self, cluster: Cluster, topic: str, pipeline: str, where: str) -> None:
        self._cluster, self.topic, self._pipeline, self._where = cluster, topic, pipeline, where

    def prepare(self) -> None:
        """Make the topic when it is missing, and prove that it keeps what it is given.

        Raises:
            DestinationError: it would lose commits, or is no topic of one partition.
        """
        found = self._cluster.topic(self.topic)
        if found is None:
            self._cluster.make(self.topic, SETTINGS)
            found = self._cluster.topic(self.topic)
        if found is None or found.partitions != 1:
            how = "is not there after it was made" if found is None else f"has {found.partitions} partitions, a ledger has one"
            raise DestinationError(f"{self._where}: ledger topic {self.topic} {how}", "name another: into.ledger")
        policy = self._cluster.settings(self.topic).get("cleanup.policy", "")
        if policy != "compact":
            raise DestinationError(
                f"{self._where}: ledger topic {self.topic} has cleanup.policy {policy}, which would remove the ledger",
                f"kafka-configs.sh --alter --topic {self.topic} --add-config cleanup.policy=compact",
            )

    def look(self) -> Look:
        """The newest state, after waiting a little for transactions that are being decided.

        Raises:
            DestinationError: the topic cannot be read.
            LedgerMismatch: the state is not what a commit has left.
        """
        topic = self._cluster.topic(self.topic)
        if topic is None:
            return Look(None, Ends(0, 0, 0), None)
        ends = self._settled(topic)
        step = _FIRST_LOOK
        while True:
            low, newest = max(ends.start, ends.stable - step), None
            for held in self._cluster.read(self.topic, 0, Range(low, ends.stable)):
                for key, value in zip(held.keys(), held.values, strict=True):
                    newest = value if key == _STATE else newest
            if newest is not None:
                return Look(topic, ends, self._state(newest))
            if low == ends.start:
                return Look(topic, ends, None)
            step *= _LONGER

    def _settled(self, topic: Topic) -> Ends:
        return self._cluster.settled(topic, _SETTLE_S)[0]

    def items(self, look: Look, after: int = 0) -> Iterator[tuple[int, Item]]:
        """Commits in order, each with its offset in the topic.

        Args:
            look: at the topic.
            after: offset to begin at.

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

    def all(self, look: Look) -> list[Item]:
        """Every commit, in order.

        Raises:
            LedgerMismatch: one is missing.
        """
        found = [item for _, item in self.items(look)]
        seqs = [item["commit"]["seq"] for item in found]
        last = look.state.record.seq if look.state is not None else 0
        if seqs != list(range(1, last + 1)):
            raise LedgerMismatch(
                f"pipeline {self._pipeline}: ledger topic {self.topic} holds {len(seqs)} commits, its state speaks of {last}:"
                " records were removed",
                "was cleanup.policy changed, or were records deleted? Rows cannot be proven any more; the state still holds",
            )
        return found

    def find(self, look: Look, batch: str) -> int | None:
        """Sequence number of a batch; None when it has not landed."""
        if look.state is not None and look.state.record.last == batch:
            return look.state.record.seq
        for held in self._cluster.read(self.topic, 0, Range(look.ends.start, look.ends.stable)) if look.topic else ():
            keys = held.keys()
            for key in keys:
                if key is not None and key.startswith(_COMMIT) and key.decode().split("/", 2)[2] == batch:
                    return int(key.split(b"/")[1])
        return None

    def messages(self, item: Item, state: State) -> list[Message]:
        """What a commit writes: the state last."""
        commit = item["commit"]
        key = f"commit/{commit['seq']:012}/{commit['batch_id']}".encode()
        pairs = ((key, _packed(item)), (_STATE, state.encoded()))
        return [{"topic": self.topic, "partition": 0, "key": key, "value": value} for key, value in pairs]

    def _state(self, data: bytes) -> State:
        try:
            state = State.decoded(data)
        except (OSError, EOFError, ValueError, TypeError, KeyError) as error:
            raise self._edited() from error
        if state.record.pipeline != self._pipeline:
            raise self._edited()
        check_seal(state.record.ledger, state.record.seal, self._where)
        return state

    def _edited(self) -> LedgerMismatch:
        return LedgerMismatch(
            f"pipeline {self._pipeline}: the ledger in {self._where} was changed by hand: the newest state in topic {self.topic}"
            " is not what a commit has left",
            "remove that record; or go on under another pipeline name, with source.start where the topic ends",
        )


def _packed(said: Any) -> bytes:
    return gzip.compress(json.dumps(said, separators=(",", ":"), default=str).encode(), 1, mtime=0)
