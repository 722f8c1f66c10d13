"""Convert what destinations have recorded about an offset; shared by databases and lakes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation
from typing import Any

from kpipe.adoption.judge import positions_of
from kpipe.errors import InvalidPipeline
from kpipe.provenance.facts import DECISIONS, MOST, CommitInfo
from kpipe.schema.columns import Columns, Scalar
from kpipe.topics import PartitionId, TopicId
from kpipe.verification.recount import Entry
from resources.duckdb_engine.sandbox import closed

__all__ = ["Written", "adopted_rows", "bound", "columns_named", "commit_info", "decided", "shares"]

_INTEGER = re.compile(r"U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)")
_DATE = re.compile(r"\d{4,6}-\d\d-\d\d")
_ROUNDED = re.compile(r"\.\d{7}")  # times have microseconds
_COORDINATES = ("_kafka_partition", "_kafka_offset")


@dataclass(frozen=True)
class Written:
    """A range with rows in a table, of any pipeline, or of the loader whose position a pipeline has adopted.

    Attributes:
        pipeline: its name.
        batch: id of the batch.
        source: the partition.
        start, end: of the range.
    """

    pipeline: str
    batch: str
    source: PartitionId
    start: int
    end: int

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self.source.topic.name


def adopted_rows(pipeline: str, batch: str, note: str, made: Entry) -> list[Written]:
    """Return the ranges of another loader that overlap a range, also where the pipeline reads these offsets again.

    Args:
        pipeline: that has adopted the loader's position.
        batch: id of that commit.
        note: of that commit.
        made: the range.
    """
    cluster, number = made.source.topic.cluster, made.source.partition
    return [
        Written(pipeline, batch, PartitionId(TopicId(cluster, "", topic), number), 0, at)
        for topic, partition, at in positions_of(note)
        if partition == number and at > made.range.start
    ]


def shares(others: Iterable[Written], topic: str | None, offset: int) -> dict[str, bool]:
    """Return `shared_offset` and `shared_range` of a reading (see `TableRows`).

    Args:
        others: ranges of the same partition number that overlap the reading's, without it.
        topic: name that rows contain; None: rows do not name their topic.
        offset: the offset.
    """
    # Some databases compare texts without their case.
    alike = [other for other in others if topic is None or other.topic.lower() == topic.lower()]
    at_offset = any(other.start <= offset < other.end for other in alike)
    return {"shared_offset": at_offset, "shared_range": bool(alike)}


def commit_info(row: Mapping[str, Any]) -> CommitInfo:
    """Return a row of `kpipe_commits`; its time is a text of ISO 8601, or microseconds since 1970."""
    moment = row["committed"]
    if isinstance(moment, str):
        committed: datetime | None = datetime.fromisoformat(moment)
    else:
        committed = None if moment is None else datetime.fromtimestamp(int(moment) / 1e6, timezone.utc)
    texts = {name: row[name] or "" for name in ("kind", "run_id", "version", "note")}
    return CommitInfo(row["batch_id"], row["seq"], committed=committed, **texts)


def decided(commits: Iterable[CommitInfo], topic: str, partition: int) -> tuple[CommitInfo, ...]:
    """Return the first `MOST` of these commits that are decisions about the partition."""
    name = re.compile(rf"(?<![A-Za-z0-9._-]){re.escape(f'{topic}/{partition}')}(?![0-9])")
    found: list[CommitInfo] = []
    for commit in commits:
        if commit.kind in DECISIONS and (commit.kind in ("accept_ledger", "exchange") or name.search(commit.note)):
            found.append(commit)
            if len(found) == MOST:
                break
    return tuple(found)


def columns_named(known: Columns, where: Mapping[str, str], table: str) -> dict[str, str]:
    """Return the values by the column's name as the table spells it; check that rows have coordinates.

    Raises:
        InvalidPipeline: a column does not exist, or the table has no coordinates.
    """
    names = {name.lower(): name for name in known.names()}
    for name in _COORDINATES:
        if name not in names:
            raise InvalidPipeline(
                f"table {table}: column {name} is missing: rows do not name their record",
                "only rows with Kafka's coordinates can be traced",
            )
    result: dict[str, str] = {}
    for name, text in where.items():
        if name.lower() not in names:
            raise InvalidPipeline(f"table {table}: no column {name!r}", f"columns: {', '.join(known.names()[:50])}")
        result[names[name.lower()]] = text
    return result


def bound(known: Columns, where: Mapping[str, str], table: str) -> dict[str, Any]:
    """Convert texts to values of their columns' types, to be bound as parameters. Nothing is rounded.

    Args:
        known: columns of the table.
        where: texts by column.
        table: for messages.

    Raises:
        InvalidPipeline: a column does not exist, its type cannot be compared, or a text is not a value of the type.
    """
    named, kinds = columns_named(known, where, table), dict(known)
    result: dict[str, Any] = {}
    connection = closed([], [])
    try:
        for name, text in named.items():
            kind = kinds[name]
            if not isinstance(kind, Scalar) or kind.name == "JSON":
                raise InvalidPipeline(
                    f"table {table}: column {name} of type {kind} cannot be compared with a text", "choose another column"
                )
            value = _value(connection, kind.name, text)
            if value is None:
                raise InvalidPipeline(f"table {table}: column {name}: expected a value of type {kind}, found {text!r}")
            result[name] = value
    finally:
        connection.close()
    return result


def _value(connection: Any, kind: str, text: str) -> Any:
    """Return the value of a text; None: it is not a value of the type, or would be rounded."""
    if kind == "VARCHAR":
        return text
    if _INTEGER.fullmatch(kind) and not re.fullmatch(r"[+-]?[0-9]+", text):
        return None
    if (kind == "DATE" and not _DATE.fullmatch(text)) or (kind.startswith("TIME") and _ROUNDED.search(text)):
        return None
    zoned = kind == "TIMESTAMP WITH TIME ZONE"
    shown = "TIMESTAMP" if zoned else kind
    inner = f"TRY_CAST($1 AS {kind})"
    row = connection.execute(f"SELECT CAST({inner} AS {shown})", [text]).fetchone()
    value = row[0]
    if kind.startswith("DECIMAL") and value is not None:
        try:
            return value if Decimal(text) == value else None
        except InvalidOperation:
            return None
    if zoned and value is not None:
        return value.replace(tzinfo=timezone.utc)
    return str(value) if kind == "UUID" and value is not None else value
