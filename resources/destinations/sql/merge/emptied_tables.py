"""Delete all rows at a TRUNCATE of the source: a delete of each key that the table, or an earlier write of the batch, has."""

# ruff: noqa: S608 - names in statements are constants or quoted
from __future__ import annotations

from typing import Any

from kpipe.errors import SchemaConflict
from resources.destinations.sql.ledger.row_balance import TOPIC
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.merge.merge_staging import EMPTIED, GONE, PLACE
from resources.destinations.sql.sql_dialect import quote

__all__ = ["expand"]

_EPOCH = '"kpipe: epoch"'  # number of such writes up to a write; no key column has the name by chance


def expand(session: Any, writes: str, batch: KeyedBatch, make: str, epochs: str, marks: str) -> None:
    """Replace writes that delete all rows by deletes of keys. Their number is that of the table's rows and the batch's writes.

    Args:
        session: inside a transaction, with the relation of writes.
        writes: the relation, as SQL.
        batch: the writes.
        make: the statement that creates a temporary relation `{name}` of `{select}`.
        epochs: name of a relation of keys, each with the number of such writes before it.
        marks: name of a relation of such writes.

    Raises:
        SchemaConflict: the pipeline reads several partitions, which Kafka does not order; or other pipelines have rows in the
            table, which they would not read again.
    """
    row = session.execute(f"SELECT min(_kafka_offset) FROM {writes} WHERE {EMPTIED}").fetchone()
    if row is None or row[0] is None:
        return
    if others := batch.others():
        raise SchemaConflict(
            f"offset {row[0]}: a TRUNCATE of the source's table: table {batch.table} also has rows of pipeline"
            f" {', '.join(others)}",
            "load each source into a table of its own, or set format.truncate: skip to keep the rows",
        )
    now = {step.source.topic for step in batch.commit.steps}
    known = {*batch.ledger.sources(), *(step.source for step in batch.commit.steps)}
    # All records of a topic are older than those of the topic that was created in its place.
    former = {source for source in known if source.topic not in now and source.topic.name in {topic.name for topic in now}}
    sources = {source for source in known - former if source.topic.name != batch.rule.log}
    if len(sources) > 1:
        raise SchemaConflict(
            f"offset {row[0]}: a TRUNCATE of the source's table: expected one partition, found {len(sources)}, whose records"
            " Kafka does not order",
            "write the topic with one partition, or set format.truncate: skip to keep the rows",
        )
    key = ", ".join(quote(name) for name in batch.key)
    where = ["_kafka_partition", "_kafka_offset", *([TOPIC] if batch.has_topics else [])]
    before = f"sum(CASE WHEN {EMPTIED} THEN 1 ELSE 0 END) OVER (ORDER BY _kafka_offset, {PLACE})"
    shared = f"{', '.join(where)}, {PLACE}"
    columns = f"{key}, {GONE}, coalesce({EMPTIED}, false) AS {EMPTIED}, {shared}, {before} AS {_EPOCH}"
    session.execute(make.format(name=epochs, select=f"SELECT {columns} FROM {writes}"))
    session.execute(make.format(name=marks, select=f"SELECT {_EPOCH}, {shared} FROM {epochs} WHERE {EMPTIED}"))
    at = ", ".join(f"m.{name}" for name in where)
    # The table has each key once. DISTINCT would compare by a collation, which DuckDB's merge does not.
    for distinct, relation, condition in (
        ("DISTINCT ", f"{epochs} AS k", f"m.{_EPOCH} = k.{_EPOCH} + 1 AND NOT k.{GONE}"),
        ("", f"{quote(batch.table)} AS k", f"m.{_EPOCH} = 1"),
    ):
        values = ", ".join(f"k.{quote(name)}" for name in batch.key)
        rows = f"SELECT {distinct}true, m.{PLACE}, {values}, {at} FROM {relation} JOIN {marks} AS m ON {condition}"
        session.execute(f"INSERT INTO {writes} ({GONE}, {PLACE}, {key}, {', '.join(where)}) {rows}")
    session.execute(f"DELETE FROM {writes} WHERE {EMPTIED}")
