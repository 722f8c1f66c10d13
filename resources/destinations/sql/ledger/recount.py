"""The history, and the table counted afresh against it: one consistent view, inside one read transaction."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Collection, Sequence

from kpipe.batch.batch import Counts
from kpipe.offsets import Range
from kpipe.topics import Part, PartitionId, TopicId, in_order, part
from kpipe.verification.clearing import CLEARED
from kpipe.verification.verify import Entry, Recount
from resources.destinations.ledger_rows import LOOSE, UNREAD, made_entry
from resources.destinations.sql.ledger.multi_table import ENTRY, WRITTEN
from resources.destinations.sql.ledger.row_balance import TOPIC, kept, named
from resources.destinations.sql.ledger.table_definitions import BATCHES, ERRORS
from resources.destinations.sql.sql_dialect import Connection, Dialect

__all__ = ["entries", "recount"]

# The same wherever a statement numbers the ranges anew.
_ORDER = "seq, cluster_id, topic_id, topic, batch_source_partition_id, batch_earliest_offset, batch_id"


def entries(connection: Connection, pipeline: str) -> list[Entry]:
    """Every committed range of the pipeline, in order of commit."""
    rows = connection.execute(
        f"SELECT {ENTRY}, target_table FROM {BATCHES.sql} WHERE pipeline_name = $1"
        " ORDER BY seq, cluster_id, topic_id, topic, batch_source_partition_id, batch_earliest_offset",
        [pipeline],
    ).fetchall()
    return [_entry(row[:-1], row[-1]) for row in rows]


def recount(
    connection: Connection,
    dialect: Dialect,
    pipeline: str,
    table: str,
    known: Sequence[str] | None,
    key: Sequence[str] = (),
    first: str = "",
) -> Recount:
    """Rows, dead letters, repeated offsets, and rows of each committed range, as the destination really holds them.

    `known` are the names of the table's columns; None: there is no table. `key` are those of its key, if it has one. `first` is
    the pipeline's first table, where this is a further one.

    The table's rows are those of all pipelines that write it. Rows can be told apart by range only when they carry
    offsets, and offsets mean something only when one topic was read (or rows also carry the topic). A topic that was read
    under several ids, or by several pipelines, is compared by its number of rows only. A table that is written
    with a key is compared with what its commits have left (row_balance.py) instead.
    """
    expected = _by_partition(
        connection,
        f'SELECT topic, batch_source_partition_id, CAST(sum("rows") AS {dialect.bigint}) FROM {WRITTEN} AS w'
        f" WHERE {dialect.same_name.format('target_table', '$1')} GROUP BY topic, batch_source_partition_id",
        [table],
    )
    dead = _by_partition(
        connection,
        f'SELECT topic, "partition", count(*) FROM {ERRORS.sql} WHERE pipeline_name = $1 AND dead_letter'
        ' GROUP BY topic, "partition"',
        [pipeline],
    )
    if known is None:
        return Recount(dead_letters=dead, expected_rows=expected)
    keeping = kept(connection, dialect, table, known, key)
    if keeping is not None:
        held = {number: item.rows for number, item in keeping.found.items()}
        expected = {number: item.rows for number, item in keeping.expected.items()}
        return Recount(held, dead, expected_rows=expected, keeping=keeping)
    names, name = {column.lower() for column in known}, dialect.name(table)
    if "_kafka_partition" not in names:
        return Recount(_unnumbered(connection, name, expected), dead, expected_rows=expected)
    topic = TOPIC if TOPIC in names else "NULL"
    rows = _by_partition(
        connection,
        f"SELECT {topic}, _kafka_partition, count(*) FROM {name} WHERE _kafka_partition IS NOT NULL GROUP BY 1, 2",
        [],
    )
    wrong, repeated, exchanged = (
        _ranges(connection, dialect, pipeline, table, first or table, names) if "_kafka_offset" in names else ([], {}, [])
    )
    return Recount(rows, dead, repeated, wrong, expected, exchanged=exchanged)


def _ranges(
    connection: Connection, dialect: Dialect, pipeline: str, table: str, first: str, names: Collection[str]
) -> tuple[list[tuple[Entry, int]], dict[Part, int], list[Entry]]:
    """Committed ranges that do not hold their rows, with what they hold; repeated offsets by partition; ranges of other rows."""
    row = connection.execute(
        "SELECT count(*), count(DISTINCT topic) FROM (SELECT DISTINCT pipeline_name, cluster_id, topic_id, topic"
        f" FROM {WRITTEN} AS w WHERE {dialect.same_name.format('target_table', '$1')}) AS readers",
        [table],
    ).fetchone()
    assert row is not None
    by_topic = row[0] > 1
    if by_topic and TOPIC not in names:
        return [], {}, []
    twice = (
        f" AND topic NOT IN (SELECT topic FROM {WRITTEN} AS x WHERE {dialect.same_name.format('target_table', '$2')}"
        " GROUP BY topic HAVING count(DISTINCT (pipeline_name, cluster_id, topic_id)) > 1)"
        if row[0] > row[1]
        else ""
    )
    # What was read before the table was cleared has left nothing in it.
    since = (
        f"seq > (SELECT coalesce(max(seq), 0) FROM {WRITTEN} AS g WHERE pipeline_name = $1 AND closed_by = '{CLEARED}'"
        f" AND {dialect.same_name.format('target_table', '$2')})"
    )
    unknown = "t._kafka_offset IS NULL" + (" OR t._kafka_topic IS NULL" if by_topic else "")
    # Where offsets were read again, ranges overlap, and only the numbers of rows can be compared.
    unknown += (
        f" UNION SELECT batch_source_partition_id FROM {BATCHES.sql} WHERE pipeline_name = $1"
        f" AND (closed_by IN {UNREAD} OR batch_state = '{LOOSE}') AND {since}"
        f" AND {dialect.same_name.format('target_table', '$3')}"
    )
    # Elsewhere ranges never overlap, so the last one that begins at or before an offset is the only one that can hold it.
    hits = dialect.hits.format(
        table=dialect.name(table),
        topic="AND t._kafka_topic = b.topic" if by_topic else "",
        of_row="t._kafka_topic" if by_topic else "''",
        of_range="b.topic" if by_topic else "''",
    )
    # Named so that none of them hides a table of the user's.
    found = connection.execute(
        f"WITH kpipe_ranges AS (SELECT row_number() OVER (ORDER BY {_ORDER}) AS id, {ENTRY}, seq, records, offsets"
        f"   FROM {WRITTEN} AS w"
        f"   WHERE pipeline_name = $1 AND {dialect.same_name.format('target_table', '$2')}"
        f"   AND batch_latest_offset > batch_earliest_offset{twice} AND {since}),"
        f" kpipe_unknown AS (SELECT DISTINCT t._kafka_partition AS number FROM {dialect.name(table)} AS t WHERE {unknown}),"
        f" kpipe_hits AS ({hits}),"
        f" kpipe_held AS (SELECT id, CAST(sum(n) AS {dialect.bigint}) AS held,"
        f"  CAST(sum(n) - count(*) AS {dialect.bigint}) AS again,"
        "  sum(n * CAST(x.at AS DECIMAL(38,0))) AS summed"
        "  FROM kpipe_hits AS x GROUP BY id)"
        f' SELECT {ENTRY}, coalesce(held, 0), coalesce(again, 0) - ("rows" - records)'
        " FROM kpipe_ranges AS b LEFT JOIN kpipe_held AS h USING (id)"
        " WHERE batch_source_partition_id NOT IN (SELECT number FROM kpipe_unknown WHERE number IS NOT NULL)"
        ' AND (coalesce(held, 0) <> "rows" OR coalesce(again, 0) <> "rows" - records OR coalesce(summed, 0) <> offsets)'
        " ORDER BY seq, topic, batch_source_partition_id, batch_earliest_offset",
        [pipeline, table, first],
    ).fetchall()
    wrong: list[tuple[Entry, int]] = []
    repeated: dict[Part, int] = {}
    exchanged: list[Entry] = []
    for *values, held, again in found:
        entry = _entry(values)
        if held != entry.counts.rows:
            wrong.append((entry, held))
        if again is not None and again > 0:  # beyond those that one record gave; None: it is not known how many did
            name = part(entry.source, by_topic)
            repeated[name] = repeated.get(name, 0) + again
        if held == entry.counts.rows and not again:
            exchanged.append(entry)
    return wrong, repeated, exchanged


def _unnumbered(connection: Connection, name: str, expected: dict[Part, int]) -> dict[Part, int]:
    """Rows that do not carry a partition can only be counted together; a difference is shown at the first partition."""
    row = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
    assert row is not None
    result, off = dict(expected), row[0] - sum(expected.values())
    if off and result:
        result[min(result, key=in_order)] += off
    return result


def _by_partition(connection: Connection, sql: str, parameters: list[str]) -> dict[Part, int]:
    """From rows of topic (NULL where nothing names it), number and count."""
    return {named(topic or "", number): count for topic, number, count in connection.execute(sql, parameters).fetchall()}


def _entry(row: Sequence, table: str = "") -> Entry:
    batch, cluster, topic_id, topic, partition, start, end, closed_by, state, *counts = row
    source = PartitionId(TopicId(cluster, topic_id, topic), partition)
    return made_entry(batch, source, Range(start, end), Counts(*counts), closed_by, state, table)
