"""Evaluate ON DUPLICATE KEY UPDATE in DuckDB: fold the existing row and the writes of its key into one row, in place."""

# ruff: noqa: S608 - names in statements are constants or quoted; expressions are the definition's own, parsed before
from __future__ import annotations

from collections.abc import Mapping, Sequence

from kpipe.schema.columns import Columns, Scalar
from resources.destinations.sql.merge.conflict_expressions import assignments, folded
from resources.destinations.sql.merge.kept_values import KEPT_NAME, kept_values
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.merge.merge_staging import KEPT
from resources.duckdb_engine.file_connection import Connection, quote

__all__ = ["fold", "keep"]


def fold(connection: Connection, batch: KeyedBatch, carried: Sequence[str]) -> None:
    """Create `temp.kpipe_kept`: the row that stays of each key, with all columns of the table.

    The first row of a key is inserted unchanged. Each later row changes the existing row: see `assignments`.

    Args:
        connection: inside a transaction, with the relations of upsert.py.
        batch: the writes.
        carried: columns that the rows of the batch fill.

    Raises:
        InvalidPipeline: see `assignments`.
    """
    known = batch.known
    _fold(connection, batch, known, assignments(batch.rule.update, carried, batch.key, known, batch.table).values)


def keep(connection: Connection, batch: KeyedBatch, carried: Sequence[str], kept: Sequence[str], source: str) -> str:
    """Return the rows that stay, with the values that their updates left out, as SQL after FROM; their relation is `w`.

    Args:
        connection: inside a transaction, with the relations of upsert.py.
        batch: the writes.
        carried: columns that the rows of the batch fill.
        kept: columns that a write keeps.
        source: the rows that stay, as SQL after FROM, with the fates `f`.
    """
    text = Scalar("VARCHAR")
    columns = Columns((*((name, kind) for name, kind in batch.known if name in carried), (KEPT_NAME, text)))
    touched = "SELECT f.gid FROM temp.kpipe_fates AS f JOIN temp.kpipe_writes AS w ON w.rowid = f.wid"
    touched += f" WHERE w.{KEPT} IS NOT NULL AND f.behind = 0 AND NOT f.is_delete AND NOT f.stale"
    _fold(connection, batch, columns, kept_values(columns.names(), kept), f" AND f.gid IN ({touched})")
    names = ", ".join(map(quote, carried))
    shown = ", ".join(f"w.{quote(name)}" for name in carried)
    return f"(SELECT {shown} FROM {source} AND f.gid NOT IN ({touched}) UNION ALL SELECT {names} FROM temp.kpipe_kept) AS w"


def _fold(connection: Connection, batch: KeyedBatch, known: Columns, values: Mapping[str, str], only: str = "") -> None:
    """Create `temp.kpipe_kept` with these columns; `only` is a further condition of the fates."""

    def packed(side: str) -> str:
        own = (f"{side}.{quote(name)}" if side == "w" or name != KEPT_NAME else "NULL::VARCHAR" for name in known.names())
        return ", ".join(f"{quote(name)} := {value}" for name, value in zip(known.names(), own, strict=True))

    columns = ", ".join(f"v.{quote(name)} AS {quote(name)}" for name in known.names())
    last = "f.behind = 0 AND NOT f.is_delete AND NOT f.stale"
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE kpipe_kept AS WITH parts AS ("
        f" SELECT f.gid, '' AS tn, -1 AS p, -1::BIGINT AS o, -1::BIGINT AS place, struct_pack({packed('t')}) AS v"
        f"   FROM temp.kpipe_fates AS f JOIN {quote('main', batch.table)} AS t ON t.rowid = f.rid"
        f"   WHERE f.last AND NOT f.stale AND NOT f.cut{only}"
        f" UNION ALL SELECT f.gid, f.tn, f.p, f.o, f.place, struct_pack({packed('w')}) AS v"
        f"   FROM temp.kpipe_fates AS f JOIN temp.kpipe_writes AS w ON w.rowid = f.wid WHERE {last}{only}),"
        f" folded AS (SELECT {folded(known, values, 'tn, p, o, place')} AS v FROM parts GROUP BY gid)"
        f" SELECT {columns} FROM folded"
    )
