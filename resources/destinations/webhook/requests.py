"""Build requests from rows: body, rows in each request, and a key that is the same at every attempt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kpipe.batch.batch import Commit
from kpipe.definition.body_template import ROW, Template
from kpipe.definition.pipeline import Into
from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import ORIGINAL
from kpipe.topics import PartitionId
from resources.destinations.json_documents import documents, encoded
from resources.destinations.webhook.ordered_rows import Block
from resources.type_compatibility import COORDINATES

__all__ = ["Request", "Row", "Shaper"]


class Row(NamedTuple):
    """A row to be sent.

    Attributes:
        source: the partition that it was read from.
        offset: None where a program's rows cannot be traced to one record.
        nth: index among the rows of that offset.
        body: JSON.
        block: the table with its other columns.
        at: its index in the block.
    """

    source: PartitionId
    offset: int | None
    nth: int
    body: str
    block: pa.Table
    at: int

    def value(self, name: str) -> object:
        """Return a column's value, a time as an integer in its unit; None where the column does not exist.

        Python's dates end with the year 9999; Kafka's timestamps do not.
        """
        if name not in self.block.column_names:
            return None
        value = self.block.column(name)[self.at]
        return value.value if pa.types.is_timestamp(value.type) else value.as_py()


@dataclass(frozen=True)
class Request:
    """One HTTP request.

    Attributes:
        key: the same whenever these rows are sent.
        body: UTF-8.
        rows: the rows in it.
    """

    key: str
    body: bytes
    rows: Sequence[Row]

    @property
    def place(self) -> str:
        """Partition and offsets, for messages."""
        first, last = self.rows[0], self.rows[-1]
        if first.offset is None:
            return f"{first.source}"
        return f"{first.source} offset {first.offset}" + (f" to {last.offset}" if last.offset != first.offset else "")


@dataclass
class Shaper:
    """Builds the requests of a commit; the same commit always gives the same requests.

    Attributes:
        into: the fields of the definition.
        commit: the commit of the rows.
    """

    into: Into
    commit: Commit
    _last: dict[PartitionId, tuple[int | None, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._body = Template.of(self.into.body or f"${{{ROW}}}")
        given = self.into.envelope or ("${records}" if self.into.max_records > 1 else None)
        self._envelope = Template.of(given) if given is not None else None
        self._sources = {(step.source.topic.name, step.source.partition): step.source for step in self.commit.steps}
        self._numbers = {step.source.partition: step.source for step in self.commit.steps}

    def check(self, names: Sequence[str]) -> None:
        """Check that each placeholder of the body has a column.

        Args:
            names: of the columns of staged files.

        Raises:
            SchemaConflict: a placeholder has no column.
        """
        held = {name.lower() for name in names}
        for name in self._body.names:
            known = self.commit.only.columns.get(name) or COORDINATES.get(name)
            if name not in (ROW, "_kafka_topic") and (known is None or name.lower() not in held):
                raise SchemaConflict(
                    f"into.body: batch {self.commit.id} has no column {name}",
                    "declare it under `columns` (or metadata), or leave it out until this batch is committed",
                )

    def streams(self, blocks: Sequence[Block]) -> list[list[Request]]:
        """Build the requests of some rows as streams; requests of one stream are sent in order, one at a time.

        Rows of one Kafka key are in one stream, in order. Rows without a key share a stream for each partition.
        """
        found: dict[tuple[PartitionId, int], list[Row]] = {}
        for block in blocks:
            for stream, row in self._rows(block):
                found.setdefault((row.source, stream), []).append(row)
        return [list(self._requests(rows)) for rows in found.values()]

    def _rows(self, block: Block) -> Iterator[tuple[int, Row]]:
        table = block.table
        source = self._sources[block.topic, block.partition] if block.topic else self._numbers[block.partition]
        bodies, keys = self._bodies(table, source), _keys(table)
        for at, (body, key, offset) in enumerate(zip(bodies, keys, table.column("_kafka_offset").to_pylist(), strict=True)):
            before, nth = self._last.get(source, (-1, 0))
            nth = nth + 1 if offset == before else 0
            self._last[source] = offset, nth
            yield self._stream(key), Row(source, offset, nth, body, table, at)

    def _stream(self, key: bytes | None) -> int:
        return int.from_bytes(blake2b(key, digest_size=8).digest(), "big") % self.into.concurrency if key is not None else 0

    def _bodies(self, table: pa.Table, source: PartitionId) -> list[str]:
        columns = self.commit.only.columns
        held = {name.lower(): name for name in table.column_names}
        places: dict[str, Sequence[str]] = {}
        for name in dict.fromkeys(self._body.names):
            if name == ROW:
                places[name] = documents(table, columns)
            elif name == "_kafka_topic":
                (told,) = encoded(pa.table({"topic": [source.topic.name]}), Columns.of({"topic": "VARCHAR"}))
                places[name] = told * table.num_rows
            else:
                kind = COORDINATES.get(name) or columns.get(name)
                assert kind is not None  # check() proved it
                (places[name],) = encoded(table, Columns(((held[name.lower()], kind),)))
        return [self._body.filled({name: found[at] for name, found in places.items()}) for at in range(table.num_rows)]

    def _requests(self, rows: Sequence[Row]) -> Iterator[Request]:
        """Split the rows of a stream into requests within the limits."""
        some: list[Row] = []
        size = 0
        for row in rows:
            more = len(row.body.encode()) + 1
            if some and (len(some) >= self.into.max_records or size + more > self.into.max_bytes):
                yield self._request(some)
                some, size = [], 0
            some.append(row)
            size += more
        if some:
            yield self._request(some)

    def _request(self, rows: Sequence[Row]) -> Request:
        body = rows[0].body
        if self._envelope is not None:
            listed = "[" + ",".join(row.body for row in rows) + "]"
            body = self._envelope.filled({"records": listed, "count": str(len(rows))})
        return Request(self._key(rows), body.encode(), rows)

    def _key(self, rows: Sequence[Row]) -> str:
        """Return the key: a hash of pipeline, `into.table` and the rows' coordinates; the same at every attempt.

        It contains pipeline and table because two pipelines may send the same records on purpose. Receivers remember keys: the
        input of the hash must never change.

        Rows that cannot be traced to a record are identified by their index in the batch, which is stored before they are sent.
        """
        source = rows[0].source
        topic = source.topic
        said = [self.commit.pipeline, self.into.table, topic.cluster, topic.topic_id or topic.name, str(source.partition)]
        said += [f"{self.commit.id}.{row.nth}" if row.offset is None else f"{row.offset}.{row.nth}" for row in rows]
        return sha256("\n".join(said).encode()).hexdigest()


def _keys(table: pa.Table) -> list[bytes | None]:
    """Return the Kafka keys of the records."""
    found: list[bytes | None] = [None] * table.num_rows
    if ORIGINAL in table.column_names:
        found = pc.struct_field(table.column(ORIGINAL), "key").to_pylist()
    elif "_kafka_key" in table.column_names:
        found = table.column("_kafka_key").to_pylist()
    return found
