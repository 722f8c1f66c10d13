"""Rows counted where a contender left them, so that a run that lost or doubled some cannot win."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb

__all__ = ["Found", "in_delta", "in_duckdb", "in_iceberg", "in_parquet"]


@dataclass(frozen=True)
class Found:
    """Rows, different ids, smallest and largest id, and for tweets what `retweets` adds up to and the scores that are there."""

    rows: int
    distinct: int
    low: int
    high: int
    retweets: int | None = None
    scores: int | None = None

    def problem(self, records: int, retweets: int | None = None) -> str:
        """What is wrong, if these should be the records 0 to `records - 1`; empty when nothing is."""
        wanted = Found(records, records, 0, records - 1, retweets, None if retweets is None else records)
        differs = {name: (value, asdict(wanted)[name]) for name, value in asdict(self).items() if value != asdict(wanted)[name]}
        return ", ".join(f"{name}: {found}, not {right}" for name, (found, right) in differs.items())


def _ask(connection: duckdb.DuckDBPyConnection, rows: str, tweets: bool, *values: Any) -> Found:
    more = ", sum(retweets)::BIGINT, count(score)" if tweets else ""
    query = f"SELECT count(*), count(DISTINCT id), coalesce(min(id), -1), coalesce(max(id), -1){more} FROM {rows}"
    found = connection.execute(query, list(values)).fetchone()
    assert found is not None
    return Found(*found)


def in_parquet(files: Sequence[str | Path], tweets: bool = True) -> Found:
    """What these files hold."""
    if not files:
        return Found(0, 0, -1, -1)
    with duckdb.connect() as connection:
        return _ask(connection, "read_parquet($1)", tweets, [str(file) for file in files])


def in_delta(folder: Path) -> Found:
    """What the files hold that the Delta table there refers to."""
    from deltalake import DeltaTable

    return in_parquet(DeltaTable(folder).file_uris())


def in_iceberg(folder: Path, table: str) -> Found:
    """What the files hold that the newest metadata of the Iceberg table there refers to."""
    from pyiceberg.table import StaticTable

    newest = max(folder.glob(f"**/{table}/metadata/*.metadata.json"))
    files = [task.file.file_path for task in StaticTable.from_metadata(str(newest)).scan().plan_files()]
    return in_parquet([file.removeprefix("file://") for file in files])


def in_duckdb(database: str | Path, table: str, tweets: bool = True) -> Found:
    """What the table holds."""
    with duckdb.connect(str(database), read_only=True) as connection:
        return _ask(connection, table, tweets)
