"""Read the history, and count the table against it: one consistent view, inside one read transaction."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kpipe.batch.batch import Counts
from kpipe.definition.table_template import field_of, value_of
from kpipe.offsets import Range
from kpipe.schema.columns import VARCHAR, Columns
from kpipe.topics import Part, PartitionId, TopicId, in_order, part
from kpipe.verification.clearing import CLEARED
from kpipe.verification.recount import Adopted
from kpipe.verification.verify import Entry, TableRecount
from resources.destinations.ledger_rows import LOOSE, UNREAD, made_entry
from resources.destinations.sql.ledger.multi_table import ENTRY, WRITTEN
from resources.destinations.sql.ledger.row_balance import TOPIC, kept, named
from resources.destinations.sql.ledger.table_definitions import BATCHES, ERRORS
from resources.destinations.sql.sql_dialect import Connection, Dialect, quote

__all__ = ["dead_letters", "entries", "entry_of", "misplaced", "recount"]

# The same order in every statement that numbers the ranges.
_ORDER = "seq, cluster_id, topic_id, topic, batch_source_partition_id, batch_earliest_offset, batch_id"


def entries(connection: Connection, pipeline: str) -> list[Entry]:
    """Return every committed range of the pipeline, in order of commit."""
    rows = connection.execute(
        f"SELECT {ENTRY}, target_table, seq FROM {BATCHES.sql} WHERE pipeline_name = $1"
        " ORDER BY seq, cluster_id, topic_id, topic, batch_source_partition_id, batch_earliest_offset",
        [pipeline],
    ).fetchall()
    return [entry_of(row[:-2], *row[-2:]) for row in rows]


def dead_letters(connection: Connection, pipeline: str) -> Mapping[Part, int]:
    """Return the number of the pipeline's dead letters by partition."""
    return _by_partition(
        connection,
        f'SELECT topic, "partition", count(*) FROM {ERRORS.sql} WHERE pipeline_name = $1 AND dead_letter'
        ' GROUP BY topic, "partition"',
        [pipeline],
    )


def recount(
    connection: Connection,
    dialect: Dialect,
    pipeline: str,
    table: str,
    known: Sequence[str] | None,
    key: Sequence[str] = (),
    adopted: Adopted | None = None,
) -> TableRecount:
    """Count the rows of a table, its repeated offsets, and the rows of each committed range.

    The table's rows are those of all pipelines that write it. They are compared by range only if rows have offsets, and if one
    topic was read or rows also have the topic. A topic that was read under several ids, or by several pipelines, is compared by
    its number of rows only. A table with a key is compared with the balance of its commits (row_balance.py) instead.

    Args:
        connection: inside a read transaction.
        dialect: of the database.
        pipeline: its name.
        table: name of the table.
        known: names of the table's columns; None: the table does not exist.
        key: its key columns, if it has a key.
        adopted: offsets that another loader has read: its rows in this table are not counted.
    """
    expected = _by_partition(
        connection,
        f'SELECT topic, batch_source_partition_id, CAST(sum("rows") AS {dialect.bigint}) FROM {WRITTEN} AS w'
        f" WHERE {dialect.same_name.format('target_table', '$1')} GROUP BY topic, batch_source_partition_id",
        [table],
    )
    if known is None:
        return TableRecount(expected_rows=expected)
    keeping = kept(connection, dialect, table, known, key)
    if keeping is not None:
        held = {number: item.rows for number, item in keeping.found.items()}
        expected = {number: item.rows for number, item in keeping.expected.items()}
        return TableRecount(held, expected, keeping=keeping)
    names, name = {column.lower() for column in known}, dialect.name(table)
    if "_kafka_partition" not in names:
        return TableRecount(_unnumbered(connection, name, expected), expected)
    topic = TOPIC if TOPIC in names else "NULL"
    rows = _by_partition(
        connection,
        f"SELECT {topic}, _kafka_partition, count(*) FROM {name} WHERE _kafka_partition IS NOT NULL GROUP BY 1, 2",
        [],
    )
    if adopted and "_kafka_offset" in names:
        for number, foreign in _foreign(connection, dialect, name, topic, adopted).items():
            rows[number] -= foreign
    wrong, repeated, exchanged = (
        _ranges(connection, dialect, pipeline, table, names) if "_kafka_offset" in names else ([], {}, [])
    )
    return TableRecount(rows, expected, repeated, wrong, exchanged)


def misplaced(
    connection: Connection, dialect: Dialect, pipeline: str, table: str, template: str, known: Columns, computed: Collection[str]
) -> Sequence[str]:
    """Return a problem if rows of a table by a field have another value than that of the table's name.

    The ranges cannot show that rows of one range were exchanged between two tables, if the sums of their offsets are equal. Not
    compared: a column that is not text, or that `into.update` computes, and a table that other definitions have written, too.

    Args:
        connection: inside a read transaction.
        dialect: of the database.
        pipeline: its name.
        table: name of the table.
        template: `into.table`, with `{field.NAME}`.
        known: the table's columns.
        computed: columns of `into.update`.
    """
    value, name = value_of(template, table), field_of(template) or ""
    column = next((each for each, kind in known if each.lower() == name.lower() and kind == VARCHAR), None)
    if value is None or column is None or name.lower() in map(str.lower, computed) or "_kafka_partition" not in known:
        return []
    ours = f"SELECT z.batch_id FROM {BATCHES.sql} AS z WHERE z.pipeline_name = $2 AND z.target_table = $3"
    others = connection.execute(
        f"SELECT 1 FROM {WRITTEN} AS w WHERE {dialect.same_name.format('target_table', '$1')} AND NOT (pipeline_name = $2"
        f" AND batch_id IN ({ours})) LIMIT 1",
        [table, pipeline, template],
    ).fetchall()
    if others:
        return []
    row = connection.execute(
        f"SELECT count(*) FROM {dialect.name(table)} AS t WHERE t._kafka_partition IS NOT NULL"
        f" AND (t.{quote(column)} IS NULL OR t.{quote(column)} <> $1)",
        [value],
    ).fetchone()
    return [f"{row[0]} rows have another value of {column} than {value}"] if row[0] else []


def _ranges(
    connection: Connection, dialect: Dialect, pipeline: str, table: str, names: Collection[str]
) -> tuple[list[tuple[Entry, int]], dict[Part, int], list[Entry]]:
    """Compare the rows of each committed range with the table.

    Returns:
        Ranges with another number of rows, each with this number; repeated offsets by partition; ranges whose number of rows is
        right, but whose offsets are not.
    """
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
    # Ranges from before the table was cleared have no rows in it.
    since = (
        f"seq > (SELECT coalesce(max(seq), 0) FROM {WRITTEN} AS g WHERE pipeline_name = $1 AND closed_by = '{CLEARED}'"
        f" AND {dialect.same_name.format('target_table', '$2')})"
    )
    mine = f"pipeline_name = $1 AND {dialect.same_name.format('target_table', '$2')} AND {since}"
    # Of these partitions only the numbers of rows are compared: the table has rows without an offset, or the rows of an offset
    # several times, because it was read again (its ranges overlap), with `at_least_once`, or by a receiver.
    unknown = (
        f"SELECT t._kafka_partition AS number FROM {dialect.name(table)} AS t WHERE t._kafka_offset IS NULL"
        + (" OR t._kafka_topic IS NULL" if by_topic else "")
        + f" UNION SELECT batch_source_partition_id FROM {WRITTEN} AS l"
        f" WHERE {mine} AND (closed_by = 'given_up' OR batch_state = '{LOOSE}')"
        " UNION SELECT batch_source_partition_id FROM (SELECT batch_source_partition_id, batch_earliest_offset,"
        "  max(batch_latest_offset) OVER (PARTITION BY cluster_id, topic_id, topic, batch_source_partition_id"
        "   ORDER BY batch_earliest_offset ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached"
        "  FROM kpipe_ranges) AS o WHERE batch_earliest_offset < reached"
    )
    # Other ranges never overlap: only the last range that begins at or before an offset can contain it.
    hits = dialect.hits.format(
        table=dialect.name(table),
        topic="AND t._kafka_topic = b.topic" if by_topic else "",
        of_row="t._kafka_topic" if by_topic else "''",
        of_range="b.topic" if by_topic else "''",
    )
    if not dialect.sums:
        hits = f"SELECT id, n, n - 1 AS again, n * CAST(h.at AS DECIMAL(38,0)) AS summed FROM ({hits}) AS h"
    # These names do not hide a table of the user.
    found = connection.execute(
        f"WITH kpipe_ranges AS (SELECT row_number() OVER (ORDER BY {_ORDER}) AS id, {ENTRY}, seq, records, offsets"
        f"   FROM {WRITTEN} AS w"
        f"   WHERE {mine} AND coalesce(closed_by, '') NOT IN {UNREAD} AND batch_latest_offset > batch_earliest_offset{twice}),"
        f" kpipe_unknown AS ({unknown}),"
        f" kpipe_hits AS ({hits}),"
        f" kpipe_held AS (SELECT id, CAST(sum(n) AS {dialect.bigint}) AS held,"
        f"  CAST(sum(again) AS {dialect.bigint}) AS again, sum(summed) AS summed FROM kpipe_hits AS x GROUP BY id)"
        f' SELECT {ENTRY}, coalesce(held, 0), coalesce(again, 0) - ("rows" - records)'
        " FROM kpipe_ranges AS b LEFT JOIN kpipe_held AS h USING (id)"
        " WHERE batch_source_partition_id NOT IN (SELECT number FROM kpipe_unknown WHERE number IS NOT NULL)"
        ' AND (coalesce(held, 0) <> "rows" OR coalesce(again, 0) <> "rows" - records OR coalesce(summed, 0) <> offsets)'
        " ORDER BY seq, topic, batch_source_partition_id, batch_earliest_offset",
        [pipeline, table],
    ).fetchall()
    wrong: list[tuple[Entry, int]] = []
    repeated: dict[Part, int] = {}
    exchanged: list[Entry] = []
    for *values, held, again in found:
        entry = entry_of(values)
        if held != entry.counts.rows:
            wrong.append((entry, held))
        if again is not None and again > 0:  # not counting rows of one record; None: the number of records is unknown
            name = part(entry.source, by_topic)
            repeated[name] = repeated.get(name, 0) + again
        if held == entry.counts.rows and not again:
            exchanged.append(entry)
    return wrong, repeated, exchanged


def _foreign(connection: Connection, dialect: Dialect, name: str, topic: str, adopted: Adopted) -> dict[Part, int]:
    """Count rows at offsets that another loader has read. Rows without a topic are those of the pipelines' only topic."""
    topics = sorted({topic for topic, _ in adopted})
    if topic == "NULL" and len(topics) > 1:  # rows of several topics cannot be distinguished
        return {}
    lines = [
        f"SELECT {topics.index(key[0])} AS source, {key[1]} AS number, {end} AS ends" for key, end in sorted(adopted.items())
    ]
    named = " ".join(f"WHEN ${at} THEN {at - 1}" for at in range(1, len(topics) + 1))
    source = "0" if topic == "NULL" else f"CASE t.{topic} {named} ELSE -1 END"
    return _by_partition(
        connection,
        f"SELECT {'NULL' if topic == 'NULL' else f't.{topic}'}, t._kafka_partition, count(*)"
        f" FROM {name} AS t JOIN ({' UNION ALL '.join(lines)}) AS a"
        f" ON a.number = t._kafka_partition AND t._kafka_offset < a.ends AND a.source = {source} GROUP BY 1, 2",
        [] if topic == "NULL" else topics,
    )


def _unnumbered(connection: Connection, name: str, expected: dict[Part, int]) -> dict[Part, int]:
    """Count the rows of a table without partitions as a whole; return a difference at the first partition."""
    row = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
    assert row is not None
    result, off = dict(expected), row[0] - sum(expected.values())
    if off and result:
        result[min(result, key=in_order)] += off
    return result


def _by_partition(connection: Connection, sql: str, parameters: list[str]) -> dict[Part, int]:
    """Return counts by partition, from rows of topic (NULL if unnamed), number and count."""
    return {named(topic or "", number): count for topic, number, count in connection.execute(sql, parameters).fetchall()}


def entry_of(row: Sequence, table: str = "", seq: int = 0) -> Entry:
    """Return the range of a row with the columns `ENTRY`."""
    batch, cluster, topic_id, topic, partition, start, end, closed_by, state, *counts = row
    source = PartitionId(TopicId(cluster, topic_id, topic), partition)
    return made_entry(batch, source, Range(start, end), Counts(*counts), closed_by, state, table, seq)
