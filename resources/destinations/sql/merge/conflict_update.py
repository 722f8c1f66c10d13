"""Evaluate ON DUPLICATE KEY UPDATE for a database server: read the needed columns into DuckDB, fold, and write back.

So an expression has the same result in every database. A key that is written 100,000 times in a batch takes as long as 100,000
keys that are written once. Columns that no expression sets or reads do not leave the database.
"""

# ruff: noqa: S608 - names in statements are constants or quoted; expressions are the definition's own, parsed before
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa

from kpipe.errors import NotAvailable, SchemaConflict
from kpipe.schema.columns import Columns, Scalar, Type
from resources.destinations.sql.merge.conflict_expressions import assignments, folded
from resources.destinations.sql.merge.kept_values import KEPT_NAME, kept_values, scalar
from resources.destinations.sql.merge.keyed_batch import KeyedBatch, same_key
from resources.destinations.sql.sql_dialect import quote
from resources.duckdb_engine.sql_types import sql_type

__all__ = ["FIRST", "LAST", "Folding", "fold", "fold_kept"]

#: Columns of the folded rows, in addition to the table's: the first and the last write of the key that stays.
FIRST, LAST = '"kpipe: first"', '"kpipe: last"'
_FETCHED, _RESULT = "kpipe_fetched", "kpipe_folded"


@dataclass(frozen=True)
class Folding:
    """The SQL to read values from a database and write them back. `t` is the table's row, `w` the write, `f` its fate.

    Attributes:
        writes: all writes with their fates, as SQL after FROM.
        held: the rows of the table with the keys of the writes, as SQL after FROM. `{table}` is the table, `{same}` the condition
            that `t` and `w` have one key.
        lock: end of a statement that must read the current rows.
        write: the column that identifies a write, as a text.
        group: the group of a fate, as a text.
        shown: a column's value as a text that DuckDB reads as the same value.
        put: writes the folded rows of a table into a relation of the database: `LAST`, `FIRST`, and these columns of the table,
            from DuckDB's relation with the same names.
    """

    writes: str
    held: str
    lock: str
    write: str
    group: str
    shown: Callable[[str, Type], str]
    put: Callable[[Any, Any, str, Columns, str], None]


def fold(session: Any, reader: Any, how: Folding, batch: KeyedBatch, carried: Sequence[str]) -> list[str]:
    """Fold the writes of each key that stays, and write one row of each to the database.

    Args:
        session: inside a transaction, with the relations of writes and of fates; each fate has a group and a number in it.
        reader: a connection of DuckDB.
        how: of the database.
        batch: of a rule with expressions.
        carried: columns that rows fill, as the table spells them.

    Returns:
        The columns that the expressions set, as the table spells them.

    Raises:
        InvalidPipeline: see `assignments`.
        NotAvailable: an expression reads or sets a column of a nested type.
        SchemaConflict: an expression cannot be computed.
    """
    found = assignments(batch.rule.update, carried, batch.key, batch.known, batch.table)
    needed = {*found.given, *found.read}
    columns = Columns(tuple((name, kind) for name, kind in batch.known if name in needed))
    for name, kind in columns:
        if not isinstance(kind, Scalar):
            raise NotAvailable(
                f"into.update: column {name} has type {kind}: this database does not support expressions over nested values",
                "declare the column as JSON, or load into DuckDB",
            )
    values = {name: value for name, value in found.values.items() if name in needed}
    _fetch(session, reader, how, quote(batch.table), same_key(batch.key), columns)
    try:
        _fold(reader, columns, values, found.given)
    except duckdb.Error as error:
        raise SchemaConflict(
            f"table {batch.table}: into.update failed: {str(error).splitlines()[0]}; nothing was written",
            "change the expression, or the column's type",
        ) from error
    finally:
        reader.execute(f"DROP TABLE IF EXISTS {_FETCHED}")
    given = Columns(tuple((name, kind) for name, kind in columns if name in found.given))
    how.put(session, reader, batch.table, given, _RESULT)
    reader.execute(f"DROP TABLE {_RESULT}")
    return list(given.names())


def fold_kept(session: Any, reader: Any, how: Folding, batch: KeyedBatch, kept: Sequence[str], touched: str) -> None:
    """Write the values of kept columns to the database, in the relation that `fold` fills (kept_values.py).

    Args:
        session: inside a transaction, with the relations of writes and of fates; each fate has a group and a number in it.
        reader: a connection of DuckDB.
        how: of the database.
        batch: the writes.
        kept: the columns, as the table spells them.
        touched: the relation of the groups with a write that keeps a value, as SQL.

    Raises:
        NotAvailable: a column has a nested type.
    """
    columns = Columns(tuple((name, kind) for name, kind in batch.known if name in kept))
    scalar(columns)
    wide = Columns((*columns.items, (KEPT_NAME, Scalar("VARCHAR"))))
    only = f" JOIN {touched} AS k ON k.gid = f.gid"
    how = replace(how, writes=f"{how.writes}{only}", held=f"{how.held}{only}")
    _fetch(session, reader, how, quote(batch.table), same_key(batch.key), wide)
    try:
        _fold(reader, wide, kept_values(wide.names(), kept), kept)
    finally:
        reader.execute(f"DROP TABLE IF EXISTS {_FETCHED}")
    how.put(session, reader, batch.table, columns, _RESULT)
    reader.execute(f"DROP TABLE {_RESULT}")


def _fetch(session: Any, reader: Any, how: Folding, table: str, same: str, columns: Columns) -> None:
    """Read the existing rows, each as number 0 of its group, and the writes that follow, as texts."""

    def shown(side: str) -> str:
        own = (how.shown(f"{side}.{quote(name)}", kind) if side == "w" or name != KEPT_NAME else "NULL" for name, kind in columns)
        return "".join(f", {text}" for text in own)

    there = f"SELECT {how.group}, 0, NULL{shown('t')} FROM {how.held.format(table=table, same=same)}"
    rows = session.execute(f"{there} WHERE f.last AND f.held AND NOT f.stale AND NOT f.cut{how.lock}").fetchall()
    writes = f"SELECT {how.group}, f.nth, {how.write}{shown('w')} FROM {how.writes}"
    rows += session.execute(f"{writes} WHERE f.behind = 0 AND NOT f.is_delete AND NOT f.stale").fetchall()
    names = ["gid", "nth", "wid", *(f"v{at}" for at in range(len(columns)))]
    kinds = [pa.string(), pa.int64(), *[pa.string()] * (len(columns) + 1)]
    by_column = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = [pa.array(each, kind) for each, kind in zip(by_column, kinds, strict=True)]
    reader.register("kpipe_given", pa.table(arrays, names))
    try:
        packed = ", ".join(f"{quote(name)} := {_read(f'v{at}', kind)}" for at, (name, kind) in enumerate(columns))
        reader.execute(
            f"CREATE OR REPLACE TEMP TABLE {_FETCHED} AS SELECT gid, nth, wid, struct_pack({packed}) AS v FROM kpipe_given"
        )
    finally:
        reader.unregister("kpipe_given")


def _read(value: str, kind: Type) -> str:
    return f"unhex({value})" if kind == Scalar("BLOB") else f"CAST({value} AS {sql_type(kind)})"


def _fold(reader: Any, columns: Columns, values: dict[str, str], given: Sequence[str]) -> None:
    shown = "".join(f", v.{quote(name)} AS {quote(name)}" for name in columns.names() if name in given)
    reader.execute(
        f"CREATE OR REPLACE TEMP TABLE {_RESULT} AS WITH groups AS (SELECT max_by(wid, nth) AS {LAST},"
        f" min_by(wid, nth) FILTER (nth > 0) AS {FIRST}, {folded(columns, values, 'nth')} AS v FROM {_FETCHED} GROUP BY gid)"
        f" SELECT {LAST}, {FIRST}{shown} FROM groups"
    )
