"""A place that the suite runs in: a destination, and the hands to stage, break and falsify things there."""

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
from kpipe.batch.batch import Commit, Counts, StagedFile
from kpipe.interfaces import Destination
from kpipe.ledger.ledger import Lane, LaneChange, Ledger, Step
from kpipe.schema.columns import Columns, ListOf, MapOf, Struct, Type
from kpipe.tables.upsert import KeyRule
from kpipe.topics import PartitionId, TopicId

__all__ = [
    "COLUMNS", "COORDINATES", "DEAD_LETTERS", "HEADERS", "INSTANT", "TOPIC", "Place", "arrow", "batch", "begin", "live", "source",
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
    "UTINYINT": pa.uint8(),
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "VARCHAR": pa.string(), "JSON": pa.string(), "BLOB": pa.binary(),
    "DATE": pa.date32(), "TIME": pa.time64("us"), "TIMESTAMP": pa.timestamp("us"), "TIMESTAMP WITH TIME ZONE": INSTANT,
    "UUID": pa.string(),
}  # fmt: skip


def source(partition: int, topic: TopicId = TOPIC) -> PartitionId:
    """A partition of the topic."""
    return PartitionId(topic, partition)


def live(ledger: Ledger, partition: int, topic: TopicId = TOPIC) -> Lane:
    """The lane that reads the partition's newest records."""
    found = ledger.live(source(partition, topic))
    assert found is not None
    return found


def arrow(kind: Type) -> pa.DataType:
    """How values of the type stand in staged files."""
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
    """One database and its staging folder.

    Attributes:
        ledger_in_table: the ledger is part of the table, so that both are dropped together.
        keyed: whether the destination knows keys (keyed.py); `open` then takes a rule.
        expressions: whether a rule may have expressions; a destination that has none refuses them.
        null_json: whether a JSON column tells JSON's null from NULL.
        rows_go: whether a hand can take a single row away; where none can, that cannot be noticed either.
        ddl_in_transaction: whether a table is made, and gets columns, in the transaction of the commit.
        longest_name: bytes of a column's name.
        failure: makes an error of the database's own client, of a message.
        tables_with_defaults: statements that make table `tweets` with `{columns}`, `number`, which counts up, `made`, the time,
            and `computed`, which is twice `n`; empty where tables have no defaults.
    """

    ledger_in_table = False
    keyed = False
    expressions = True
    null_json = True
    rows_go = True
    ddl_in_transaction = True
    longest_name = 255
    failure: Callable[[str], Exception] = OSError
    tables_with_defaults: ClassVar[Sequence[str]] = ()

    def __init__(self, folder: Path) -> None:
        self.staging = folder / "staging"
        self.staging.mkdir()
        self._faults: list[str] = []

    def holds(self, name: str) -> bool:
        """Whether a column may have this name."""
        return len(name.encode()) <= self.longest_name

    @abstractmethod
    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None) -> Destination:
        """A destination that points here; each call makes one, as each process does."""

    def name(self, table: str) -> str:
        """What the destination calls the table."""
        return table

    def sql(self, statement: str, *parameters: Any) -> list[Any]:
        """Run one statement by hand, where the destination is a database."""
        raise NotImplementedError

    @abstractmethod
    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        """What anybody sees of the table, read without kpipe: by column, as Python's values; none where there is no table."""

    @abstractmethod
    def dead_letters(self, pipeline: str = "tweets") -> int:
        """How many of the pipeline are kept."""

    def fail_next(self, fault: str) -> None:
        """The next commit fails. One that asks for two is called twice.

        Here by the failpoints of a destination (`kpipe.failpoints.reach`): `commit.before`, when all is written and COMMIT is
        about to be sent; `commit.after`, when it was answered; `readback`, when it is about to be looked up.

        Args:
            fault: `before`: before anything is visible. `after_landed`: it lands, and its answer is lost. `unknown`: the same,
                and nothing can be read then.
        """
        self._faults.append(fault)
        failpoints.arm(self.reached)

    def reached(self, point: str) -> None:
        """The commit comes by a point."""
        fault = self._faults[0] if self._faults else ""
        if (fault, point) in {("before", "commit.before"), ("after_landed", "commit.after"), ("unknown", "commit.after")}:
            self._faults[0] = "unreadable" if fault == "unknown" else "spent"
            raise self.failure(f"injected: {fault}")
        if point == "readback" and self._faults and self._faults.pop(0) == "unreadable":
            raise self.failure("injected: unreadable")

    @abstractmethod
    def delete_row(self, partition: int, offset: int) -> None:
        """A hand takes a row of table `tweets` away."""

    @abstractmethod
    def double_row(self, partition: int, offset: int) -> None:
        """A hand puts the same row there once more."""

    @abstractmethod
    def delete_dead_letter(self) -> None:
        """A hand takes one of pipeline `tweets` away."""

    @abstractmethod
    def move_lane(self, partition: int, to: int) -> None:
        """A hand moves the live lane of the partition in the ledger."""

    @abstractmethod
    def erase_lane(self, partition: int) -> None:
        """A hand erases the lanes of the partition from the ledger."""

    @abstractmethod
    def drop_table(self) -> None:
        """A hand drops table `tweets`."""

    def file(self, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> StagedFile:
        """A staged file."""
        path = self.staging / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows), schema), path)
        data = path.read_bytes()
        return StagedFile(str(path), len(data), len(rows), hashlib.sha256(data).hexdigest())

    def staged(self, rows: Sequence[Mapping[str, Any]], columns: Columns = COLUMNS) -> StagedFile:
        """A staged file of rows with these columns and Kafka's coordinates."""
        fields = [(name, arrow(kind)) for name, kind in columns] + list(COORDINATES.items())
        return self.file(rows, pa.schema(fields))

    def dead(
        self, where: PartitionId, offset: int | None, value: bytes | None = b"{broken", reason: str = "not JSON"
    ) -> dict[str, Any]:
        """A dead letter as a row of its staged file."""
        return {
            "topic": where.topic.name, "partition": where.partition, "offset": offset, "timestamp": 1_700_000_000_000_000,
            "key": b"k", "value": value, "headers": [{"name": "h", "value": b"\x00"}], "stage": "parse", "reason": reason,
        }  # fmt: skip


def begin(pipeline: str, partitions: Collection[int], at: int = 0, topic: TopicId = TOPIC) -> Commit:
    """The first commit of partitions: their lanes, nothing read."""
    lanes = [Lane(source(number, topic), at, at) for number in partitions]
    return Commit(uuid.uuid4().hex, pipeline, tuple(LaneChange(None, lane) for lane in lanes), kind="begin", note="begin")


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
    """A batch that reads the live lanes (or those given) up to these ends; one row for each offset that is nothing else."""
    chosen = lanes or [live(ledger, number, topic) for number in ends]
    steps = tuple(Step(lane, ends[lane.source.partition]) for lane in chosen)
    files, dead_files, counts = [], [], {}
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
    return Commit(
        id=uuid.uuid4().hex,
        pipeline=ledger.pipeline,
        changes=tuple(step.change for step in steps),
        steps=steps,
        columns=columns,
        files=tuple(files),
        dead_letters=tuple(dead_files),
        counts=counts,
        ends={step.source: (0, step.end + 7) for step in steps},
        metadata={step.source: {"end_offset": step.end, "rows": counts[step.lane.key].rows} for step in steps},
        run_id="run-1",
        version="v1",
        started_ms=1_700_000_000_123,
        seconds=0.5,
    )
