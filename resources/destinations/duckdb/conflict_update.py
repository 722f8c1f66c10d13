"""Evaluate ON DUPLICATE KEY UPDATE in DuckDB: fold the existing row and the writes of its key into one row, in place."""

# ruff: noqa: S608 - names in statements are constants or quoted; expressions are the definition's own, parsed before
from __future__ import annotations

from collections.abc import Sequence

from resources.destinations.sql.merge.conflict_expressions import assignments, folded
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.duckdb_engine.file_connection import Connection, quote

__all__ = ["fold"]


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
    values = assignments(batch.rule.update, carried, batch.key, known, batch.table).values
    whole = ", ".join(f"{quote(name)} := {{0}}.{quote(name)}" for name in known.names())
    columns = ", ".join(f"v.{quote(name)} AS {quote(name)}" for name in known.names())
    last = "f.behind = 0 AND NOT f.is_delete AND NOT f.stale"
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE kpipe_kept AS WITH parts AS ("
        f" SELECT f.gid, '' AS tn, -1 AS p, -1::BIGINT AS o, -1::BIGINT AS place, struct_pack({whole.format('t')}) AS v"
        f"   FROM temp.kpipe_fates AS f JOIN {quote('main', batch.table)} AS t ON t.rowid = f.rid"
        "   WHERE f.last AND NOT f.stale AND NOT f.cut"
        f" UNION ALL SELECT f.gid, f.tn, f.p, f.o, f.place, struct_pack({whole.format('w')}) AS v"
        f"   FROM temp.kpipe_fates AS f JOIN temp.kpipe_writes AS w ON w.rowid = f.wid WHERE {last}),"
        f" folded AS (SELECT {folded(known, values, 'tn, p, o, place')} AS v FROM parts GROUP BY gid)"
        f" SELECT {columns} FROM folded"
    )
