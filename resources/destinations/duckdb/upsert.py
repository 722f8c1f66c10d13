"""Rows with a key: the writes of a batch applied in order, as statements over all of them at once (kpipe/tables/upsert.py).

The staged files become one temporary relation, which is joined with the table by the key. What becomes of each write follows
from the write of the same key before it and from whether the table holds the key: a window, no loop. Then the rows that give
way are deleted by their row ids and those that remain are inserted.

A commit of a million rows into ten millions takes 0.9 s on two cores, of 200 rows 0.13 s (DuckDB 2.0.0; half of the keys were
there). Among the statements alone, join, delete by row id and insert took 1.5 s with a primary key or without, MERGE 1.3 s with
and 3.3 s without, and INSERT OR REPLACE, which needs one, 10 s, all on a busy machine.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Mapping

from kpipe.batch.batch import Commit
from kpipe.errors import SchemaConflict, StagingFailed
from kpipe.tables.upsert import ORIGINAL, KeyRule
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.duckdb.conflict_update import fold
from resources.destinations.duckdb.target_table import defaults, projection
from resources.destinations.sql.column_matching import by_shape
from resources.destinations.sql.ledger.row_balance import TOPIC
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.merge.merge_outcomes import MET, counted, effects, gained, superseded
from resources.destinations.sql.merge.merge_staging import GONE, PLACE, only
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.file_connection import Connection, quote
from resources.duckdb_engine.sql_types import READ, sql_type

__all__ = ["DUPLICATES", "merge"]

_WRITES, _FATES, _KEPT = "temp.kpipe_writes", "temp.kpipe_fates", "temp.kpipe_kept"
_READ = READ.format("?")
_ORIGINAL_TYPE = "STRUCT(key BLOB, value BLOB, headers STRUCT(name VARCHAR, value BLOB)[])"

#: Records whose rows were duplicates, in the columns of staged dead letters, with the topics and partitions of the batch as $7
#: and $8; there until the connection is closed.
DUPLICATES = (
    "SELECT coalesce(nullif(f.tn, ''), ($7::VARCHAR[])[list_position($8::INTEGER[], w._kafka_partition)]) AS topic,"
    ' w._kafka_partition AS "partition",'
    ' w._kafka_offset AS "offset", w._kafka_timestamp AS "timestamp", w._kafka_original.key AS "key",'
    " w._kafka_original.value AS \"value\", w._kafka_original.headers AS headers, 'duplicate_key' AS stage,"
    f" 'a row of the same key is in the table' AS reason FROM {_WRITES} AS w JOIN {_FATES} AS f ON f.wid = w.rowid"
    " WHERE f.fate = 'duplicate' ORDER BY f.tn, f.p, f.o, f.place"
)


def merge(connection: Connection, batch: KeyedBatch) -> tuple[Commit, dict[Part, Holding]]:
    """Merge the writes of the batch into the table. Rows that are dead letters now are in `DUPLICATES`.

    Args:
        connection: inside a transaction, in which the table has been made or widened.
        batch: what is written.

    Returns:
        The commit with the outcome of its writes, and what the table gained by partition.

    Raises:
        StagingFailed: a file is not what was reported.
        SchemaConflict: a row cannot be told by its key; or the key exists and the rule makes that an error.
    """
    table, commit, rule, known = batch.table, batch.commit, batch.rule, batch.known
    unset = defaults(connection, table) if rule.on_conflict == "update" else {}
    carried = _collect(connection, batch, unset)
    topics = TOPIC in {name.lower() for name in known.names()}
    stale = superseded(commit, batch.ledger, rule, topics)
    _judge(connection, table, batch.key, rule, stale, bool(batch.files.deletes), topics)
    counts = counted(connection, _FATES, commit, rule, topics)
    gone, stays = effects(rule)
    if rule.on_conflict == "update":
        fold(connection, batch, carried)
        names, source = known.names(), f"{_KEPT} AS w"
    else:
        names, source = carried, f"{_WRITES} AS w JOIN {_FATES} AS f ON f.wid = w.rowid WHERE {stays}"
    delta = gained(connection, _FATES, rule)
    name, columns = quote("main", table), ", ".join(map(quote, names))
    connection.execute(f"DELETE FROM {name} WHERE rowid IN (SELECT f.rid FROM {_FATES} AS f WHERE {gone})")
    if names:  # else there are deletes only
        connection.execute(f"INSERT INTO {name} ({columns}) SELECT {', '.join(f'w.{quote(n)}' for n in names)} FROM {source}")
    return commit.settled([counts]), delta


def _collect(connection: Connection, batch: KeyedBatch, unset: Mapping[str, str]) -> tuple[str, ...]:
    """Collect all writes in one relation, each with its place in its file, and return the columns that rows fill.

    Args:
        connection: inside a transaction.
        batch: what is written.
        unset: default expressions of columns, which fill the columns that the rows do not: an inserted row has these values,
            and an update expression sees them.
    """
    commit, key, staged, known = batch.commit, batch.key, batch.files, batch.known
    parts = [f"{GONE} BOOLEAN", f"{PLACE} BIGINT", *(f"{quote(name)} {sql_type(kind)}" for name, kind in known)]
    parts += [f"{ORIGINAL} {_ORIGINAL_TYPE}"]
    connection.execute(f"CREATE OR REPLACE TEMP TABLE kpipe_writes ({', '.join(parts)})")
    carried: dict[str, None] = {}
    for gone, files in ((False, staged.rows), (True, staged.deletes)):
        for same in by_shape(files):
            meant = commit.writing(columns=only(commit.only.columns, key)) if gone else commit
            names, values = projection(connection, same[0], meant, known, (ORIGINAL,))
            if not gone:
                carried.update(dict.fromkeys(name[1:-1].replace('""', '"') for name in names))
                rest = {quote(name): value for name, value in unset.items() if quote(name) not in names}
                names, values = [*names, *rest], [*values, *(f"({value})" for value in rest.values())]
                if ORIGINAL in same[0].names:
                    names, values = [*names, ORIGINAL], [*values, f"CAST({ORIGINAL} AS {_ORIGINAL_TYPE})"]
            if "file_row_number" in _folded(same[0]) and commit.totals.given:
                raise SchemaConflict(
                    "a record gives several rows with a column file_row_number, which hides their order from DuckDB"
                )
            row = connection.execute(
                f"INSERT INTO {_WRITES} ({', '.join([GONE, PLACE, *names])})"
                f" SELECT {gone}, file_row_number, {', '.join(values)} FROM {_READ}",
                [[file.path for file in same]],
            ).fetchone()
            inserted, expected = (row[0] if row else 0), sum(file.rows for file in same)
            if inserted != expected:
                raise StagingFailed(f"batch {commit.id}: {inserted} writes were read, {expected} are staged")
    missing = " OR ".join(f"{quote(name)} IS NULL" for name in (*key, "_kafka_partition", "_kafka_offset"))
    bad = connection.execute(f"SELECT _kafka_partition, _kafka_offset FROM {_WRITES} WHERE {missing} LIMIT 1").fetchone()
    if bad is not None:
        raise StagingFailed(f"batch {commit.id}: a write at partition {bad[0]}, offset {bad[1]} lacks its key or its place")
    return tuple(name for name in known.names() if name in carried)


def _folded(file: Proven) -> set[str]:
    """Names of its columns, without regard to case."""
    return {name.lower() for name in file.names}


def _judge(
    connection: Connection, table: str, key: tuple[str, ...], rule: KeyRule, stale: str, deletes: bool, topics: bool
) -> None:
    """What becomes of each write, as if they came one by one; `stale`: condition that the table holds a later
    record's row; `topics`: the table names them.
    """
    same = " AND ".join(f"w.{quote(name)} = t.{quote(name)}" for name in key)
    keys = ", ".join(f"w.{quote(name)} AS k{at}" for at, name in enumerate(key))
    group = ", ".join(f"k{at}" for at in range(len(key))) + ", stale"
    tn, oldtn = (f"coalesce({side}.{TOPIC}, '')" if topics else "''" for side in "wt")
    window = f"PARTITION BY {group} ORDER BY tn, p, o, place"
    behind = f"count(*) FILTER (gone) OVER ({window} ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)" if deletes else "0"
    cut = f"bool_or(gone) OVER (PARTITION BY {group})" if deletes else "false"
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE kpipe_fates AS WITH met AS (SELECT w.rowid AS wid, w.{GONE} AS gone, w.{PLACE} AS place,"
        f" {tn} AS tn, w._kafka_partition AS p, w._kafka_offset AS o, {keys}, t.rowid AS rid,"
        f" t.rowid IS NOT NULL AS held, {oldtn} AS oldtn, t._kafka_partition AS oldp, t._kafka_offset AS oldo,"
        f" {stale} AS stale"
        f" FROM {_WRITES} AS w LEFT JOIN {quote('main', table)} AS t ON {same}),"
        f" seen AS (SELECT *, lag(gone) OVER ({window}) AS before, first_value(wid) OVER ({window}) AS gid,"
        f" lead(wid) OVER ({window}) IS NULL AS last, {behind} AS behind, {cut} AS cut FROM met),"
        " state AS (SELECT *, CASE WHEN before IS NULL THEN held ELSE NOT before END AS present FROM seen)"
        " SELECT wid, gid, gone, tn, p, o, place, rid, held, oldtn, oldp, oldo, stale, last, behind, cut, CASE"
        " WHEN stale THEN CASE WHEN gone THEN 'missed' ELSE 'ignored' END"
        " WHEN gone THEN CASE WHEN present THEN 'deleted' ELSE 'missed' END"
        f" WHEN present THEN '{MET[rule.on_conflict]}' ELSE 'inserted' END AS fate FROM state"
    )
    found = connection.execute(
        f"SELECT (SELECT count(*) FROM {_FATES}) > (SELECT count(*) FROM {_WRITES}), (SELECT min(wid) FROM {_FATES} WHERE"
        " fate = 'duplicate')"
    ).fetchone()
    assert found is not None
    if found[0]:
        raise SchemaConflict(
            f"table {table} holds a key ({', '.join(key)}) more than once",
            "remove all but one row of each key, or name another key",
        )
    if found[1] is not None and rule.duplicates == "fail":
        values = ", ".join(f"{quote(name)}::VARCHAR" for name in key)
        row = connection.execute(
            f"SELECT _kafka_partition, _kafka_offset, [{values}] FROM {_WRITES} WHERE rowid = $1", [found[1]]
        )
        partition, offset, known = row.fetchone() or (None, None, [])
        raise SchemaConflict(
            f"partition {partition} offset {offset}: a row of the key {', '.join(map(str, known))} is in table {table} already",
            "set into.on_conflict (replace, ignore, update), or errors.duplicate_key: dead_letter or skip",
        )
