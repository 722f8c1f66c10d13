"""Read the metadata of commits that is not published yet, and mark it as published."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

import json
from collections.abc import Sequence

from kpipe.interfaces import Publication
from resources.destinations.sql.ledger.table_definitions import COMMITS
from resources.destinations.sql.sql_dialect import Connection, Dialect

__all__ = ["mark", "waiting"]


def waiting(connection: Connection, pipeline: str, limit: int) -> list[Publication]:
    """Return the metadata that has not been published, oldest first."""
    rows = connection.execute(
        f"SELECT batch_id, seq, metadata FROM {COMMITS.sql}"
        " WHERE pipeline_name = $1 AND published_at IS NULL AND metadata IS NOT NULL ORDER BY seq LIMIT $2",
        [pipeline, limit],
    ).fetchall()
    return [Publication(batch, seq, json.loads(metadata)) for batch, seq, metadata in rows]


def mark(connection: Connection, dialect: Dialect, pipeline: str, batches: Sequence[str]) -> list[str]:
    """Mark batches as published, and return those that were not, in the order of `batches`."""
    asked = dialect.rows([("batch_id", "VARCHAR")], 2)
    rows = connection.execute(
        f"SELECT batch_id FROM {COMMITS.sql} WHERE pipeline_name = $1 AND published_at IS NULL"
        f" AND batch_id IN ({asked}){dialect.lock}",
        [pipeline, *dialect.given([[batch] for batch in batches], 1)],
    ).fetchall()
    mine = {row[0] for row in rows}
    if mine:
        connection.execute(
            f"UPDATE {COMMITS.sql} SET published_at = now() WHERE pipeline_name = $1 AND batch_id IN ({asked})",
            [pipeline, *dialect.given([[batch] for batch in mine], 1)],
        )
    return [batch for batch in dict.fromkeys(batches) if batch in mine]
