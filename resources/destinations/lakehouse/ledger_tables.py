"""Load ledger files into the tables of docs/design.md 4.5, in an in-memory DuckDB that computes views and sums."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kpipe.batch.batch import Commit, Mark
from kpipe.ledger.ledger import Lane, Step
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.ledger_file import Item, Record
from resources.destinations.ledger_rows import entry
from resources.destinations.sql.ledger import history_tables, table_definitions, views
from resources.destinations.sql.ledger.duckdb_dialect import DIALECT as DUCKDB
from resources.destinations.sql.ledger.ledger_table import lane_row
from resources.duckdb_engine.file_connection import Connection
from resources.duckdb_engine.sandbox import closed
from resources.duckdb_engine.sql_types import READ

__all__ = [
    "DIALECT", "desk", "lay_balance", "lay_commits", "lay_dead_letters", "lay_events", "lay_pipeline", "lay_ranges", "marks",
    "shown",
]  # fmt: skip

# Tables are registered without a schema.
DIALECT = replace(DUCKDB, schema="")


@contextmanager
def desk(folder: Folder, dead: Iterable[Item] = (), spill: str = "") -> Iterator[tuple[Connection, Mapping[str, Path]]]:
    """Open empty ledger tables and the dead-letter files of these commits; only a folder with these files is readable.

    Args:
        folder: with the files.
        dead: the commits.
        spill: folder for data that does not fit into memory; empty: no spilling.
    """
    with folder.here([file["name"] for item in dead for file in item["dead"]]) as (there, files):
        connection = closed([], [str(there)], spill)
        try:
            table_definitions.create(connection, DIALECT)
            yield connection, files
        finally:
            connection.close()


def lay_pipeline(connection: Connection, record: Record, notes: Mapping[str, Any], database: str, events: int) -> None:
    """Insert the pipeline's row, its lanes, and the ends of its partitions."""
    row = {
        "database_name": database,
        "pipeline_name": record.pipeline,
        "pipeline_id": record.uid,
        "config_json": record.config.get("json"),
        "state": notes.get("state", "running"),
        "skipped_batches": record.skipped,
        "seq": record.seq,
        "seal": record.seal,
        "target_table": record.table,
        "rows": record.rows,
        "dead_letters": record.dead_letters,
        "error_events": record.dead_letters + events,
        "last_batch_id": record.last,
        "last_error": notes.get("last_error"),
        "created": _instant(record.created),
        "updated": _instant(max(record.updated, notes.get("updated", 0.0))),
    }
    table_definitions.PIPELINES.insert(connection, DIALECT, [row])
    lanes = [{"pipeline_name": record.pipeline, **lane_row(lane)} for lane in record.lanes.values()]
    table_definitions.LANES.insert(connection, DIALECT, lanes)
    table_definitions.PARTITIONS.insert(connection, DIALECT, list(record.ends.values()))


def marks(commit: Commit) -> list[tuple[int, int]]:
    """Return the number of records with rows, and the sum of the rows' offsets, of each range; none if they are not counted."""
    found = next((write.marks for write in commit.tables if write.marks), None)
    if found is None:
        return []
    of_steps = [found.get(step.lane.key, Mark()) for step in commit.steps]
    return [(mark.records, mark.offsets) for mark in of_steps]


def lay_commits(connection: Connection, items: Iterable[Item], table: str) -> None:
    """Insert commits, their ranges and what the ranges' rows are compared by, under the caller's name of the table."""
    known = list(items)
    table_definitions.COMMITS.insert(connection, DIALECT, [{**item["commit"], "target_table": table} for item in known])
    lay_ranges(connection, known, table)


def lay_ranges(connection: Connection, items: Iterable[Item], table: str) -> None:
    """Insert ranges and what their rows are compared by, under the caller's name of the table."""
    known = list(items)
    table_definitions.BATCHES.insert(
        connection, DIALECT, [{**row, "target_table": table} for item in known for row in item["ranges"]]
    )
    names = table_definitions.TARGETS.columns.keys()
    table_definitions.TARGETS.insert(
        connection,
        DIALECT,
        [
            {name: {**row, "target_table": table, "records": records, "offsets": offsets}[name] for name in names}
            for item in known
            for row, (records, offsets) in zip(item["ranges"], item.get("marks", ()), strict=False)
        ],
    )


def lay_balance(connection: Connection, rows: Iterable[tuple[str, int, int, int, int]], table: str) -> None:
    """Insert the balance of a table with a key: topic, partition, rows, sum of offsets, baseline."""
    names = ("target_table", "topic", "partition", "rows", "offsets", "baseline")
    found = [dict(zip(names, (table.lower(), *row), strict=True)) for row in rows]
    table_definitions.HOLDINGS.insert(connection, DIALECT, found)


def lay_dead_letters(connection: Connection, items: Iterable[Item], files: Mapping[str, Path], database: str) -> None:
    """Insert dead letters from their files. A missing file adds no rows; the recount reports it."""
    for item in items:
        there = [str(files[file["name"]]) for file in item["dead"] if file["name"] in files]
        if not there:
            continue
        ranges = (entry(row) for row in item["ranges"])
        steps = tuple(Step(Lane(r.source, r.range.start, r.range.start, r.range.end), r.range.end) for r in ranges)
        commit = Commit(item["commit"]["batch_id"], item["commit"]["pipeline_name"], (), steps=steps)
        moment = datetime.fromisoformat(item["commit"]["committed"]).timestamp()
        connection.execute(*history_tables.letters(DIALECT, commit, int(moment * 1e6), READ.format("$11"), [there]))
        connection.execute(
            f"UPDATE {table_definitions.ERRORS.sql} SET error_unix_timestamp = $1, version = $2, database_name = $3"
            " WHERE batch_id = $4 AND dead_letter",
            [moment, item["commit"]["version"], database, commit.id],
        )


def lay_events(connection: Connection, events: Sequence[Mapping[str, Any]]) -> None:
    """Insert the error events of stopped runs."""
    table_definitions.ERRORS.insert(connection, DIALECT, events)


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def shown(connection: Connection, name: str, pipeline: str, limit: int | None) -> Sequence[Mapping[str, Any]]:
    """Read the rows of a view, newest first.

    Raises:
        KeyError: the view does not exist.
    """
    described = connection.execute(f"DESCRIBE kpipe_{name}").fetchall()
    instants = [(column, kind == "TIMESTAMP WITH TIME ZONE") for column, kind, *_ in described]
    return views.rows(connection, DIALECT, name, instants, pipeline, limit)
