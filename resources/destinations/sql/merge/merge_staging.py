"""Collect the writes of a batch with a key in one temporary table: rows and deletes, each with its position in its file.

In addition to the columns of the table, it has `GONE`, `PLACE`, `KEPT` and `EMPTIED`. If a row may become a dead letter, it
also has the row's record (`RECORD`). Each database creates the relation, and defines how rows of files are copied into it.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kpipe.batch.batch import Commit
from kpipe.errors import SchemaConflict, StagingFailed
from kpipe.schema.columns import Columns, Scalar, Type, parse_type
from kpipe.tables.changes import EMPTIES, HIDDEN, UNCHANGED
from kpipe.tables.upsert import ORIGINAL
from resources.destinations.sql.column_matching import Match, by_shape, matched
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.sql_dialect import quote
from resources.destinations.sql.staged_reader import stored
from resources.destinations.staged_file_check import Proven
from resources.duckdb_engine.sandbox import literal

__all__ = ["EMPTIED", "GONE", "KEPT", "PLACE", "RECORD", "Put", "collect", "only"]

# `GONE`: the write is a delete; `PLACE`: its position. No table has these names by chance.
# `KEPT`: columns that keep their value, as in `UNCHANGED`.
# `EMPTIED`: whether the delete is of all rows.
GONE, PLACE, KEPT, EMPTIED = '"kpipe: is delete"', '"kpipe: place"', '"kpipe: kept"', '"kpipe: emptied"'
#: Columns of the record, by its parts.
RECORD = {name: quote(f"kpipe: {name}") for name in ("key", "value", "headers")}
_BYTES = Scalar("BLOB")
_PARTS: Mapping[str, Type] = {"key": _BYTES, "value": _BYTES, "headers": parse_type("STRUCT(name VARCHAR, value BLOB)[]")}

#: Copies rows of files with the same columns into the relation, and returns their number. Arguments: the relation's columns, as
#: SQL; expressions for the first of them, each with its type; matches for the others; the files.
Put = Callable[[Sequence[str], Sequence[tuple[str, Type]], Sequence[Match], Sequence[str]], int]


def collect(session: Any, reader: Any, writes: str, batch: KeyedBatch, put: Put) -> list[str]:
    """Fill the relation of writes.

    Args:
        session: inside a transaction.
        reader: DuckDB's connection to the staged files.
        writes: the relation, as SQL.
        batch: the writes.
        put: copies rows into the relation.

    Returns:
        The columns that rows fill, as the table spells them.

    Raises:
        StagingFailed: a file differs from its report.
        SchemaConflict: the order of a record's rows is unknown.
    """
    commit, key, known, staged = batch.commit, batch.key, batch.known, batch.files
    carried: set[str] = set()
    for gone, files in ((False, staged.rows), (True, staged.deletes)):
        meant = commit.writing(columns=only(commit.only.columns, key)) if gone else commit
        for same in by_shape(files):
            names = _collect(reader, meant, same, gone, known, put)
            carried.update(() if gone else names)
    missing = " OR ".join(f"{quote(name)} IS NULL" for name in (*key, "_kafka_partition", "_kafka_offset"))
    missing = f"({missing}) AND NOT coalesce({EMPTIED}, false)"
    bad = session.execute(f"SELECT _kafka_partition, _kafka_offset FROM {writes} WHERE {missing} LIMIT 1").fetchone()
    if bad is not None:
        raise StagingFailed(f"batch {commit.id}: a write at partition {bad[0]}, offset {bad[1]} has no key or no coordinates")
    return [name for name in known.names() if name in carried]


def _collect(reader: Any, commit: Commit, files: Sequence[Proven], gone: bool, known: Columns, put: Put) -> list[str]:
    file, place = files[0], "file_row_number"
    if place in {name.lower() for name in file.names}:
        if commit.totals.given:
            raise SchemaConflict(f"a record gives several rows with a column {place}, which hides the order of rows from DuckDB")
        place = "0"  # a record has one row
    matches = matched(stored(reader, file).without(HIDDEN), file, commit, known)
    names = {name.lower(): name for name in known.names()}
    into = [GONE, PLACE]
    first: list[tuple[str, Type]] = [(str(gone).lower(), Scalar("BOOLEAN")), (place, Scalar("BIGINT"))]
    if ORIGINAL in file.names:
        into += RECORD.values()
        first += [(f"struct_extract({ORIGINAL}, {literal(name)})", kind) for name, kind in _PARTS.items()]
    if UNCHANGED in file.names:
        into.append(KEPT)
        first.append((UNCHANGED, Scalar("VARCHAR")))
    if EMPTIES in file.names:
        into.append(EMPTIED)
        first.append((EMPTIES, Scalar("BOOLEAN")))
    filled = [names[name.lower()] for name, _, _ in matches]
    count = put([*into, *map(quote, filled)], first, matches, [item.path for item in files])
    expected = sum(item.rows for item in files)
    if count != expected:
        raise StagingFailed(f"batch {commit.id}: expected {expected} copied writes, found {count}")
    return filled


def only(columns: Columns, key: Sequence[str]) -> Columns:
    """Return the key columns among columns."""
    wanted = {name.lower() for name in key}
    return Columns(tuple((name, kind) for name, kind in columns if name.lower() in wanted))
