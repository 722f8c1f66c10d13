"""Generate the page of the tables and views that kpipe keeps in a destination, from those of DuckDB."""

from __future__ import annotations

import duckdb

from resources.destinations.sql.ledger import duckdb_dialect
from website.reference.markdown import table

__all__ = ["ROWS", "tables"]

#: What a row of each table or view is.
ROWS = {
    "kpipe_pipelines": "pipeline: its last commit, counts and last error",
    "kpipe_batches": "batch and range of offsets",
    "kpipe_batches_summary": "batch",
    "kpipe_errors": "dead letter (`error_type` is `Warning`) or failed run (`Error`)",
    "kpipe_cursors": "partition: `cursor_offset` is the next offset to read, `successful_cursor_offset` the first one not read",
    "kpipe_ledger": "lane of a partition: `read`, `skipped`, `lost` or `adopted`",
    "kpipe_partitions": "partition: its first and last offset at the last plan",
    "kpipe_commits": "commit, decisions included",
    "kpipe_targets": "batch, range and table, where `kpipe_batches` does not show which offsets gave the rows",
    "kpipe_holdings": "table with a key, and partition: rows that the table holds",
    "kpipe_format": "database: the version of the format of these tables",
}


def tables() -> str:
    """Return the page.

    Raises:
        LookupError: a table has no description, or a description no table.
    """
    connection = duckdb.connect(":memory:")
    try:
        duckdb_dialect.create(connection)
        query = "SELECT table_name, table_type FROM information_schema.tables"
        kinds = {name: "view" if kind == "VIEW" else "table" for name, kind in connection.execute(query).fetchall()}
        columns = {name: [row[:2] for row in connection.execute(f'DESCRIBE "{name}"').fetchall()] for name in kinds}
    finally:
        connection.close()
    if wrong := ROWS.keys() ^ kinds.keys():
        raise LookupError(f"website/reference/tables.py and the destination differ: {', '.join(sorted(wrong))}")
    parts = [
        "# Tables and views\n",
        "Look up a table that kpipe keeps beside yours: batches, errors, positions and the ledger.\n",
        "Any client of the destination can query them; only kpipe may write them. Names follow SingleStore's views, in lower\n"
        "case. End offsets are exclusive, times are UTC. Types are those of DuckDB. `kpipe sql` also has SingleStore's\n"
        "[information_schema](statements.md#information_schema), over all pipelines of a home.\n",
        table(("name", "kind", "one row for each"), [(f"[`{name}`](#{name})", kinds[name], text) for name, text in ROWS.items()]),
    ]
    for name in ROWS:
        parts += [f"## {name}\n"]
        parts += [table(("column", "type"), [(f"`{column}`", kind) for column, kind in columns[name]])]
    return "\n".join(parts)
