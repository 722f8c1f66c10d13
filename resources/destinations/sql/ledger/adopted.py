"""Find the offsets that another loader had read before pipelines began to write a table."""

# ruff: noqa: S608 - names in statements are constants, values are always parameters
from __future__ import annotations

from kpipe.ledger.ledger import ADOPTED
from kpipe.verification.recount import Adopted, adopted
from resources.destinations.sql.ledger.ledger_table import read
from resources.destinations.sql.ledger.multi_table import WRITTEN
from resources.destinations.sql.ledger.table_definitions import LANES, PIPELINES
from resources.destinations.sql.sql_dialect import Connection, Dialect

__all__ = ["adopted_offsets"]


def adopted_offsets(connection: Connection, dialect: Dialect, pipeline: str, table: str) -> Adopted:
    """Return where another loader has read, for all pipelines that write the table; see `adopted`.

    Args:
        connection: inside a read transaction.
        dialect: of the database.
        pipeline: its name.
        table: name of the table.
    """
    takers = connection.execute(f"SELECT DISTINCT pipeline_name FROM {LANES.sql} WHERE kind = '{ADOPTED}'").fetchall()
    if not takers:
        return {}
    same = dialect.same_name.format("target_table", "$1")
    rows = connection.execute(
        f"SELECT pipeline_name FROM {PIPELINES.sql} WHERE {same} UNION SELECT pipeline_name FROM {WRITTEN} AS w WHERE {same}",
        [table],
    ).fetchall()
    writers = sorted({pipeline, *(name for (name,) in rows)})
    if not {name for (name,) in takers} & {*writers}:
        return {}
    return adopted(read(connection, name)[1] for name in writers)
