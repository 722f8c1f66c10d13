"""Convert rows, tombstones and dead letters to Kafka records, and dead letters back.

Each record has its source coordinates in `kpipe.` headers, after its own headers. So rows can be recounted in a topic with
several writers, and consumers can detect duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypedDict
from zlib import crc32

import pyarrow as pa

from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns
from resources.destinations.json_documents import documents, plain
from resources.type_compatibility import COORDINATES

__all__ = [
    "DEAD", "DELETE", "ROW", "Message", "Shape", "header_name", "letter_headers", "letters", "origin", "parsed_letter", "weight",
]  # fmt: skip

ROW, DELETE, DEAD = b"row", b"delete", b"dead_letter"
_OWN = "kpipe."  # prefix of kpipe's headers
_KIND, _PIPELINE, _TOPIC, _PARTITION, _OFFSET = (f"{_OWN}{name}" for name in ("kind", "pipeline", "topic", "partition", "offset"))
_BATCH, _TIME, _STAGE, _REASON = (f"{_OWN}{name}" for name in ("batch", "timestamp_us", "stage", "reason"))

Headers = Sequence[tuple[str, bytes | None]]
Own = list[tuple[str, str | bytes | None]]
Encode = Callable[[pa.Table, Columns], Sequence[str | bytes]]


class Message(TypedDict, total=False):
    """Arguments of `Producer.produce`."""

    topic: str
    value: bytes | str | None
    key: bytes | str | None
    partition: int
    timestamp: int
    headers: list[tuple[str, str | bytes | None]]


class Shape:
    """Conversion of one pipeline's rows to records of its topic.

    Args:
        pipeline: its name.
        topic: name of the topic that it writes.
        partitions: number of its partitions.
        kind: `json`, `avro`, `protobuf` or `raw`.
        key: columns of the record's key; empty: the source record's key, if rows contain it.
        encode: returns the values of rows with these columns; None: JSON.
    """

    def __init__(
        self, pipeline: str, topic: str, partitions: int, kind: str, key: Sequence[str], encode: Encode | None = None
    ) -> None:
        self._encode: Encode = encode or documents
        self._pipeline, self._topic, self._partitions = pipeline.encode(), topic, partitions
        self._kind, self._key = kind, tuple(name.lower() for name in key)

    def check(self, columns: Columns) -> None:
        """Check that rows with these columns can be converted.

        Raises:
            SchemaConflict: a key column is missing, or `value` has a wrong type.
        """
        missing = [name for name in self._key if name not in columns]
        if missing and columns:
            raise SchemaConflict(f"key column {missing[0]} does not exist", "change the key's columns: into.key")
        if self._kind == "raw" and columns and str(columns.get("value")) not in ("BLOB", "VARCHAR", "JSON"):
            raise SchemaConflict(
                f"into.format raw: column value: expected BLOB or VARCHAR, found {columns.get('value') or 'no such column'}",
                "change its type (select, set, or format: raw), or set into.format: json",
            )

    def rows(self, block: pa.Table, columns: Columns, sources: Sequence[str]) -> Iterator[Message]:
        """Return rows as records, in their order.

        Args:
            block: the rows.
            columns: their columns, with the pipeline's types.
            sources: topic that each row was read from.
        """
        payload = Columns(tuple((name, kind) for name, kind in columns if name not in COORDINATES))
        raw = self._kind == "raw"
        values = _bytes(block, "value") if raw else self._encode(block, payload)
        keys = self._keys(block, payload)
        if keys is None and raw and "key" in payload and str(payload.get("key")) in ("BLOB", "VARCHAR", "JSON"):
            keys = _bytes(block, "key")
        if keys is None and "_kafka_key" in block.column_names:
            keys = _bytes(block, "_kafka_key")
        yield from self._messages(block, sources, ROW, values, keys)

    def deletes(self, block: pa.Table, columns: Columns, sources: Sequence[str]) -> Iterator[Message]:
        """Return tombstones: a record without a value for each key; see `rows`."""
        keys = self._keys(block, columns)
        yield from self._messages(block, sources, DELETE, [None] * block.num_rows, keys)

    def _keys(self, block: pa.Table, columns: Columns) -> Sequence[str | bytes | None] | None:
        named = Columns(tuple((name, kind) for name, kind in columns if name.lower() in self._key))
        ordered = Columns(tuple(sorted(named.items, key=lambda item: self._key.index(item[0].lower()))))
        if not ordered:
            return None
        if len(ordered) > 1:
            return documents(block, ordered)
        name, kind = ordered.items[0]
        return _bytes(block, name) if str(kind) == "BLOB" else plain(block, ordered)[0]

    def _messages(
        self, block: pa.Table, sources: Sequence[str], kind: bytes, values: Sequence[Any], keys: Sequence[Any] | None
    ) -> Iterator[Message]:
        names = block.column_names
        partitions, offsets = (block.column(f"_kafka_{name}").to_pylist() for name in ("partition", "offset"))
        times = _milliseconds(block)
        carried = block.column("_kafka_headers").to_pylist() if "_kafka_headers" in names else None
        common = [(_KIND, kind), (_PIPELINE, self._pipeline)]
        rows = zip(values, sources, partitions, offsets, times, strict=True)
        for at, (value, source, partition, offset, moment) in enumerate(rows):
            headers: Own = []
            if carried is not None and carried[at]:
                headers += [(h["name"], h["value"]) for h in carried[at] if not h["name"].startswith(_OWN)]
            headers += [*common, (_TOPIC, source.encode())]
            if partition is not None:
                headers.append((_PARTITION, b"%d" % partition))
            if offset is not None:
                headers.append((_OFFSET, b"%d" % offset))
            message: Message = {"topic": self._topic, "value": value, "headers": headers}
            key = keys[at] if keys is not None else None
            if key is not None:
                message["key"] = key
            else:  # rows of one source partition keep their order
                message["partition"] = (_spread(source) + (partition or 0)) % self._partitions
            if moment is not None and moment >= 0:
                message["timestamp"] = moment
            yield message


def _spread(source: str) -> int:
    """Return where a source's first partition is written: splits of a connector (resources/sources) have one partition each.

    Their names contain a slash, those of topics never do.
    """
    return crc32(source.encode()) if "/" in source else 0


def origin(headers: Sequence[tuple[str, Any]]) -> dict[str, bytes | None]:
    """Return kpipe's headers of a record by name; the last of a name counts."""
    return {name: value for name, value in headers if name.startswith(_OWN)}


def letters(block: pa.Table, topic: str, pipeline: str, batch: str) -> Iterator[Message]:
    """Convert dead letters to records: key, value and headers unchanged (see `header_name`), then kpipe's."""
    moments = _micros(block.column("timestamp"))
    for row, moment in zip(block.drop_columns(["timestamp"]).to_pylist(), moments, strict=True):
        place = row["topic"], row["partition"], row["offset"], moment
        own = letter_headers(pipeline, batch, place, row["stage"], row["reason"])
        brought = [(header_name(item["name"]), item["value"]) for item in row["headers"] or ()]
        yield {"topic": topic, "value": row["value"], "key": row["key"], "headers": [*brought, *own]}


def header_name(name: str) -> str:
    """Return the name of a dead letter's header with `\\0` for a NUL, at which Kafka's client would cut it."""
    return name.replace("\0", "\\0")


def letter_headers(pipeline: str, batch: str, place: tuple[str, int, int | None, int | None], stage: str, reason: str) -> Own:
    """Return kpipe's headers of a dead letter.

    Args:
        pipeline: the pipeline's name.
        batch: id of the batch.
        place: topic, partition, offset and timestamp (microseconds since 1970 UTC) of the record.
        stage: stage at which it failed.
        reason: why.
    """
    topic, partition, offset, moment = place
    return [
        (_KIND, DEAD), (_PIPELINE, pipeline.encode()), (_BATCH, batch.encode()),
        (_TOPIC, topic.encode()), (_PARTITION, b"%d" % partition),
        (_OFFSET, _number(offset)), (_TIME, _number(moment)),
        (_STAGE, stage.encode()), (_REASON, reason.encode("utf-8", "replace")),
    ]  # fmt: skip


def weight(message: Message) -> int:
    """Return the bytes of a record without protocol overhead. Strings count as UTF-8."""
    total = 32
    for part in (message.get("value"), message.get("key")):
        if part is not None:
            total += len(part) if isinstance(part, bytes) or part.isascii() else len(part.encode())
    return total + sum(len(name) + len(value or b"") + 8 for name, value in message.get("headers", ()))


_LETTER = 9  # kpipe's headers of a dead letter, which come last


def parsed_letter(key: bytes | None, value: bytes | None, headers: Headers) -> dict[str, Any] | None:
    """Parse a record to the columns of staged dead letters, with `pipeline` and `batch`; None: not a dead letter."""
    brought, own = headers[:-_LETTER], dict(headers[-_LETTER:])
    if own.get(_KIND) != DEAD or _BATCH not in own:
        return None
    text = {name: (held or b"").decode("utf-8", "replace") for name, held in own.items()}
    return {
        "pipeline": text[_PIPELINE], "batch": text[_BATCH], "topic": text[_TOPIC], "partition": int(text[_PARTITION]),
        "offset": int(text[_OFFSET]) if own[_OFFSET] is not None else None,
        "timestamp": int(text[_TIME]) if own[_TIME] is not None else None,
        "key": key, "value": value, "headers": [{"name": name, "value": held} for name, held in brought],
        "stage": text[_STAGE], "reason": text[_REASON],
    }  # fmt: skip


def _bytes(block: pa.Table, name: str) -> list[Any]:
    found = next(column for column in block.column_names if column.lower() == name)
    values: list[Any] = block.column(found).to_pylist()
    return values


def _milliseconds(block: pa.Table) -> list[int | None]:
    if "_kafka_timestamp" not in block.column_names:
        return [None] * block.num_rows
    return [None if at is None else at // 1000 for at in _micros(block.column("_kafka_timestamp"))]


def _micros(moments: pa.ChunkedArray) -> list[int | None]:
    """Return instants as integers: Python's dates end with the year 9999, Kafka's timestamps do not."""
    found: list[int | None] = moments.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return found


def _number(value: int | None) -> bytes | None:
    return None if value is None else b"%d" % value
