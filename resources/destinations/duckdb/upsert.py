"""Merge rows with a key: apply the writes of a batch in order, as statements over all of them (kpipe/tables/upsert.py).

The staged files become one temporary relation, which is joined with the table by the key. The fate of a write depends on the
previous write of the same key, and on whether the table contains the key: a window function, no loop. Then removed and replaced
rows are deleted by their row ids, and the rows that stay are inserted.

A commit of a million rows into ten millions takes 0.9 s on two cores, of 200 rows 0.13 s (DuckDB 2.0.0; half of the keys
existed). Times of the statements alone, on a busy machine:

- join, delete by row id and insert: 1.5 s, with or without a primary key;
- MERGE: 1.3 s with a primary key, 3.3 s without;
- INSERT OR REPLACE, which needs a primary key: 10 s.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Callable, Mapping

from kpipe.batch.batch import Commit
from kpipe.errors import SchemaConflict, StagingFailed
from kpipe.schema.columns import VARCHAR
from kpipe.tables.changes import EMPTIES, HIDDEN, UNCHANGED
from kpipe.tables.upsert import ORIGINAL
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.duckdb.conflict_update import fold, keep
from resources.destinations.duckdb.target_table import defaults, projection
from resources.destinations.sql.column_matching import by_shape
from resources.destinations.sql.ledger.duckdb_dialect import DIALECT
from resources.destinations.sql.ledger.row_balance import TOPIC
from resources.destinations.sql.merge.emptied_tables import expand
from resources.destinations.sql.merge.kept_values import kept_columns, refuse_unknown
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.merge.merge_outcomes import MET, counted, effects, gained, superseded
from resources.destinations.sql.merge.merge_staging import EMPTIED, GONE, KEPT, PLACE, only
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.file_connection import Connection, quote
from resources.duckdb_engine.sql_types import READ, sql_type

__all__ = ["DUPLICATES", "merge"]

_WRITES, _FATES, _KEPT = "temp.kpipe_writes", "temp.kpipe_fates", "temp.kpipe_kept"
_READ = READ.format("?")
_ORIGINAL_TYPE = "STRUCT(key BLOB, value BLOB, headers STRUCT(name VARCHAR, value BLOB)[])"

#: Selects the records whose rows were duplicates, in the columns of staged dead letters. $7 and $8 are the topics and partitions
#: of the batch. It works until the connection is closed.
DUPLICATES = (
    "SELECT coalesce(nullif(f.tn, ''), ($7::VARCHAR[])[list_position($8::INTEGER[], w._kafka_partition)]) AS topic,"
    ' w._kafka_partition AS "partition",'
    ' w._kafka_offset AS "offset", w._kafka_timestamp AS "timestamp", w._kafka_original.key AS "key",'
    " w._kafka_original.value AS \"value\", w._kafka_original.headers AS headers, 'duplicate_key' AS stage,"
    f" 'a row of the same key is in the table' AS reason FROM {_WRITES} AS w JOIN {_FATES} AS f ON f.wid = w.rowid"
    " WHERE f.fate = 'duplicate' ORDER BY f.tn, f.p, f.o, f.place"
)


def merge(
    connection: Connection, batch: KeyedBatch, check: Callable[[str], None] = lambda _: None
) -> tuple[Commit, dict[Part, Holding]]:
    """Merge the writes of the batch into the table. `DUPLICATES` selects the rows that became dead letters.

    Args:
        connection: inside a transaction that has created or widened the table.
        batch: the writes.
        check: called with the rows to insert, as a SELECT, before they are; may raise an error.

    Returns:
        The commit with the outcome of its writes, and the change of the table's rows by partition.

    Raises:
        StagingFailed: a file differs from its report.
        SchemaConflict: a key is duplicate in the table; or a key exists and the rule makes that an error.
    """
    table, commit, rule, known = batch.table, batch.commit, batch.rule, batch.known
    if hidden := next((name for name in known.names() if name.lower() == "rowid"), None):
        raise SchemaConflict(
            f"table {table}: column {hidden!r} hides DuckDB's row numbers, by which a merge finds rows",
            "rename the column, or load into a table without into.key",
        )
    unset = defaults(connection, table) if rule.on_conflict == "update" else {}
    carried = _collect(connection, batch, unset)
    expand(connection, _WRITES, batch, "CREATE OR REPLACE TEMP TABLE {name} AS {select}", "kpipe_epochs", "kpipe_marks")
    topics = TOPIC in {name.lower() for name in known.names()}
    stale = superseded(commit, batch.ledger, rule, topics)
    _judge(connection, batch, stale, topics)
    counts = counted(connection, _FATES, commit, rule, topics)
    gone, stays = effects(rule)
    if rule.on_conflict == "update":
        fold(connection, batch, carried)
        names, source = known.names(), f"{_KEPT} AS w"
    else:
        names, source = carried, f"{_WRITES} AS w JOIN {_FATES} AS f ON f.wid = w.rowid WHERE {stays}"
        kept = kept_columns(connection, _WRITES, known)
        if kept is not None:
            refuse_unknown(connection, _FATES, _WRITES, "rowid", table)
        if kept:
            source = keep(connection, batch, carried, kept, source)
    delta = gained(connection, _FATES, rule)
    name, columns = quote("main", table), ", ".join(map(quote, names))
    connection.execute(f"DELETE FROM {name} WHERE rowid IN (SELECT f.rid FROM {_FATES} AS f WHERE {gone})")
    if names:  # otherwise all writes are deletes
        rows = f"SELECT {', '.join(f'w.{quote(n)}' for n in names)} FROM {source}"
        check(rows)
        connection.execute(f"INSERT INTO {name} ({columns}) {rows}")
    return commit.settled([counts]), delta


def _collect(connection: Connection, batch: KeyedBatch, unset: Mapping[str, str]) -> tuple[str, ...]:
    """Collect all writes in one relation, each with its position in its file, and return the columns that rows fill.

    Args:
        connection: inside a transaction.
        batch: the writes.
        unset: default expressions of columns. They fill the columns that rows do not: an inserted row has these values, and an
            update expression reads them.
    """
    commit, key, staged, known = batch.commit, batch.key, batch.files, batch.known
    parts = [f"{GONE} BOOLEAN", f"{PLACE} BIGINT", *(f"{quote(name)} {sql_type(kind)}" for name, kind in known)]
    parts += [f"{ORIGINAL} {_ORIGINAL_TYPE}", f"{KEPT} VARCHAR", f"{EMPTIED} BOOLEAN"]
    connection.execute(f"CREATE OR REPLACE TEMP TABLE kpipe_writes ({', '.join(parts)})")
    carried: dict[str, None] = {}
    for gone, files in ((False, staged.rows), (True, staged.deletes)):
        for same in by_shape(files):
            meant = commit.writing(columns=only(commit.only.columns, key)) if gone else commit
            names, values = projection(connection, same[0], meant, known, HIDDEN)
            if not gone:
                carried.update(dict.fromkeys(name[1:-1].replace('""', '"') for name in names))
                rest = {quote(name): value for name, value in unset.items() if quote(name) not in names}
                names, values = [*names, *rest], [*values, *(f"({value})" for value in rest.values())]
                if ORIGINAL in same[0].names:
                    names, values = [*names, ORIGINAL], [*values, f"CAST({ORIGINAL} AS {_ORIGINAL_TYPE})"]
                if UNCHANGED in same[0].names:
                    names, values = [*names, KEPT], [*values, UNCHANGED]
            if EMPTIES in same[0].names:
                names, values = [*names, EMPTIED], [*values, EMPTIES]
            place = "file_row_number"
            if place in _folded(same[0]):
                if commit.totals.given:
                    raise SchemaConflict(
                        "a record gives several rows with a column file_row_number, which hides the order of rows from DuckDB"
                    )
                place = "0"  # a record has one row
            into = ", ".join([GONE, PLACE, *names])
            row = connection.execute(
                f"INSERT INTO {_WRITES} ({into}) SELECT {gone}, {place}, {', '.join(values)} FROM {_READ}",
                [[file.path for file in same]],
            ).fetchone()
            inserted, expected = (row[0] if row else 0), sum(file.rows for file in same)
            if inserted != expected:
                raise StagingFailed(f"batch {commit.id}: expected {expected} inserted writes, found {inserted}")
    missing = " OR ".join(f"{quote(name)} IS NULL" for name in (*key, "_kafka_partition", "_kafka_offset"))
    missing = f"({missing}) AND NOT coalesce({EMPTIED}, false)"
    bad = connection.execute(f"SELECT _kafka_partition, _kafka_offset FROM {_WRITES} WHERE {missing} LIMIT 1").fetchone()
    if bad is not None:
        raise StagingFailed(f"batch {commit.id}: a write at partition {bad[0]}, offset {bad[1]} has no key or no coordinates")
    return tuple(name for name in known.names() if name in carried)


def _folded(file: Proven) -> set[str]:
    """Return the names of the file's columns, in lower case."""
    return {name.lower() for name in file.names}


def _judge(connection: Connection, batch: KeyedBatch, stale: str, topics: bool) -> None:
    """Create the relation of fates, as if writes were applied one by one.

    Args:
        connection: inside a transaction, with the relation of writes.
        batch: the writes.
        stale: condition that the table has the row of a later record.
        topics: whether the table's rows name their topic.

    Raises:
        SchemaConflict: see `merge`.
    """
    table, key, rule, deletes = batch.table, batch.key, batch.rule, bool(batch.files.deletes)
    binary = {name: DIALECT.key_part(f"t.{quote(name)}", batch.known.get(name) == VARCHAR) for name in key}
    same = " AND ".join(f"w.{quote(name)} = {part}" for name, part in binary.items())
    keys = ", ".join(f"w.{quote(name)} AS k{at}" for at, name in enumerate(key))
    group = ", ".join(f"k{at}" for at in range(len(key))) + ", stale"
    tn, oldtn = (f"coalesce({side}.{TOPIC}, '')" if topics else "''" for side in "wt")
    window = f"PARTITION BY {group} ORDER BY tn, p, o, place"
    behind = f"count(*) FILTER (is_delete) OVER ({window} ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)" if deletes else "0"
    cut = f"bool_or(is_delete) OVER (PARTITION BY {group})" if deletes else "false"
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE kpipe_fates AS WITH met AS (SELECT w.rowid AS wid, w.{GONE} AS is_delete,"
        f" w.{PLACE} AS place, {tn} AS tn, w._kafka_partition AS p, w._kafka_offset AS o, {keys}, t.rowid AS rid,"
        f" t.rowid IS NOT NULL AS held, {oldtn} AS oldtn, t._kafka_partition AS oldp, t._kafka_offset AS oldo,"
        f" {stale} AS stale"
        f" FROM {_WRITES} AS w LEFT JOIN {quote('main', table)} AS t ON {same}),"
        f" seen AS (SELECT *, lag(is_delete) OVER ({window}) AS before, first_value(wid) OVER ({window}) AS gid,"
        f" lead(wid) OVER ({window}) IS NULL AS last, {behind} AS behind, {cut} AS cut FROM met),"
        " state AS (SELECT *, CASE WHEN before IS NULL THEN held ELSE NOT before END AS present FROM seen)"
        " SELECT wid, gid, is_delete, tn, p, o, place, rid, held, oldtn, oldp, oldo, stale, last, behind, cut, CASE"
        " WHEN stale THEN CASE WHEN is_delete THEN 'missed' ELSE 'ignored' END"
        " WHEN is_delete THEN CASE WHEN present THEN 'deleted' ELSE 'missed' END"
        f" WHEN present THEN '{MET[rule.on_conflict]}' ELSE 'inserted' END AS fate FROM state"
    )
    found = connection.execute(
        f"SELECT (SELECT count(*) FROM {_FATES}) > (SELECT count(*) FROM {_WRITES}), (SELECT min(wid) FROM {_FATES} WHERE"
        " fate = 'duplicate')"
    ).fetchone()
    assert found is not None
    if found[0]:
        raise SchemaConflict(
            f"table {table} contains a key ({', '.join(key)}) more than once",
            "remove all but one row of each key, or name another key",
        )
    if found[1] is not None and rule.duplicates == "fail":
        values = ", ".join(f"{quote(name)}::VARCHAR" for name in key)
        row = connection.execute(
            f"SELECT _kafka_partition, _kafka_offset, [{values}] FROM {_WRITES} WHERE rowid = $1", [found[1]]
        )
        partition, offset, known = row.fetchone() or (None, None, [])
        raise SchemaConflict(
            f"partition {partition} offset {offset}: duplicate key {', '.join(map(str, known))}: table {table} has it already",
            "set into.on_conflict (replace, ignore, update), or errors.duplicate_key: dead_letter or skip",
        )
