"""Read the history, and count the table against it: one consistent view, inside one read transaction."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kpipe.definition.table_template import field_of, value_of
from kpipe.schema.columns import VARCHAR, Columns
from kpipe.topics import Part, in_order
from kpipe.verification.recount import Adopted
from kpipe.verification.verify import Entry, TableRecount
from resources.destinations.sql.ledger.adopted import foreign, is_alone
from resources.destinations.sql.ledger.multi_table import ENTRY, WRITTEN, entry_of
from resources.destinations.sql.ledger.range_check import Compared, check_ranges, only_topic
from resources.destinations.sql.ledger.row_balance import TOPIC, kept, named
from resources.destinations.sql.ledger.table_definitions import BATCHES, ERRORS
from resources.destinations.sql.sql_dialect import Connection, Dialect, quote

__all__ = ["dead_letters", "entries", "misplaced", "recount"]


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
    known: Columns | None,
    key: Sequence[str] = (),
    adopted: Adopted | None = None,
    more: Sequence[str] = (),
) -> TableRecount:
    """Count the rows of a table, its repeated offsets, and the rows of each committed range.

    The table's rows are those of all pipelines that write it. They are compared by range if rows have offsets. A table with a key
    is compared with the balance of its commits (row_balance.py) instead.

    Args:
        connection: inside a read transaction.
        dialect: of the database.
        pipeline: its name.
        table: name of the table.
        known: the table's columns; None: the table does not exist.
        key: its key columns, if it has a key.
        adopted: offsets that another loader has read: its rows in this table are not counted.
        more: problems of the table that the caller has found.
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
        return TableRecount(held, expected, keeping=keeping, problems=more)
    names, name = {column.lower() for column in known.names()}, dialect.name(table)
    if "_kafka_partition" not in names:
        return TableRecount(_unnumbered(connection, name, expected), expected, problems=more)
    topic = TOPIC if TOPIC in names else "NULL"
    rows = _by_partition(
        connection,
        f"SELECT {topic}, _kafka_partition, count(*) FROM {name} WHERE _kafka_partition IS NOT NULL GROUP BY 1, 2",
        [],
    )
    if adopted and "_kafka_offset" in names:
        for number, other in foreign(connection, name, TOPIC in names, adopted, is_alone(adopted, expected)).items():
            rows[number] -= other.rows
    only = only_topic(connection, dialect, table, names, rows)
    if only is not None:
        for number in [number for number in rows if isinstance(number, int)]:
            place = named(only, number)
            rows[place] = rows.get(place, 0) + rows.pop(number)
    compared = Compared()
    if "_kafka_offset" in names:
        compared = check_ranges(connection, dialect, pipeline, table, names, only, bool(adopted))
    problems = [*compared.problems, *more]
    return TableRecount(
        rows, expected, compared.repeated, compared.wrong, compared.exchanged, problems=problems, unproven=compared.unproven
    )


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
