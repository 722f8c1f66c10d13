"""The writes of a batch with a key, copied into one temporary table: rows and deletes, each with its place in its file."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg

from kpipe.batch import Commit
from kpipe.errors import SchemaConflict, StagingFailed
from kpipe.keys import ORIGINAL
from kpipe.schema import Columns, Scalar, parse_type
from resources.destinations.duckdb.engine import literal
from resources.destinations.postgres import lines, target
from resources.destinations.postgres.connection import Session
from resources.destinations.relational.dialect import quote
from resources.destinations.relational.matching import by_shape, matched
from resources.destinations.staged import Proven, Writes

__all__ = ["DUPLICATES", "FATES", "GONE", "PLACE", "WRITES", "copy"]

WRITES, FATES = "pg_temp.kpipe_writes", "pg_temp.kpipe_fates"
# Beside the table's own columns: names that no table has by chance.
GONE, PLACE = '"kpipe: gone"', '"kpipe: place"'
_BYTES = Scalar("BLOB")
_RECORD = {"key": _BYTES, "value": _BYTES, "headers": parse_type("STRUCT(name VARCHAR, value BLOB)[]")}
_ORIGINALS = {"key": "bytea", "value": "bytea", "headers": "json"}
_OF_RECORD = {name: quote(f"kpipe: {name}") for name in _ORIGINALS}

#: Records whose rows were duplicates, in the columns of staged dead letters, with the topics and partitions of the batch as $7
#: and $8; there until the transaction ends.
DUPLICATES = (
    "SELECT ($7::VARCHAR[])[array_position($8::INTEGER[], w._kafka_partition)] AS topic, w._kafka_partition AS partition,"
    f' w._kafka_offset AS "offset", w._kafka_timestamp AS "timestamp", w.{_OF_RECORD["key"]} AS key,'
    f" w.{_OF_RECORD['value']} AS value, w.{_OF_RECORD['headers']} AS headers, 'duplicate_key' AS stage,"
    f" 'a row of the same key is in the table' AS reason FROM {WRITES} AS w JOIN {FATES} AS f ON f.wid = w.ctid"
    " WHERE f.fate = 'duplicate' ORDER BY f.p, f.o, f.place"
)


def copy(
    session: Session, reader: Any, table: str, commit: Commit, staged: Writes, key: Sequence[str], known: Columns
) -> list[str]:
    """Make `kpipe_writes`, which is gone when the transaction ends.

    Args:
        session: inside a transaction, in which the table has been made or widened.
        reader: DuckDB's connection to the staged files.
        table: name of the table.
        commit: what is written.
        staged: its files.
        key: columns of the key.
        known: all columns of the table.

    Returns:
        The columns that rows fill, as the table spells them.

    Raises:
        StagingFailed: a file is not what was reported.
        SchemaConflict: a value is one that PostgreSQL does not take, or a record's rows have no order.
    """
    originals = [f"NULL::{kind} AS {_OF_RECORD[name]}" for name, kind in _ORIGINALS.items()]
    # From the table, so that collations are its own: two that differ cannot be compared.
    session.execute(
        f"CREATE TEMP TABLE kpipe_writes ON COMMIT DROP AS SELECT NULL::boolean AS {GONE}, NULL::bigint AS {PLACE},"
        f" {', '.join([*originals, *map(quote, known.names())])} FROM {quote(table)} WITH NO DATA"
    )
    carried: set[str] = set()
    for gone, files in ((False, staged.rows), (True, staged.deletes)):
        meant = replace(commit, columns=_only(commit.columns, key)) if gone else commit
        for same in by_shape(files):
            names = _copy(session, reader, table, meant, same, gone, known)
            carried.update(() if gone else names)
    missing = " OR ".join(f"{quote(name)} IS NULL" for name in (*key, "_kafka_partition", "_kafka_offset"))
    bad = session.execute(f"SELECT _kafka_partition, _kafka_offset FROM {WRITES} WHERE {missing} LIMIT 1").fetchone()
    if bad is not None:
        raise StagingFailed(f"batch {commit.id}: a write at partition {bad[0]}, offset {bad[1]} lacks its key or its place")
    session.execute(f"ANALYZE {WRITES}")
    return [name for name in known.names() if name in carried]


def _copy(
    session: Session, reader: Any, table: str, commit: Commit, files: Sequence[Proven], gone: bool, known: Columns
) -> list[str]:
    file, place = files[0], "file_row_number"
    if place in {name.lower() for name in file.names}:
        if commit.totals.given:
            raise SchemaConflict(f"a record gives several rows with a column {place}, which hides their order from DuckDB")
        place = "0"  # a record has one row
    matches = matched(target.stored(reader, file).without((ORIGINAL,)), file, commit, known)
    names = {name.lower(): name for name in known.names()}
    into, first = [GONE, PLACE], [literal(str(gone).lower()), place]
    if ORIGINAL in file.names:
        into += _OF_RECORD.values()
        first += [lines.filled(f"struct_extract({ORIGINAL}, {literal(name)})", kind) for name, kind in _RECORD.items()]
    filled = [names[name.lower()] for name, _, _ in matches]
    into += map(quote, filled)
    paths = [item.path for item in files]
    try:
        count = session.copy(
            f"COPY {WRITES} ({', '.join(into)}) FROM STDIN (FORMAT csv)",
            lines.blocks(reader, lines.lines(matches, first=first), [paths]),
        )
    except psycopg.DataError as error:
        raise target.explained(error, reader, matches, paths, table) from error
    expected = sum(item.rows for item in files)
    if count != expected:
        raise StagingFailed(f"batch {commit.id}: {count} writes were copied, {expected} are staged")
    return filled


def _only(columns: Columns, key: Sequence[str]) -> Columns:
    wanted = {name.lower() for name in key}
    return Columns(tuple((name, kind) for name, kind in columns if name.lower() in wanted))
