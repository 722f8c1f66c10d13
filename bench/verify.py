"""Count the rows that a contender wrote, so that a run with lost or duplicate rows fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb

__all__ = ["Found", "dead_letters", "in_delta", "in_duckdb", "in_iceberg", "in_parquet"]


@dataclass(frozen=True)
class Found:
    """Rows, distinct ids, smallest and largest id; for tweets the sum of `retweets` and the scores."""

    rows: int
    distinct: int
    low: int
    high: int
    retweets: int | None = None
    scores: int | None = None

    def problem(self, records: int, retweets: int | None = None) -> str:
        """Return the difference from the records 0 to `records - 1`; empty if there is none."""
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
    """Count the rows in these files."""
    if not files:
        return Found(0, 0, -1, -1)
    with duckdb.connect() as connection:
        return _ask(connection, "read_parquet($1)", tweets, [str(file) for file in files])


def in_delta(folder: Path) -> Found:
    """Count the rows in the files of the newest version of that Delta table."""
    from deltalake import DeltaTable

    return in_parquet(DeltaTable(folder).file_uris())


def in_iceberg(folder: Path, table: str) -> Found:
    """Count the rows in the files of the newest metadata of that Iceberg table."""
    from pyiceberg.table import StaticTable

    newest = max(folder.glob(f"**/{table}/metadata/*.metadata.json"))
    files = [task.file.file_path for task in StaticTable.from_metadata(str(newest)).scan().plan_files()]
    return in_parquet([file.removeprefix("file://") for file in files])


def in_duckdb(database: str | Path, table: str, tweets: bool = True) -> Found:
    """Count the rows in the table."""
    with duckdb.connect(str(database), read_only=True) as connection:
        return _ask(connection, table, tweets)


def dead_letters(database: str | Path) -> int:
    """How many records were set aside."""
    with duckdb.connect(str(database), read_only=True) as connection:
        found = connection.execute("SELECT count(*) FROM kpipe_errors WHERE dead_letter").fetchone()
    return found[0] if found else 0
