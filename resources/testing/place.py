"""A place to test a destination in: it opens destinations, stages files, injects faults and edits data by hand."""

from __future__ import annotations

import hashlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from kpipe import failpoints
from kpipe.batch.batch import Commit, Counts, Mark, StagedFile, TableWrite
from kpipe.interfaces import Destination
from kpipe.ledger.ledger import Lane, LaneChange, Ledger, Step
from kpipe.ledger.tail import Tail
from kpipe.schema.columns import Columns, ListOf, MapOf, Struct, Type
from kpipe.tables.upsert import KeyRule
from kpipe.testing.commits import commit_to
from kpipe.topics import PartitionId, TopicId
from resources.parquet_statistics import bounded_columns

__all__ = [
    "COLUMNS", "COORDINATES", "DEAD_LETTERS", "HEADERS", "INSTANT", "TOPIC", "Place", "arrow", "batch", "begin", "live",
    "read_step", "source",
]  # fmt: skip

TOPIC = TopicId("cluster-1", "topic-id-1", "tweets")
COLUMNS = Columns.of({"id": "BIGINT", "text": "VARCHAR"})
HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
INSTANT = pa.timestamp("us", "UTC")
COORDINATES = {"_kafka_partition": pa.int32(), "_kafka_offset": pa.int64(), "_kafka_timestamp": INSTANT}
DEAD_LETTERS = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", INSTANT),
        ("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS), ("stage", pa.string()), ("reason", pa.string()),
    ]
)  # fmt: skip
_ARROW = {
    "UTINYINT": pa.uint8(), "UINTEGER": pa.uint32(), "UBIGINT": pa.uint64(),
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "VARCHAR": pa.string(), "JSON": pa.string(), "BLOB": pa.binary(),
    "DATE": pa.date32(), "TIME": pa.time64("us"), "TIMESTAMP": pa.timestamp("us"), "TIMESTAMP WITH TIME ZONE": INSTANT,
    "UUID": pa.string(), "HUGEINT": pa.string(),
}  # fmt: skip


def source(partition: int, topic: TopicId = TOPIC) -> PartitionId:
    """Return a partition of the topic."""
    return PartitionId(topic, partition)


def live(ledger: Ledger, partition: int, topic: TopicId = TOPIC) -> Lane:
    """Return the lane that reads the partition's newest records."""
    found = ledger.live(source(partition, topic))
    assert found is not None
    return found


def arrow(kind: Type) -> pa.DataType:
    """Return the Arrow type of a column type in staged files."""
    if isinstance(kind, ListOf):
        return pa.list_(arrow(kind.item))
    if isinstance(kind, MapOf):
        return pa.map_(pa.string(), arrow(kind.item))
    if isinstance(kind, Struct):
        return pa.struct([(name, arrow(item)) for name, item in kind.fields])
    if kind.name.startswith("DECIMAL"):
        precision, scale = kind.name[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return _ARROW[kind.name]


class Place(ABC):
    """One database and its staging folder. Methods that edit data do so behind the destination's back, as an operator might.

    Attributes:
        ledger_in_table: the ledger is part of the table, so both are dropped together.
        keyed: whether the destination supports keys (keyed.py); `open` then accepts a rule.
        keeps: whether a commit keeps values that an update left out (kept_values.py).
        expressions: whether a rule may have expressions; a destination without them rejects them.
        null_json: whether a JSON column distinguishes JSON's null from NULL.
        rows_go: whether a single row can be deleted by hand; where it cannot, tests of that are skipped.
        fingerprints: whether `kpipe verify` compares more than numbers of rows: records and sums of offsets of a range (`Mark`),
            and ranges of several readers.
        ddl_in_transaction: whether CREATE and ALTER TABLE are part of the commit's transaction.
        longest_name: limit of a column's name, in bytes.
        failure: returns an exception of the database's client, from a message.
        tables_with_defaults: statements that create table `tweets` with `{columns}`, `number` (a counter), `made` (a time) and
            `computed` (2 * `n`); empty where tables have no defaults.
    """

    ledger_in_table = False
    keyed = False
    keeps = False
    expressions = True
    null_json = True
    rows_go = True
    fingerprints = True
    ddl_in_transaction = True
    longest_name = 255
    failure: Callable[[str], Exception] = OSError
    tables_with_defaults: ClassVar[Sequence[str]] = ()

    def __init__(self, folder: Path) -> None:
        self.staging = folder / "staging"
        self.staging.mkdir()
        self._faults: list[str] = []

    def holds(self, name: str) -> bool:
        """Return whether a column may have this name."""
        return len(name.encode()) <= self.longest_name

    @abstractmethod
    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None) -> Destination:
        """Open a destination on this place; each call returns a new one, as each process opens its own."""

    def name(self, table: str) -> str:
        """Return the destination's name of the table."""
        return table

    def sql(self, statement: str, *parameters: Any) -> list[Any]:
        """Run one statement by hand, where the destination is a database."""
        raise NotImplementedError

    @abstractmethod
    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        """Read the table without kpipe: rows by column, as Python values; empty where the table does not exist."""

    @abstractmethod
    def dead_letters(self, pipeline: str = "tweets") -> int:
        """Count the pipeline's dead letters."""

    def fail_next(self, fault: str) -> None:
        """Make the next commit fail. Call it twice to fail two commits.

        The default uses a destination's failpoints (`kpipe.failpoints.failpoint`). `commit.before`: all is written, COMMIT is not
        yet sent. `commit.after`: COMMIT was answered. `readback`: before the batch id is read back.

        Args:
            fault: `before`: fail before anything is visible. `after_landed`: commit, and lose the response. `unknown`: the
                same, and the read-back fails, too.
        """
        self._faults.append(fault)
        failpoints.arm(self.reached)

    def reached(self, point: str) -> None:
        """Raise the injected fault, if it is due at this failpoint."""
        fault = self._faults[0] if self._faults else ""
        if (fault, point) in {("before", "commit.before"), ("after_landed", "commit.after"), ("unknown", "commit.after")}:
            self._faults[0] = "unreadable" if fault == "unknown" else "spent"
            raise self.failure(f"injected: {fault}")
        if point == "readback" and self._faults and self._faults.pop(0) == "unreadable":
            raise self.failure("injected: unreadable")

    @abstractmethod
    def delete_row(self, partition: int, offset: int) -> None:
        """Delete a row of table `tweets`."""

    @abstractmethod
    def double_row(self, partition: int, offset: int) -> None:
        """Insert a copy of a row of table `tweets`."""

    @abstractmethod
    def delete_dead_letter(self) -> None:
        """Delete one dead letter of pipeline `tweets`."""

    @abstractmethod
    def move_lane(self, partition: int, to: int) -> None:
        """Move the live lane of the partition in the ledger."""

    @abstractmethod
    def erase_lane(self, partition: int) -> None:
        """Delete the lanes of the partition from the ledger."""

    @abstractmethod
    def drop_table(self) -> None:
        """Drop table `tweets`."""

    def file(self, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> StagedFile:
        """Write a staged file, with the statistics of those that tasks write."""
        path = self.staging / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows), schema), path, write_statistics=bounded_columns(schema))
        data = path.read_bytes()
        return StagedFile(str(path), len(data), len(rows), hashlib.sha256(data).hexdigest())

    def staged(self, rows: Sequence[Mapping[str, Any]], columns: Columns = COLUMNS) -> StagedFile:
        """Write a staged file of rows with these columns and Kafka's coordinates."""
        fields = [(name, arrow(kind)) for name, kind in columns] + list(COORDINATES.items())
        return self.file(rows, pa.schema(fields))

    def dead(
        self, where: PartitionId, offset: int | None, value: bytes | None = b"{broken", reason: str = "not JSON"
    ) -> dict[str, Any]:
        """Build a dead letter as a row of its staged file."""
        return {
            "topic": where.topic.name, "partition": where.partition, "offset": offset, "timestamp": 1_700_000_000_000_000,
            "key": b"k", "value": value, "headers": [{"name": "h", "value": b"\x00"}], "stage": "parse", "reason": reason,
        }  # fmt: skip


def begin(pipeline: str, partitions: Collection[int], at: int = 0, topic: TopicId = TOPIC) -> Commit:
    """Build the first commit of partitions: lanes of which nothing is read."""
    lanes = [Lane(source(number, topic), at, at) for number in partitions]
    return Commit(uuid.uuid4().hex, pipeline, tuple(LaneChange(None, lane) for lane in lanes), kind="begin", note="begin")


def read_step(lane: Lane, end: int) -> Step:
    """Build a lane's part of a batch that was read, with the fingerprint of its last records."""
    return Step(lane, end, epoch=3, tail=Tail.of(end, [(at, f"{at:08x}") for at in range(lane.next, end)], 3))


def batch(
    place: Place,
    ledger: Ledger,
    ends: Mapping[int, int],
    columns: Columns = COLUMNS,
    values: Mapping[str, Any] | None = None,
    dead: Collection[tuple[int, int]] = (),
    gaps: Collection[tuple[int, int]] = (),
    topic: TopicId = TOPIC,
    lanes: Sequence[Lane] | None = None,
) -> Commit:
    """Build a batch of the live (or passed) lanes up to these ends, exclusive: a row for each offset not in `dead` or `gaps`."""
    chosen = lanes or [live(ledger, number, topic) for number in ends]
    steps = tuple(read_step(lane, ends[lane.source.partition]) for lane in chosen)
    files, dead_files, counts, marks, follows = [], [], {}, {}, True
    for step in steps:
        number = step.source.partition
        rows, letters, holes = [], [], 0
        for offset in range(step.range.start, step.range.end):
            if (number, offset) in dead:
                letters.append(place.dead(step.source, offset))
            elif (number, offset) in gaps:
                holes += 1
            else:
                row = {"id": number * 1_000_000 + offset, "text": f"t{offset}"} if values is None else dict(values)
                rows.append({**row, "_kafka_partition": number, "_kafka_offset": offset, "_kafka_timestamp": offset})
        files += [place.staged(rows, columns)] if rows else []
        dead_files += [place.file(letters, DEAD_LETTERS)] if letters else []
        counts[step.lane.key] = Counts(
            len(rows) + len(letters), len(rows), len(letters), 0, holes, bytes=10 * len(rows), inserted=len(rows)
        )
        marks[step.lane.key] = Mark(len(rows), sum(row["_kafka_offset"] for row in rows))
        follows = follows and Mark.follows(counts[step.lane.key], len(step.range))
    return commit_to(
        TableWrite(columns=columns, files=tuple(files), marks={} if follows else marks),
        counts,
        id=uuid.uuid4().hex,
        pipeline=ledger.pipeline,
        changes=tuple(step.change for step in steps),
        steps=steps,
        dead_letters=tuple(dead_files),
        ends={step.source: (0, step.end + 7) for step in steps},
        metadata={step.source: {"end_offset": step.end, "rows": counts[step.lane.key].rows} for step in steps},
        run_id="run-1",
        version="v1",
        started_ms=1_700_000_000_123,
        seconds=0.5,
    )
