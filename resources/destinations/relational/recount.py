"""The history, and the table counted afresh against it: one consistent view, inside one read transaction."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Collection, Sequence

from kpipe.audit import Entry, Recount
from kpipe.batch import Counts
from kpipe.offsets import Range
from kpipe.source import PartitionId, TopicId
from resources.destinations.relational.dialect import Connection, Dialect
from resources.destinations.relational.holdings import kept
from resources.destinations.relational.tables import BATCHES, ERRORS

__all__ = ["entries", "recount"]

_ENTRY = (
    "batch_id, cluster_id, topic_id, topic, batch_source_partition_id, batch_earliest_offset, batch_latest_offset,"
    ' closed_by, messages, "rows", dead_letters, filtered, gaps, given, set_aside_before, bytes, deletes, inserted,'
    " updated, deleted, ignored"
)


def entries(connection: Connection, pipeline: str) -> list[Entry]:
    """Every committed range of the pipeline, in order of commit."""
    rows = connection.execute(
        f"SELECT {_ENTRY} FROM {BATCHES.sql} WHERE pipeline_name = $1"
        " ORDER BY seq, cluster_id, topic_id, topic, batch_source_partition_id, batch_earliest_offset",
        [pipeline],
    ).fetchall()
    return [_entry(row) for row in rows]


def recount(
    connection: Connection, dialect: Dialect, pipeline: str, table: str, known: Sequence[str] | None, key: Sequence[str] = ()
) -> Recount:
    """Rows, dead letters, repeated offsets, and rows of each committed range, as the destination really holds them.

    `known` are the names of the table's columns; None: there is no table. `key` are those of its key, if it has one.

    The table's rows are those of all pipelines that write it. Rows can be told apart by range only when they carry
    offsets, and offsets mean something only when one topic was read (or rows also carry the topic). A table that is written
    with a key is compared with what its commits have left (holdings.py) instead.
    """
    expected = _by_partition(
        connection,
        f'SELECT batch_source_partition_id, sum("rows")::BIGINT FROM {BATCHES.sql}'
        f" WHERE {dialect.same_name.format('target_table', '$1')} GROUP BY batch_source_partition_id",
        [table],
    )
    dead = _by_partition(
        connection,
        f'SELECT "partition", count(*) FROM {ERRORS.sql} WHERE pipeline_name = $1 AND dead_letter GROUP BY "partition"',
        [pipeline],
    )
    if known is None:
        return Recount(dead_letters=dead, expected_rows=expected)
    keeping = kept(connection, dialect, table, known, key)
    if keeping is not None:
        rows = {number: item.rows for number, item in keeping.found.items()}
        expected = {number: item.rows for number, item in keeping.expected.items()}
        return Recount(rows, dead, expected_rows=expected, keeping=keeping)
    names, name = {column.lower() for column in known}, dialect.name(table)
    if "_kafka_partition" not in names:
        return Recount(_unnumbered(connection, name, expected), dead, expected_rows=expected)
    rows = _by_partition(
        connection,
        f"SELECT _kafka_partition, count(*) FROM {name} WHERE _kafka_partition IS NOT NULL GROUP BY _kafka_partition",
        [],
    )
    wrong, repeated = _ranges(connection, dialect, pipeline, table, names) if "_kafka_offset" in names else ([], {})
    return Recount(rows, dead, repeated, wrong, expected)


def _ranges(
    connection: Connection, dialect: Dialect, pipeline: str, table: str, names: Collection[str]
) -> tuple[list[tuple[Entry, int]], dict[int, int]]:
    """Committed ranges that do not hold their rows, with what they hold; and repeated offsets by partition."""
    row = connection.execute(
        f"SELECT count(DISTINCT (pipeline_name, cluster_id, topic_id, topic)), count(DISTINCT topic) FROM {BATCHES.sql}"
        f" WHERE {dialect.same_name.format('target_table', '$1')}",
        [table],
    ).fetchone()
    assert row is not None
    by_topic = row[0] > 1
    if by_topic and (row[0] > row[1] or "_kafka_topic" not in names):
        return [], {}
    unknown = "t._kafka_offset IS NULL" + (" OR t._kafka_topic IS NULL" if by_topic else "")
    # Where offsets were read again, ranges overlap, and only the numbers of rows can be compared.
    unknown += " UNION SELECT batch_source_partition_id FROM b WHERE closed_by = 'reread'"
    # Elsewhere ranges never overlap, so the last one that begins at or before an offset is the only one that can hold it.
    hits = dialect.hits.format(table=dialect.name(table), topic="AND t._kafka_topic = b.topic" if by_topic else "")
    found = connection.execute(
        f"WITH b AS (SELECT row_number() OVER () AS id, {_ENTRY}, seq FROM {BATCHES.sql}"
        f"   WHERE pipeline_name = $1 AND {dialect.same_name.format('target_table', '$2')}"
        "   AND batch_latest_offset > batch_earliest_offset),"
        f" u AS (SELECT DISTINCT t._kafka_partition AS number FROM {dialect.name(table)} AS t WHERE {unknown}),"
        f" hits AS ({hits}),"
        " h AS (SELECT id, sum(n)::BIGINT AS held, (sum(n) - count(*))::BIGINT AS again FROM hits GROUP BY id)"
        f" SELECT {_ENTRY}, coalesce(held, 0), coalesce(again, 0) FROM b LEFT JOIN h USING (id)"
        " WHERE batch_source_partition_id NOT IN (SELECT number FROM u WHERE number IS NOT NULL)"
        ' AND (coalesce(held, 0) <> "rows" OR coalesce(again, 0) > 0)'
        " ORDER BY seq, topic, batch_source_partition_id, batch_earliest_offset",
        [pipeline, table],
    ).fetchall()
    wrong: list[tuple[Entry, int]] = []
    repeated: dict[int, int] = {}
    for *values, held, again in found:
        entry = _entry(values)
        if held != entry.counts.rows:
            wrong.append((entry, held))
        if again and not entry.counts.given:  # a program that may answer with many rows repeats offsets rightly
            number = entry.source.partition
            repeated[number] = repeated.get(number, 0) + again
    return wrong, repeated


def _unnumbered(connection: Connection, name: str, expected: dict[int, int]) -> dict[int, int]:
    """Rows that do not carry a partition can only be counted together; a difference is shown at the first partition."""
    row = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
    assert row is not None
    result, off = dict(expected), row[0] - sum(expected.values())
    if off and result:
        result[min(result)] += off
    return result


def _by_partition(connection: Connection, sql: str, parameters: list[str]) -> dict[int, int]:
    return dict(connection.execute(sql, parameters).fetchall())


def _entry(row: Sequence) -> Entry:
    batch, cluster, topic_id, topic, partition, start, end, closed_by, *counts = row
    source = PartitionId(TopicId(cluster, topic_id, topic), partition)
    return Entry(batch, source, Range(start, end), Counts(*counts), closed_by == "reread")
