"""Find the offsets that another loader had read before pipelines began to write a table, and its rows."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Mapping

from kpipe.ledger.ledger import ADOPTED, Ledger
from kpipe.topics import Part, in_order
from kpipe.verification.recount import Adopted, Holding, adopted
from resources.destinations.sql.ledger.ledger_table import lanes
from resources.destinations.sql.ledger.multi_table import WRITTEN
from resources.destinations.sql.ledger.partition_bounds import bounds, topics_of
from resources.destinations.sql.ledger.row_balance import TOPIC, named
from resources.destinations.sql.ledger.table_definitions import LANES, PIPELINES
from resources.destinations.sql.sql_dialect import Connection, Dialect

__all__ = ["adopted_offsets", "foreign", "is_alone"]


def adopted_offsets(connection: Connection, dialect: Dialect, pipeline: str, table: str) -> Adopted:
    """Return where another loader has read, for all pipelines that write the table; see `adopted`.

    Args:
        connection: inside a read transaction.
        dialect: of the database.
        pipeline: its name.
        table: name of the table.
    """
    takers = connection.execute(f"SELECT DISTINCT pipeline_name FROM {LANES.sql} WHERE kind = '{ADOPTED}'").fetchall()
    if not takers:
        return {}
    same = dialect.same_name.format("target_table", "$1")
    rows = connection.execute(
        f"SELECT pipeline_name FROM {PIPELINES.sql} WHERE {same} UNION SELECT pipeline_name FROM {WRITTEN} AS w WHERE {same}",
        [table],
    ).fetchall()
    writers = sorted({pipeline, *(name for (name,) in rows)})
    if not {name for (name,) in takers} & {*writers}:
        return {}
    # Without the ledgers' checksums: in a transaction of READ COMMITTED, their rows may be of a later commit than the lanes.
    return adopted(Ledger(name, lanes=lanes(connection, name)) for name in writers)


def is_alone(adopted: Adopted, written: Mapping[Part, int]) -> bool:
    """Return whether rows without a topic can only be of the one adopted topic.

    Args:
        adopted: see `adopted_offsets`.
        written: rows of the ledgers by topic and partition.
    """
    topics = {topic for topic, _ in adopted}
    return len(topics) == 1 and all(in_order(name)[0] in topics for name, rows in written.items() if rows)


def foreign(connection: Connection, relation: str, has_topics: bool, adopted: Adopted, alone: bool) -> dict[Part, Holding]:
    """Count rows at offsets that another loader has read, by partition.

    Rows without a topic count if they can only be of the adopted topic; or if one topic was adopted, and no row can name any.

    Args:
        connection: for reading.
        relation: with the rows, as SQL.
        has_topics: whether it has the column `_kafka_topic`.
        adopted: see `adopted_offsets`.
        alone: see `is_alone`.
    """
    items = [(topic, number, end) for (topic, number), end in adopted.items()]
    topics = topics_of(items)
    if not topics or (len(topics) > 1 and not has_topics):
        return {}
    told = f"t.{TOPIC}" if has_topics else None
    lines, source = bounds(items, f"coalesce({told}, $1)" if told and alone else told)
    rows = connection.execute(
        f"SELECT {told or 'NULL'}, t._kafka_partition, count(*), sum(t._kafka_offset) FROM {relation} AS t JOIN ({lines}) AS a"
        f" ON a.number = t._kafka_partition AND t._kafka_offset < a.bound AND a.source = {source} GROUP BY 1, 2",
        topics if has_topics else [],
    ).fetchall()
    return {named(topic or "", number): Holding(count, int(offsets)) for topic, number, count, offsets in rows}
