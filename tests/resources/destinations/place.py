"""Places that the conformance suite runs in: a destination, and the hands to stage, break and falsify things there."""

from __future__ import annotations

import hashlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from kpipe import faults
from kpipe.batch import Commit, Counts, StagedFile, Step
from kpipe.keys import KeyRule
from kpipe.ledger import Lane, LaneChange, Ledger
from kpipe.ports import Destination
from kpipe.schema import Columns, ListOf, Struct, Type
from kpipe.source import PartitionId, TopicId
from kpipe.testing.memory import MemoryDestination
from kpipe.testing.memory_store import MemoryStore
from resources.destinations.duckdb import DuckDBDestination

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
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "VARCHAR": pa.string(), "JSON": pa.string(), "BLOB": pa.binary(),
    "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"), "TIMESTAMP WITH TIME ZONE": INSTANT, "UUID": pa.string(),
}  # fmt: skip


def source(partition: int, topic: TopicId = TOPIC) -> PartitionId:
    return PartitionId(topic, partition)


def arrow(kind: Type) -> pa.DataType:
    if isinstance(kind, ListOf):
        return pa.list_(arrow(kind.item))
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
        keyed: whether the destination knows keys (tests/resources/destinations/keyed.py); `open` then takes a rule.
        expressions: whether a rule may have expressions; a destination that has none refuses them.
    """

    ledger_in_table = False
    keyed = False
    expressions = True

    longest_name = 255  #: bytes of a column's name

    def __init__(self, folder: Path) -> None:
        self.staging = folder / "staging"
        self.staging.mkdir()

    @abstractmethod
    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None) -> Destination: ...

    @abstractmethod
    def rows(self, table: str = "tweets") -> list[dict[str, Any]]: ...

    @abstractmethod
    def dead_letters(self, pipeline: str = "tweets") -> int: ...

    @abstractmethod
    def fail_next(self, fault: str) -> None: ...

    @abstractmethod
    def delete_row(self, partition: int, offset: int) -> None: ...

    @abstractmethod
    def double_row(self, partition: int, offset: int) -> None: ...

    @abstractmethod
    def delete_dead_letter(self) -> None: ...

    @abstractmethod
    def move_lane(self, partition: int, to: int) -> None: ...

    @abstractmethod
    def erase_lane(self, partition: int) -> None: ...

    @abstractmethod
    def drop_table(self) -> None: ...

    def file(self, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> StagedFile:
        path = self.staging / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows), schema), path)
        data = path.read_bytes()
        return StagedFile(str(path), len(data), len(rows), hashlib.sha256(data).hexdigest())

    def staged(self, rows: Sequence[Mapping[str, Any]], columns: Columns = COLUMNS) -> StagedFile:
        fields = [(name, arrow(kind)) for name, kind in columns] + list(COORDINATES.items())
        return self.file(rows, pa.schema(fields))

    def dead(self, where: PartitionId, offset: int | None, value: bytes | None = b"{broken", reason: str = "not JSON") -> dict:
        return {
            "topic": where.topic.name, "partition": where.partition, "offset": offset, "timestamp": 1_700_000_000_000_000,
            "key": b"k", "value": value, "headers": [{"name": "h", "value": b"\x00"}], "stage": "parse", "reason": reason,
        }  # fmt: skip


class MemoryPlace(Place):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store = MemoryStore()

    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None) -> Destination:
        assert rule is None
        return MemoryDestination(self.store, pipeline, table, lambda file: pq.read_table(file.path).to_pylist())

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        found = self.store.tables.get(table)
        return [{**dict.fromkeys(found.columns.names()), **row} for row in found.rows] if found else []

    def dead_letters(self, pipeline: str = "tweets") -> int:
        return len(self.store.pipelines[pipeline].dead_letters)

    def fail_next(self, fault: str) -> None:
        self.store.fail_next(fault)

    def _at(self, partition: int, offset: int) -> int:
        rows = self.store.tables["tweets"].rows
        return next(i for i, r in enumerate(rows) if (r["_kafka_partition"], r["_kafka_offset"]) == (partition, offset))

    def delete_row(self, partition: int, offset: int) -> None:
        self.store.tables["tweets"].rows.pop(self._at(partition, offset))

    def double_row(self, partition: int, offset: int) -> None:
        rows = self.store.tables["tweets"].rows
        rows.append(rows[self._at(partition, offset)])

    def delete_dead_letter(self) -> None:
        self.store.pipelines["tweets"].dead_letters.pop()

    def move_lane(self, partition: int, to: int) -> None:
        known = self.store.pipelines["tweets"]
        lane = known.ledger.live(source(partition))
        known.ledger = replace(known.ledger, lanes={**known.ledger.lanes, lane.key: lane.advanced(to)})

    def erase_lane(self, partition: int) -> None:
        known = self.store.pipelines["tweets"]
        kept = {key: lane for key, lane in known.ledger.lanes.items() if lane.source != source(partition)}
        known.ledger = replace(known.ledger, lanes=kept)

    def drop_table(self) -> None:
        del self.store.tables["tweets"]


class DuckDBPlace(Place):
    keyed = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "data" / "kpipe.duckdb"
        self.faults: list[str] = []

    def reached(self, point: str) -> None:
        fault = self.faults[0] if self.faults else ""
        if (fault, point) in {("before", "commit.before"), ("after_landed", "commit.after"), ("unknown", "commit.after")}:
            self.faults[0] = "unreadable" if fault == "unknown" else "spent"
            raise duckdb.IOException(f"injected: {fault}")
        if point == "readback" and self.faults and self.faults.pop(0) == "unreadable":
            raise duckdb.IOException("injected: unreadable")

    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None) -> Destination:
        return DuckDBDestination(self.path, table, pipeline, {"source_type": "KAFKA"}, (self.staging,), 5, rule)

    def sql(self, statement: str, *parameters: Any) -> list[tuple]:
        with duckdb.connect(str(self.path)) as connection:
            return connection.execute(statement, list(parameters)).fetchall()

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        known = self.sql("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", table) if self.path.exists() else []
        if not known:
            return []
        with duckdb.connect(str(self.path)) as connection:
            return connection.sql(f'SELECT * FROM main."{table}"').to_arrow_table().to_pylist()

    def dead_letters(self, pipeline: str = "tweets") -> int:
        return self.sql("SELECT count(*) FROM kpipe_errors WHERE pipeline_name = ? AND dead_letter", pipeline)[0][0]

    def fail_next(self, fault: str) -> None:
        self.faults.append(fault)
        faults.arm(self.reached)

    def delete_row(self, partition: int, offset: int) -> None:
        self.sql("DELETE FROM tweets WHERE _kafka_partition = ? AND _kafka_offset = ?", partition, offset)

    def double_row(self, partition: int, offset: int) -> None:
        self.sql("INSERT INTO tweets FROM tweets WHERE _kafka_partition = ? AND _kafka_offset = ?", partition, offset)

    def delete_dead_letter(self) -> None:
        self.sql("DELETE FROM kpipe_errors WHERE rowid = (SELECT min(rowid) FROM kpipe_errors WHERE dead_letter)")

    def move_lane(self, partition: int, to: int) -> None:
        self.sql("UPDATE kpipe_ledger SET next_offset = ? WHERE partition = ? AND lane_end IS NULL", to, partition)

    def erase_lane(self, partition: int) -> None:
        self.sql("DELETE FROM kpipe_ledger WHERE partition = ?", partition)

    def drop_table(self) -> None:
        self.sql("DROP TABLE tweets")


PLACES: dict[str, type[Place]] = {"memory": MemoryPlace, "duckdb": DuckDBPlace}


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
    chosen = lanes or [ledger.live(source(number, topic)) for number in ends]
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
