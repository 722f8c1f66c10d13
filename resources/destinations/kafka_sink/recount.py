"""Recount rows by reading the topics from their start, former topics included, and build the views over the ledger."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError
from kpipe.ledger.ledger import Lane, Step
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import Part
from kpipe.verification.verify import Recount, TableRecount
from resources.destinations.kafka_sink.cluster import Cluster, Ends, Topic
from resources.destinations.kafka_sink.ledger_topic import State, Written
from resources.destinations.kafka_sink.messages import DELETE, ROW, origin, parsed_letter
from resources.destinations.kafka_sink.order_check import OrderCheck
from resources.destinations.lakehouse import ledger_tables
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.ledger_file import Item
from resources.destinations.ledger_rows import entry
from resources.destinations.sql.ledger import history_tables, table_definitions
from resources.destinations.sql.ledger import recount as counting
from resources.destinations.sql.sql_dialect import quote
from resources.duckdb_engine.file_connection import Connection
from resources.kafka.record_block import Headers
from resources.type_compatibility import COORDINATES

__all__ = ["kept_letters", "lay_letters", "recount"]

_SETTLE_S = 10.0  # longest wait for a commit's markers: without them, records would be missing from the recount

_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
_LETTERS = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()), ("value", pa.binary()), ("headers", _HEADERS), ("stage", pa.string()), ("reason", pa.string()),
    ]
)  # fmt: skip
_LETTERS_AT_ONCE = 1000  # each has a record of any size
_BARE = {"key": None, "value": None, "headers": None, "reason": ""}
_BLOCK = "rows of a block"  # not the name of a topic
_ROWS = pa.schema([("_kafka_topic", pa.string()), ("_kafka_partition", pa.int32()), ("_kafka_offset", pa.int64())])
_COLUMNS = Columns(tuple((name, kind) for name, kind in COORDINATES if name in _ROWS.names))


def recount(
    folder: Path, cluster: Cluster, table: str, state: State, items: Sequence[Item], letters: Iterable[Mapping[str, Any]]
) -> Recount:
    """Recount rows of the pipeline in its topic by their headers, and check their order.

    Former topics of an edited definition are checked, too. A former topic that cannot be verified is reported as a problem, and
    the current one is still verified.

    Raises:
        DestinationError: the topic does not keep all written records, so a recount proves nothing.
    """
    written: dict[str, list[Item]] = {}
    for item in items:
        for name in {row["target_table"] for row in item["ranges"]}:  # one: that of the definition then
            written.setdefault(name, []).append(item)
    former = {}
    for name, found_items in sorted(written.items()):
        committed = _Committed.of(name, state, found_items)
        if name != table and committed.anything:
            found, forgets = _recount(folder, cluster, committed)
            former[name] = replace(found, problems=(*([f"topic {name} {forgets}"] if forgets else []), *found.problems))
    found, forgets = _recount(folder, cluster, _Committed.of(table, state, written.get(table, ())))
    if forgets:
        raise DestinationError(
            f"topic {table} {forgets}",
            "read the ledger's sums: kpipe batches; a recount needs a topic without retention and compaction",
        )
    return Recount({table: found, **former}, _dead_letters(folder, state.record.pipeline, items, letters))


@dataclass(frozen=True)
class _Committed:
    """The ledger's data on one topic.

    Attributes:
        pipeline: its name.
        table: the topic.
        written: the topic as its commits recorded it; None: not recorded.
        ranges: rows of `kpipe_batches`, in the order of the commits.
        rows, tombstones: numbers in these ranges.
    """

    pipeline: str
    table: str
    written: Written | None
    items: Sequence[Item]
    rows: int
    tombstones: int

    @classmethod
    def of(cls, table: str, state: State, items: Sequence[Item]) -> _Committed:
        counts = [entry(row).counts for item in items for row in item["ranges"]]
        sums = sum(found.rows for found in counts), sum(found.deletes for found in counts)
        return cls(state.record.pipeline, table, state.written(table), items, *sums)

    @property
    def anything(self) -> bool:
        """True if the topic must contain records."""
        return bool(self.rows or self.tombstones)

    def identity(self, topic: Topic | None) -> list[str]:
        """Return a sentence on what is wrong with the current topic of that name."""
        if not self.anything:
            return []
        held = f"its {self.rows} rows and {self.tombstones} tombstones"
        if topic is None:
            return [f"topic {self.table} is missing: {held} cannot be counted"]
        if self.written is not None and self.written.id != topic.id:
            return [
                f"topic {self.table} was recreated after {held} were committed: expected id {self.written.id}, found {topic.id}"
            ]
        return []


def _dead_letters(folder: Path, pipeline: str, items: Sequence[Item], letters: Iterable[Mapping[str, Any]]) -> Mapping[Part, int]:
    with ledger_tables.desk(LocalFolder(folder)) as (connection, _):
        lay_letters(connection, items, letters, whole=False)
        return counting.dead_letters(connection, pipeline)


def _recount(folder: Path, cluster: Cluster, committed: _Committed) -> tuple[TableRecount, str]:
    """Recount one topic; the text is the reason why it does not keep all written records, if so."""
    table, topic, forgets = committed.table, cluster.topic(committed.table), ""
    check = OrderCheck(table, [row for item in committed.items for row in item["ranges"]])
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="recount-", dir=folder) as spill,
        ledger_tables.desk(LocalFolder(folder), spill=spill) as (connection, _),
    ):
        # Only this topic: SQL names are case-insensitive, topics are not.
        ledger_tables.lay_ranges(connection, committed.items, table)
        connection.register(_BLOCK, _ROWS.empty_table())
        connection.execute(f"CREATE TEMP TABLE {quote(table)} AS FROM {quote(_BLOCK)}")
        if topic is not None:
            ends = cluster.settled(topic, _SETTLE_S)
            for block in _rows(cluster, table, committed.pipeline, ends, check):
                connection.register(_BLOCK, block)
                connection.execute(f"INSERT INTO {quote(table)} FROM {quote(_BLOCK)}")
            why = _forgets(committed.written, ends, cluster.settings(table).get("cleanup.policy", ""))
            if why and committed.anything:
                wrong = check.order()
                forgets = (
                    f"does not keep all that was written ({why}): rows cannot be recounted;"
                    f" the remaining records are {f'out of order: {wrong[0]}' if wrong else 'in order'}"
                )
        found = counting.recount(connection, ledger_tables.DIALECT, committed.pipeline, table, _COLUMNS)
    return replace(found, problems=(*committed.identity(topic), *check.order(), *check.tombstones())), forgets


def _forgets(written: Written | None, ends: Sequence[Ends], policy: str) -> str:
    """Return why a topic does not keep all written records; empty if it may."""
    starts = written.starts if written is not None else {number: item.start for number, item in enumerate(ends)}
    gone = [f"{number} starts at {item.start}" for number, item in enumerate(ends) if item.start > starts.get(number, 0)]
    if gone:
        return f"the log of partition {gone[0]}"
    return f"cleanup.policy is {policy}" if "compact" in policy else ""


def _rows(cluster: Cluster, table: str, pipeline: str, ends: Sequence[Ends], check: OrderCheck) -> Iterator[pa.Table]:
    own = pipeline.encode()
    for number, item in enumerate(ends):
        for held in cluster.read(table, number, Range(item.start, item.stable)):
            rows: list[tuple[str, int | None, int | None]] = []
            for at, headers in zip(held.offsets, held.headers(), strict=True):
                said = origin(headers or ())
                kind = said.get("kpipe.kind")
                if said.get("kpipe.pipeline") != own or kind not in (ROW, DELETE):
                    continue
                topic = (said.get("kpipe.topic") or b"").decode()
                partition, offset = _whole(said.get("kpipe.partition")), _whole(said.get("kpipe.offset"))
                check.add(number, int(at), (topic, partition or 0), offset, kind == DELETE)
                if kind == ROW:
                    rows.append((topic, partition, offset))
            yield pa.table([[row[at] for row in rows] for at in range(len(_ROWS))], schema=_ROWS)


def _whole(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def kept_letters(cluster: Cluster, topic: str, pipeline: str) -> Iterator[Mapping[str, Any]]:
    """Yield the pipeline's dead letters, in the order of their topic."""
    there = cluster.topic(topic)
    for number, ends in enumerate(cluster.settled(there, _SETTLE_S)) if there is not None else ():
        for held in cluster.read(topic, number, Range(ends.start, ends.stable)):
            headers: list[Headers | None] = held.headers()
            for key, value, said in zip(held.keys(), held.values, headers, strict=True):
                letter = parsed_letter(key, value, said or ())
                if letter is not None and letter["pipeline"] == pipeline:
                    yield letter


def lay_letters(connection: Connection, items: Sequence[Item], letters: Iterable[Mapping[str, Any]], whole: bool = True) -> None:
    """Insert dead letters as rows of `kpipe_errors`, a block at a time; those of unknown commits are ignored.

    Args:
        connection: DuckDB's.
        items: the commits.
        letters: their dead letters.
        whole: whether the rows have the record, too.
    """
    known = {item["commit"]["batch_id"]: item for item in items}
    numbered: Counter[str] = Counter()
    every = iter(letters)
    while block := list(islice(every, _LETTERS_AT_ONCE)):
        by_batch: dict[str, list[Mapping[str, Any]]] = {}
        for letter in block:
            by_batch.setdefault(letter["batch"], []).append(letter)
        for batch, mine in by_batch.items():
            if (item := known.get(batch)) is not None:
                _lay(connection, item, mine if whole else [{**letter, **_BARE} for letter in mine], numbered[batch])
                numbered[batch] += len(mine)


def _lay(connection: Connection, item: Item, letters: Sequence[Mapping[str, Any]], before: int) -> None:
    """Insert dead letters of a commit, of which that many were inserted before."""
    ranges = (entry(row) for row in item["ranges"])
    steps = tuple(Step(Lane(r.source, r.range.start, r.range.start, r.range.end), r.range.end) for r in ranges)
    commit = Commit(item["commit"]["batch_id"], item["commit"]["pipeline_name"], (), steps=steps)
    moment = datetime.fromisoformat(item["commit"]["committed"]).timestamp()
    rows = [{name: letter[name] for name in _LETTERS.names} for letter in letters]
    connection.register("kpipe_letters_found", pa.Table.from_pylist(rows, _LETTERS))
    source = "kpipe_letters_found"
    connection.execute(*history_tables.letters(ledger_tables.DIALECT, commit, int(moment * 1e6) + before, source))
    connection.execute(
        f"UPDATE {table_definitions.ERRORS.sql} SET error_unix_timestamp = $1, version = $2, database_name = $3"
        " WHERE batch_id = $4 AND dead_letter",
        [moment, item["commit"]["version"], item["ranges"][0]["database_name"] if item["ranges"] else "", commit.id],
    )
