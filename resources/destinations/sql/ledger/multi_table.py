"""Count what each table received of a range, and sum the offsets of its rows, where the range's own counts do not show both."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from kpipe.batch.batch import Commit, Counts, Mark
from kpipe.definition.table_template import field_of, fill, value_of
from kpipe.errors import Fenced
from kpipe.offsets import Range
from kpipe.topics import PartitionId, TopicId
from kpipe.verification.clearing import CLEARED
from kpipe.verification.verify import Entry
from resources.destinations.ledger_rows import STATES, SUCCEEDED, UNREAD, made_entry
from resources.destinations.sql.ledger.table_definitions import BATCHES, TARGETS
from resources.destinations.sql.sql_dialect import Connection, Dialect

__all__ = [
    "ENTRY", "WRITTEN", "check_names", "entry_of", "former", "of_template", "once", "others", "rows", "settled", "targets",
    "topics", "topics_of_tables", "write", "written",
]  # fmt: skip

#: Columns of a range, as `kpipe.verification.verify.Entry` takes them.
ENTRY = (
    "batch_id, cluster_id, topic_id, topic, batch_source_partition_id, batch_earliest_offset, batch_latest_offset,"
    ' closed_by, batch_state, messages, "rows", dead_letters, filtered, gaps, given, set_aside_before, bytes, deletes, inserted,'
    " updated, deleted, ignored"
)
# Twice the sum of the offsets of a range, as of `Mark.follows`: without a division, whose type differs by database.
_TWICE = (
    'CASE WHEN "rows" = 0 THEN 0 WHEN coalesce(given, 0) = 0 AND "rows" = batch_latest_offset - batch_earliest_offset'
    ' THEN CAST("rows" AS DECIMAL(38,0)) * (CAST(batch_earliest_offset AS DECIMAL(38,0)) + batch_latest_offset - 1) END'
)
#: Rows of every table by range, of all pipelines: `ENTRY`, the pipeline, the table, the number of records with rows in it, and
#: twice the sum of the rows' offsets (NULL: unknown).
WRITTEN = (
    f'(SELECT {ENTRY}, pipeline_name, seq, target_table, CASE WHEN given > 0 THEN NULL ELSE "rows" END AS records,'
    f" {_TWICE} AS twice"
    f" FROM {BATCHES.sql} AS x WHERE NOT EXISTS (SELECT 1 FROM {TARGETS.sql} AS y WHERE y.batch_id = x.batch_id)"
    " UNION ALL SELECT batch_id, cluster_id, topic_id, topic, batch_source_partition_id, batch_earliest_offset,"
    ' batch_latest_offset, closed_by, batch_state, 0, "rows", 0, 0, 0, records, 0, 0, 0, inserted, updated, deleted, ignored,'
    f" pipeline_name, seq, target_table, records, offsets + offsets FROM {TARGETS.sql})"
)


def entry_of(row: Sequence[Any], table: str = "", seq: int = 0) -> Entry:
    """Return the range of a row with the columns `ENTRY`."""
    batch, cluster, topic_id, topic, partition, start, end, closed_by, state, *counts = row
    source = PartitionId(TopicId(cluster, topic_id, topic), partition)
    return made_entry(batch, source, Range(start, end), Counts(*counts), closed_by, state, table, seq)


_FATES = ("inserted", "updated", "deleted", "ignored")


def write(connection: Connection, dialect: Dialect, commit: Commit, table: str, seq: int) -> None:
    """Write the counts of each table; nothing if they, and the sums of offsets, follow from those of the ranges.

    Args:
        connection: inside the transaction of the commit.
        dialect: of the database.
        commit: with the outcome of its rows.
        table: name of a table that the commit does not name.
        seq: number of the commit.
    """
    if not any(item.marks for item in commit.tables):
        return
    rows: list[dict[str, Any]] = []
    for step in commit.steps:
        where = {
            "pipeline_name": commit.pipeline,
            "batch_id": commit.id,
            "seq": seq,
            "cluster_id": step.source.topic.cluster,
            "topic_id": step.source.topic.topic_id,
            "topic": step.source.topic.name,
            "batch_source_partition_id": step.source.partition,
            "batch_earliest_offset": step.range.start,
            "batch_latest_offset": step.range.end,
            "closed_by": step.closed_by,
            "batch_state": STATES.get(commit.kind, SUCCEEDED),
        }
        key = step.lane.key
        for item in commit.tables:
            if key in item.counts:
                found = item.counts[key]
                rows.append({**where, "target_table": item.table or table, **_row(found, item.marks.get(key, Mark()))})
    TARGETS.insert(connection, dialect, rows)


def _row(counts: Counts, mark: Mark) -> dict[str, int]:
    fates = {name: getattr(counts, name) for name in _FATES}
    return {"rows": counts.rows, "records": mark.records, "offsets": mark.offsets, **fates}


def written(connection: Connection, dialect: Dialect, pipeline: str, table: str, net: bool = True) -> int:
    """Return the number of rows that the pipeline has written to a table, according to the ledger, also before edits.

    Args:
        connection: for reading.
        dialect: of the database.
        pipeline: its name.
        table: name of the table.
        net: without the rows that the pipeline has deleted or replaced since.
    """
    counted = "sum(inserted) - sum(deleted)" if net else 'sum("rows")'
    row = connection.execute(
        f"SELECT coalesce({counted}, 0) FROM {WRITTEN} AS w WHERE pipeline_name = $1"
        f" AND {dialect.same_name.format('target_table', '$2')}",
        [pipeline, table],
    ).fetchone()
    return int(row[0])


def others(connection: Connection, dialect: Dialect, pipeline: str, table: str) -> list[str]:
    """Return the other pipelines that have rows in a table, according to the ledger.

    Args:
        connection: for reading.
        dialect: of the database.
        pipeline: whose rows do not count.
        table: name of the table.
    """
    found = connection.execute(
        f"SELECT pipeline_name FROM {WRITTEN} AS w WHERE {dialect.same_name.format('target_table', '$1')}"
        " AND pipeline_name <> $2 GROUP BY pipeline_name HAVING sum(inserted) - sum(deleted) > 0 ORDER BY pipeline_name",
        [table, pipeline],
    ).fetchall()
    return [name for (name,) in found]


def former(connection: Connection, dialect: Dialect, pipeline: str, tables: Collection[str]) -> list[str]:
    """Return the tables that the pipeline has written to, and that its definition does not name any more.

    Args:
        connection: for reading.
        dialect: of the database.
        pipeline: its name.
        tables: that the definition names.
    """
    rows = connection.execute(
        f'SELECT target_table FROM {WRITTEN} AS w WHERE pipeline_name = $1 AND "rows" > 0 GROUP BY target_table'
        " ORDER BY max(seq), target_table",
        [pipeline],
    ).fetchall()
    named = {dialect.fold(name) for name in tables}
    return sorted(name for name in once(dialect, (name for (name,) in rows)) if dialect.fold(name) not in named)


def rows(connection: Connection, dialect: Dialect, pipeline: str) -> dict[str, int]:
    """Return the number of rows that the pipeline has in each table, according to the ledger, by its newest name.

    Args:
        connection: for reading.
        dialect: of the database.
        pipeline: its name.
    """
    found = connection.execute(
        "SELECT target_table, coalesce(sum(inserted) - sum(deleted), 0)"
        f" FROM {WRITTEN} AS w WHERE pipeline_name = $1 GROUP BY target_table ORDER BY max(seq), target_table",
        [pipeline],
    ).fetchall()
    counts: dict[str, int] = {}
    for table, count in found:
        counts[dialect.fold(table)] = counts.get(dialect.fold(table), 0) + int(count)
    return {name: counts[dialect.fold(name)] for name in once(dialect, (table for table, _ in found))}


def targets(connection: Connection, dialect: Dialect, pipeline: str) -> list[str]:
    """Return the tables of the pipeline whose rows are counted by table, in order: of several tables, or of a field's values.

    Args:
        connection: for reading.
        dialect: of the database.
        pipeline: its name.
    """
    found = connection.execute(
        f"SELECT target_table FROM {TARGETS.sql} WHERE pipeline_name = $1 AND NOT (target_table = '') GROUP BY target_table"
        " ORDER BY max(seq), target_table",
        [pipeline],
    ).fetchall()
    return sorted(once(dialect, (name for (name,) in found)))


def of_template(connection: Connection, dialect: Dialect, pipeline: str, template: str) -> list[str]:
    """Return the tables of a template that the pipeline has written: of topics, or of a field's values.

    Args:
        connection: for reading.
        dialect: of the database.
        pipeline: its name.
        template: `into.table`.
    """
    if field_of(template) is not None:
        return [name for name in targets(connection, dialect, pipeline) if value_of(template, name) is not None]
    found = {topic: name for topic, name in _by_age(connection, pipeline).items() if name == fill(template, topic)}
    names = once(dialect, found.values())
    return list(dict.fromkeys(name for _, name in sorted(found.items()) if name in names))


def once(dialect: Dialect, names: Iterable[str]) -> list[str]:
    """Return each table once, by the last of its names: a database may ignore the case of names."""
    return list({dialect.fold(name): name for name in names}.values())


def check_names(commit: Commit, names: Iterable[str]) -> None:
    """Check that another run has not written a table whose name differs from that of a field's value by case only.

    Args:
        commit: with the tables.
        names: of the tables that the pipeline has written, read in the commit's transaction, which excludes its other commits.

    Raises:
        Fenced: it has.
    """
    written = {name.lower(): name for name in names}
    for write in commit.tables:
        if (other := written.get(write.table.lower(), write.table)) != write.table:
            raise Fenced(f"batch {commit.id}: another run has created table {other} instead of {write.table}", "run it again")


def topics(connection: Connection, pipeline: str) -> dict[str, str]:
    """Return the topics that the pipeline has read, in order, each with the table that its newest range names.

    Args:
        connection: for reading.
        pipeline: its name.
    """
    return dict(sorted(_by_age(connection, pipeline).items()))


def _by_age(connection: Connection, pipeline: str) -> dict[str, str]:
    """Return the newest table of each topic. The tables that were written last come last."""
    unread = (*UNREAD, CLEARED)
    rows = connection.execute(
        f"SELECT topic, target_table FROM {BATCHES.sql} WHERE pipeline_name = $1 AND coalesce(closed_by, '') NOT IN {unread}"
        " GROUP BY topic, target_table ORDER BY max(seq), topic, target_table",
        [pipeline],
    ).fetchall()
    found: dict[str, str] = {}
    for topic, table in rows:
        found.pop(topic, None)
        found[topic] = table
    return found


def topics_of_tables(connection: Connection, pipeline: str) -> dict[str, list[str]]:
    """Return the topics of which the pipeline has rows or dead letters in each of its tables by topic, by table.

    Args:
        connection: for reading.
        pipeline: its name.
    """
    rows = connection.execute(
        f"SELECT target_table, topic FROM {BATCHES.sql} WHERE pipeline_name = $1 GROUP BY target_table, topic"
        " HAVING sum(inserted) - sum(deleted) > 0 OR sum(dead_letters) > 0 ORDER BY target_table, topic",
        [pipeline],
    ).fetchall()
    found: dict[str, list[str]] = {}
    for table, topic in rows:
        found.setdefault(table, []).append(topic)
    return found


def settled(connection: Connection, commit: Commit) -> Commit:
    """Return a landed commit with the outcome of the rows of each table, as the ledger records it."""
    if len(commit.tables) < 2 and not commit.by_field:
        return commit
    rows = connection.execute(
        "SELECT target_table, cluster_id, topic_id, topic, batch_source_partition_id, batch_earliest_offset,"
        f' "rows", inserted, updated, deleted, ignored FROM {TARGETS.sql} WHERE batch_id = $1',
        [commit.id],
    ).fetchall()
    found = {
        tuple(row[:6]): Counts(**dict(zip(("rows", *_FATES), row[6:], strict=True))) for row in rows
    }  # fmt: skip
    result = []
    for item in commit.tables:
        counts = {}
        for step in (step for step in commit.steps if step.lane.key in item.counts):
            topic = step.source.topic
            where = (item.table, topic.cluster, topic.topic_id, topic.name, step.source.partition, step.range.start)
            counts[step.lane.key] = found.get(where, item.counts[step.lane.key])
        result.append(counts)
    return commit.settled(result)
