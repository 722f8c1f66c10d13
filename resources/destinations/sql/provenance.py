"""Read what a database's ledger and tables contain about one offset, in one read transaction."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kpipe.definition.table_template import field_of
from kpipe.errors import InvalidPipeline, SchemaConflict
from kpipe.ledger.ledger import Ledger
from kpipe.provenance.facts import DECISIONS, MOST, CommitInfo, Facts, Found, Letter, Reading, RowSources, TableRows
from kpipe.schema.columns import Columns
from kpipe.topics import Part, PartitionId, TopicId
from kpipe.verification.clearing import CLEARED
from kpipe.verification.recount import Entry
from resources.destinations.provenance import Written, adopted_rows, bound, commit_info, decided, shares
from resources.destinations.sql.ledger import ledger_table, multi_table, row_balance
from resources.destinations.sql.ledger.multi_table import ENTRY, WRITTEN, entry_of
from resources.destinations.sql.ledger.range_check import only_topic
from resources.destinations.sql.ledger.table_definitions import BATCHES, COMMITS, ERRORS, TARGETS
from resources.destinations.sql.sql_dialect import Connection, quote
from resources.destinations.sql.store import Store

__all__ = ["row_sources", "rows_at", "trace"]

_INFO = ("batch_id", "seq", "kind", "run_id", "version", "note", "committed")
_LOOKED = 1000  # most decisions whose notes are read; most other ranges that overlap one; most dead letters of an offset
_Counted = tuple[int, int | None]  # rows of a range in a table, and the records that gave them if recorded
_TOPIC, _NUMBER, _OFFSET = "_kafka_topic", "_kafka_partition", "_kafka_offset"


def trace(store: Store, topic: str, partition: int, offset: int) -> Facts:
    """Return what is recorded about an offset; see `Traceable.trace`."""

    def read(connection: Connection) -> Facts:
        # Whether a table exists must be read outside of the transaction. A table that appears later counts as missing.
        tables = {table for reading in _ranges(connection, store, topic, partition, offset) for table in reading[1]}
        exists = {table: store.engine.table_exists(connection, table) for table in tables}
        store.engine.begin_snapshot(connection)
        ledger = ledger_table.read(connection, store.pipeline)[1]
        letters = _letters(connection, store, topic, partition, offset)
        readings = [
            _reading(connection, store, entry, written, exists, letters, offset)
            for entry, written in _ranges(connection, store, topic, partition, offset)
        ]
        decisions = decided(_commits(connection, store, DECISIONS, _LOOKED), topic, partition)
        return Facts(ledger, readings, decisions, _commits(connection, store, ("replay",), MOST))

    return store.read_ledger(read, Facts(Ledger(store.pipeline)))


def row_sources(store: Store, table: str) -> RowSources:
    """Return how the rows of a table name the source of their records; see `Attributing`."""

    def read(connection: Connection) -> RowSources:
        if not store.engine.table_exists(connection, table):
            return RowSources()
        store.engine.begin_snapshot(connection)
        keyed, names = row_balance.known(connection, table), _names(connection, store, table)
        if names is None or _TOPIC not in names or _NUMBER not in names:
            return RowSources(keyed, topic_column=names is not None and _TOPIC in names)
        rows = connection.execute(
            f"SELECT {_NUMBER}, count(*) FROM {store.engine.dialect.name(table)}"
            f" WHERE {_TOPIC} IS NULL AND {_NUMBER} IS NOT NULL GROUP BY {_NUMBER}"
        ).fetchall()
        unnamed: dict[Part, int] = dict(rows)
        return RowSources(keyed, unnamed=bool(unnamed), owner=only_topic(connection, store.engine.dialect, table, names, unnamed))

    return store.read_ledger(read, RowSources())


def _ranges(
    connection: Connection, store: Store, topic: str, partition: int, offset: int
) -> list[tuple[Entry, Mapping[str, _Counted]]]:
    """Return the ranges that contain the offset, and the clearings of the partition; each with the counts of its tables."""
    rows = connection.execute(
        f"SELECT {ENTRY}, target_table, seq FROM {BATCHES.sql} WHERE pipeline_name = $1 AND topic = $2"
        " AND batch_source_partition_id = $3"
        f" AND ((batch_earliest_offset <= $4 AND batch_latest_offset > $4) OR closed_by = '{CLEARED}')"
        " ORDER BY seq, cluster_id, topic_id, batch_earliest_offset",
        [store.pipeline, topic, partition, offset],
    ).fetchall()
    found: list[tuple[Entry, Mapping[str, _Counted]]] = []
    for row in rows:
        entry = entry_of(row[:-2], *row[-2:])
        of_source = entry.source.topic
        if of_source.name != topic:  # some databases compare texts without their case
            continue
        targets = connection.execute(
            f'SELECT target_table, "rows", records FROM {TARGETS.sql} WHERE batch_id = $1 AND cluster_id = $2 AND topic_id = $3'
            " AND topic = $4 AND batch_source_partition_id = $5 AND batch_earliest_offset = $6",
            [entry.batch, of_source.cluster, of_source.topic_id, topic, partition, entry.range.start],
        ).fetchall()
        counted: dict[str, _Counted] = {table: (int(count), int(records or 0)) for table, count, records in targets}
        only = {} if field_of(entry.table) is not None else {entry.table: (entry.counts.rows, None)}
        found.append((entry, counted or only))
    return found


def _reading(
    connection: Connection,
    store: Store,
    entry: Entry,
    written: Mapping[str, _Counted],
    exists: Mapping[str, bool],
    letters: Sequence[Letter],
    offset: int,
) -> Reading:
    commits = connection.execute(
        f"SELECT {_info(store)} FROM {COMMITS.sql} WHERE pipeline_name = $1 AND batch_id = $2", [store.pipeline, entry.batch]
    ).fetchall()
    commit = _as_info(commits[0]) if commits else CommitInfo(entry.batch, entry.seq)
    if entry.reread or entry.cleared:
        return Reading(entry, commit)
    start, end = entry.range.start, entry.range.end
    located = connection.execute(
        f"SELECT count(*) FROM {ERRORS.sql} WHERE pipeline_name = $1 AND batch_id = $2 AND topic = $3"
        ' AND "partition" = $4 AND "offset" >= $5 AND "offset" < $6',
        [store.pipeline, entry.batch, entry.source.topic.name, entry.source.partition, start, end],
    ).fetchone()
    known = {name: _names(connection, store, name) for name in written if exists.get(name)}
    tables = tuple(_table(connection, store, entry, name, rows, known.get(name), offset) for name, rows in written.items())
    return Reading(
        entry,
        commit,
        tables,
        tuple(letter for letter in letters if letter.batch == entry.batch),
        int(located[0]),
        _records(connection, store, entry, tables, known),
    )


def _names(connection: Connection, store: Store, table: str) -> frozenset[str] | None:
    """Return the table's column names in lower case; None: they cannot be read."""
    with suppress(SchemaConflict):
        return frozenset(name.lower() for name in store.engine.columns(connection, table).names())
    return None


def _table(
    connection: Connection, store: Store, entry: Entry, table: str, counted: _Counted, names: frozenset[str] | None, offset: int
) -> TableRows:
    """Count the rows that may belong to the range in one table."""
    keyed, (written, gave) = row_balance.known(connection, table), counted
    if names is None or not names >= {_NUMBER, _OFFSET}:
        return TableRows(table, written, names is not None, keyed=keyed, gave=gave)
    start, end, topic = entry.range.start, entry.range.end, entry.source.topic.name
    named = _TOPIC in names
    where = f" AND ({_TOPIC} = $5 OR {_TOPIC} IS NULL)" if named else ""
    unnamed = f"sum(CASE WHEN {_TOPIC} IS NULL THEN 1 ELSE 0 END)" if named else "count(*)"
    row = connection.execute(
        f"SELECT sum(CASE WHEN {_OFFSET} = $1 THEN 1 ELSE 0 END), count(*), count(DISTINCT {_OFFSET}), {unnamed}"
        f" FROM {store.engine.dialect.name(table)}"
        f" WHERE {_NUMBER} = $2 AND {_OFFSET} >= $3 AND {_OFFSET} < $4{where}",
        [offset, entry.source.partition, start, end, *([topic] if named else [])],
    ).fetchone()
    others = _others(connection, store, entry, table)
    by_topic = topic if named and not int(row[3] or 0) else None
    shared = {"shared_offset": True, "shared_range": True}
    if others is not None:
        shared = shares(others, by_topic, offset)
    found = int(row[0] or 0), int(row[1]), int(row[2])
    return TableRows(table, written, True, *found, keyed=keyed, gave=gave, **shared)


def _own(store: Store, entry: Entry) -> Written:
    return Written(store.pipeline, entry.batch, entry.source, entry.range.start, entry.range.end)


def _others(connection: Connection, store: Store, entry: Entry, table: str) -> list[Written] | None:
    """Return other ranges, of all pipelines, whose rows in the table may have coordinates of the range; None: too many."""
    same = store.engine.dialect.same_name
    rows = connection.execute(
        "SELECT pipeline_name, batch_id, cluster_id, topic_id, topic, batch_earliest_offset, batch_latest_offset"
        f" FROM {WRITTEN} AS w WHERE {same.format('target_table', '$1')} AND batch_source_partition_id = $2"
        ' AND batch_earliest_offset < $3 AND batch_latest_offset > $4 AND "rows" > 0'
        f" AND seq > ({_cleared(same, 'w', 'w.target_table')}) LIMIT {_LOOKED + 1}",
        [table, entry.source.partition, entry.range.end, entry.range.start],
    ).fetchall()
    if len(rows) > _LOOKED:
        return None
    found = [
        Written(pipeline, batch, PartitionId(TopicId(*topic), entry.source.partition), start, end)
        for pipeline, batch, *topic, start, end in rows
    ]
    return [other for other in found if other != _own(store, entry)] + _adopted(connection, store, entry, table)


def _cleared(same: str, of: str, table: str) -> str:
    """Return the query for the number of the commit of pipeline `of` that recorded last that the table was cleared."""
    return (
        f"SELECT coalesce(max(g.seq), 0) FROM {WRITTEN} AS g WHERE g.pipeline_name = {of}.pipeline_name"
        f" AND g.closed_by = '{CLEARED}' AND {same.format('g.target_table', table)}"
    )


def _adopted(connection: Connection, store: Store, entry: Entry, table: str) -> list[Written]:
    """Return ranges of other loaders whose rows may be in the table: of adoptions by pipelines that write it.

    An adoption by another pipeline after the range was read took over from this pipeline.
    """
    same = store.engine.dialect.same_name
    rows = connection.execute(
        f"SELECT pipeline_name, batch_id, note FROM {COMMITS.sql} AS c WHERE kind = 'adopt' AND (pipeline_name = $1 OR ("
        f"committed < (SELECT o.committed FROM {COMMITS.sql} AS o WHERE o.pipeline_name = $1 AND o.batch_id = $2)"
        f" AND ({same.format('c.target_table', '$3')} OR EXISTS (SELECT 1 FROM {WRITTEN} AS w"
        f" WHERE w.pipeline_name = c.pipeline_name AND {same.format('w.target_table', '$3')}))))"
        f" AND seq > ({_cleared(same, 'c', '$3')}) LIMIT {_LOOKED}",
        [store.pipeline, entry.batch, table],
    ).fetchall()
    return [other for pipeline, batch, note in rows for other in adopted_rows(pipeline, batch, note or "", entry)]


def _records(
    connection: Connection,
    store: Store,
    entry: Entry,
    tables: Sequence[TableRows],
    known: Mapping[str, frozenset[str] | None],
) -> int | None:
    """Return the number of distinct offsets of the range in all of its tables; None: unknown."""
    if any(table.records is None for table in tables) or not tables:
        return None
    if len(tables) == 1:
        return tables[0].records
    parameters: list[Any] = [entry.source.partition, entry.range.start, entry.range.end]
    if any(_TOPIC in (known[table.table] or ()) for table in tables):
        parameters.append(entry.source.topic.name)
    parts = []
    for table in tables:
        named = f" AND ({_TOPIC} = $4 OR {_TOPIC} IS NULL)" if _TOPIC in (known[table.table] or ()) else ""
        parts.append(
            f"SELECT {_OFFSET} FROM {store.engine.dialect.name(table.table)}"
            f" WHERE {_NUMBER} = $1 AND {_OFFSET} >= $2 AND {_OFFSET} < $3{named}"
        )
    row = connection.execute(f"SELECT count(*) FROM ({' UNION '.join(parts)}) AS kpipe_records", parameters).fetchone()
    return int(row[0])


def _letters(connection: Connection, store: Store, topic: str, partition: int, offset: int) -> list[Letter]:
    rows = connection.execute(
        f"SELECT batch_id, stage, error_message, version, dead_letter, topic FROM {ERRORS.sql} WHERE pipeline_name = $1"
        f' AND topic = $2 AND "partition" = $3 AND "offset" = $4 ORDER BY error_id LIMIT {_LOOKED}',
        [store.pipeline, topic, partition, offset],
    ).fetchall()
    mine = (row for row in rows if row[5] == topic)
    return [Letter(row[0], row[1] or "", row[2] or "", row[3] or "", bool(row[4])) for row in mine]


def _commits(connection: Connection, store: Store, kinds: Sequence[str], limit: int) -> tuple[CommitInfo, ...]:
    """Return the newest commits of these kinds, newest first."""
    named = ", ".join(f"'{kind}'" for kind in kinds)
    rows = connection.execute(
        f"SELECT {_info(store)} FROM {COMMITS.sql} WHERE pipeline_name = $1 AND kind IN ({named})"
        f" ORDER BY seq DESC LIMIT {limit}",
        [store.pipeline],
    ).fetchall()
    return tuple(map(_as_info, rows))


def _info(store: Store) -> str:
    return ", ".join([*_INFO[:-1], store.engine.dialect.micros.format(_INFO[-1])])


def _as_info(row: Sequence[Any]) -> CommitInfo:
    return commit_info(dict(zip(_INFO, row, strict=True)))


def rows_at(store: Store, table: str, where: Mapping[str, str], limit: int) -> Sequence[Found]:
    """Return the coordinates of rows; see `Traceable.rows_at`."""
    names = [known.name for known in store.tables]
    if store.by_field:
        nothing: list[str] = []
        names = store.read_ledger(
            lambda connection: multi_table.targets(connection, store.engine.dialect, store.pipeline), nothing
        )
    if store.by_topic:
        names = store.read_ledger(lambda connection: list(multi_table.topics(connection, store.pipeline).values()), names)
    name = table if table in names else next((known for known in names if known.lower() == table.lower()), None)
    if name is None:
        raise InvalidPipeline(f"pipeline {store.pipeline}: no table {table!r}", f"tables: {', '.join(names)}")

    def read(connection: Connection) -> Sequence[Found]:
        known = store.engine.columns(connection, name) if store.engine.table_exists(connection, name) else Columns()
        values = bound(known, where, name)
        topic = _TOPIC if _TOPIC in {column.lower() for column in known.names()} else "NULL"
        condition = " AND ".join(f"{quote(column)} = ${at}" for at, column in enumerate(values, start=1)) or "true"
        rows = connection.execute(
            f"SELECT {topic}, {_NUMBER}, {_OFFSET} FROM {store.engine.dialect.name(name)} WHERE {condition} LIMIT {int(limit)}",
            list(values.values()),
        ).fetchall()
        return [Found(*row) for row in rows]

    return store.read(read, [])
