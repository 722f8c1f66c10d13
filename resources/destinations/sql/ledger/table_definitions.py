"""Define the ledger's tables, which are next to the users' tables. Names follow SingleStore's views in lower case.

They are plain tables, so any SQL client reads them without settings. Ends of offsets are exclusive. Times are UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kpipe.errors import LedgerMismatch
from resources.destinations.sql.ledger.views import views
from resources.destinations.sql.sql_dialect import Connection, Dialect, quote

__all__ = [
    "BATCHES",
    "COMMITS",
    "ERRORS",
    "FORMAT",
    "HOLDINGS",
    "LANES",
    "PARTITIONS",
    "PIPELINES",
    "TABLES",
    "TARGETS",
    "Table",
    "create",
    "present",
]


@dataclass(frozen=True)
class Table:
    """A table of the ledger: column names to types, and its primary key."""

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        """Return the table's name as SQL."""
        return quote(self.name)

    def ddl(self, dialect: Dialect) -> str:
        """Return the statement that creates the table."""
        parts = [f"{quote(name)} {dialect.column(name, kind, name in self.key)}" for name, kind in self.columns.items()]
        if self.key and dialect.keys:
            parts.append(f"PRIMARY KEY ({', '.join(map(quote, self.key))})")
        return f"CREATE TABLE IF NOT EXISTS {self.sql} ({', '.join(parts)}){dialect.ending()}"

    def insert(self, connection: Connection, dialect: Dialect, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows that have the same keys; columns they lack are NULL."""
        if not rows:
            return
        columns = {name: self.columns[name] for name in rows[0]}
        dialect.insert(connection, self.sql, columns, [[row[name] for name in columns] for row in rows])


_SOURCE = {"cluster_id": "VARCHAR", "topic_id": "VARCHAR", "topic": "VARCHAR", "partition": "INTEGER"}
_COUNTS = {
    "messages": "BIGINT", "rows": "BIGINT", "dead_letters": "BIGINT", "filtered": "BIGINT", "gaps": "BIGINT",
    "given": "BIGINT", "set_aside_before": "BIGINT", "bytes": "BIGINT",
    "deletes": "BIGINT", "inserted": "BIGINT", "updated": "BIGINT", "deleted": "BIGINT", "ignored": "BIGINT",
}  # fmt: skip

PIPELINES = Table(
    "kpipe_pipelines",
    {
        "database_name": "VARCHAR",
        "pipeline_name": "VARCHAR",
        "pipeline_id": "VARCHAR",  # created at the first commit, never changed
        "config_json": "VARCHAR",  # without secrets
        "state": "VARCHAR",
        "skipped_batches": "BIGINT",  # jumps ahead, accepted losses, batches that failed permanently
        "seq": "BIGINT",  # of the last commit
        "seal": "BIGINT",  # over the lanes in kpipe_ledger (kpipe.ledger.ledger.checksum)
        "target_table": "VARCHAR",
        "rows": "BIGINT",
        "dead_letters": "BIGINT",
        "error_events": "BIGINT",
        "last_batch_id": "VARCHAR",
        "last_error": "VARCHAR",
        "created": "TIMESTAMPTZ",
        "updated": "TIMESTAMPTZ",
    },
    ("pipeline_name",),
)
LANES = Table(
    "kpipe_ledger",
    {
        "pipeline_name": "VARCHAR",
        **_SOURCE,
        "lane_start": "BIGINT",
        "next_offset": "BIGINT",
        "lane_end": "BIGINT",
        "kind": "VARCHAR",
        "batch_id": "VARCHAR",
        "tail": "VARCHAR",  # fingerprint of the last records before next_offset (kpipe/ledger/tail.py); since format 2, so last
    },
    # With the topic's name: brokers without topic ids return the same empty id for every topic.
    ("pipeline_name", "cluster_id", "topic_id", "topic", "partition", "lane_start"),
)
PARTITIONS = Table(
    "kpipe_partitions",
    {
        "pipeline_name": "VARCHAR",
        **_SOURCE,
        "earliest_offset": "BIGINT",
        "latest_offset": "BIGINT",
        "updated_unix_timestamp": "DOUBLE PRECISION",
    },
    ("pipeline_name", "cluster_id", "topic_id", "topic", "partition"),
)
COMMITS = Table(
    "kpipe_commits",
    {
        "batch_id": "VARCHAR",
        "pipeline_name": "VARCHAR",
        "seq": "BIGINT",
        "kind": "VARCHAR",
        "target_table": "VARCHAR",
        "run_id": "VARCHAR",
        "version": "VARCHAR",
        "started": "TIMESTAMPTZ",
        "committed": "TIMESTAMPTZ",
        "seconds": "DOUBLE PRECISION",
        **_COUNTS,
        "note": "VARCHAR",
        "metadata": "VARCHAR",  # JSON by partition; NULL: nothing to publish
        "published_at": "TIMESTAMPTZ",
    },
    ("batch_id",),
)
BATCHES = Table(
    "kpipe_batches",
    {
        "database_name": "VARCHAR",
        "pipeline_name": "VARCHAR",
        "batch_id": "VARCHAR",
        "batch_state": "VARCHAR",
        "batch_rows_written": "BIGINT",
        "batch_time": "DOUBLE PRECISION",
        "batch_start_unix_timestamp": "DOUBLE PRECISION",
        "batch_partition_state": "VARCHAR",
        "batch_partition_parsed_rows": "BIGINT",
        "batch_source_partition_id": "INTEGER",
        "batch_earliest_offset": "BIGINT",
        "batch_latest_offset": "BIGINT",
        "batch_partition_time": "DOUBLE PRECISION",
        "batch_partition_extracted_bytes": "BIGINT",
        "batch_partition_extracted_rows": "BIGINT",
        "cluster_id": "VARCHAR",
        "topic_id": "VARCHAR",
        "topic": "VARCHAR",
        "target_table": "VARCHAR",
        "seq": "BIGINT",
        "closed_by": "VARCHAR",
        **_COUNTS,
    },
)
TARGETS = Table(
    "kpipe_targets",  # rows of each table by range, if they do not follow from kpipe_batches (ledger/multi_table.py)
    {
        "pipeline_name": "VARCHAR",
        "batch_id": "VARCHAR",
        "seq": "BIGINT",
        "cluster_id": "VARCHAR",
        "topic_id": "VARCHAR",
        "topic": "VARCHAR",
        "batch_source_partition_id": "INTEGER",
        "batch_earliest_offset": "BIGINT",
        "batch_latest_offset": "BIGINT",
        "closed_by": "VARCHAR",
        "batch_state": "VARCHAR",
        "target_table": "VARCHAR",
        "rows": "BIGINT",
        "records": "BIGINT",  # records with at least one of the rows
        "offsets": "NUMERIC(38,0)",  # sum of the rows' offsets
        "inserted": "BIGINT",
        "updated": "BIGINT",
        "deleted": "BIGINT",
        "ignored": "BIGINT",
    },
    ("batch_id", "cluster_id", "topic_id", "topic", "batch_source_partition_id", "batch_earliest_offset", "target_table"),
)
ERRORS = Table(
    "kpipe_errors",
    {
        "database_name": "VARCHAR",
        "pipeline_name": "VARCHAR",
        "error_unix_timestamp": "DOUBLE PRECISION",
        "error_type": "VARCHAR",  # 'Error' stopped a batch, 'Warning' is a dead letter
        "error_code": "VARCHAR",  # name of the class in kpipe/errors.py; of a dead letter: RecordRejected
        "error_message": "VARCHAR",
        "error_kind": "VARCHAR",  # 'Internal' or 'External': cause of the error
        "std_error": "VARCHAR",
        "load_data_line": "BYTEA",  # the record's value, unchanged
        "load_data_line_number": "BIGINT",
        "batch_id": "VARCHAR",
        "error_id": "BIGINT",  # ascending within the pipeline
        "batch_source_partition_id": "INTEGER",
        "batch_earliest_offset": "BIGINT",
        "batch_latest_offset": "BIGINT",
        "dead_letter": "BOOLEAN",
        "stage": "VARCHAR",
        "topic": "VARCHAR",
        "partition": "INTEGER",
        "offset": "BIGINT",
        "kafka_timestamp": "TIMESTAMPTZ",
        "key": "BYTEA",
        "headers": "HEADERS",  # a list of names and values: each database has its own type for it
        "version": "VARCHAR",
    },
)
HOLDINGS = Table(
    "kpipe_holdings",
    {
        "target_table": "VARCHAR",  # in lower case; only tables that a pipeline writes with a key
        "topic": "VARCHAR",  # as rows name it; empty: rows do not name it
        "partition": "INTEGER",  # as rows name it; -1: rows that kpipe did not write
        "rows": "BIGINT",
        "offsets": "NUMERIC(38,0)",  # sum of the rows' offsets
        "baseline": "BIGINT",  # of -1: earlier rows, which are in no batch
    },
    ("target_table", "topic", "partition"),
)
FORMAT = Table(
    "kpipe_format",  # one row: the format of all these tables (kpipe/ledger/format_version.py)
    {"name": "VARCHAR", "version": "INTEGER"},
    ("name",),  # two first commits conflict
)
TABLES = (PIPELINES, LANES, PARTITIONS, COMMITS, BATCHES, TARGETS, ERRORS, HOLDINGS, FORMAT)


def present(exists: Callable[[str], bool]) -> bool:
    """Return whether the tables exist. One transaction creates all of them.

    Args:
        exists: whether there is a table of that name.

    Raises:
        LedgerMismatch: only some of them exist.
    """
    if exists(PIPELINES.name):
        return True
    left = [table.name for table in TABLES if exists(table.name)]
    if left:
        raise LedgerMismatch(f"table {PIPELINES.name} is missing, but {', '.join(left)} exist", "restore a backup")
    return False


def create(connection: Connection, dialect: Dialect) -> None:
    """Create missing tables and views, inside the current transaction.

    Two first commits may race here: one of them fails with a conflict and is retried.
    """
    for statement in (*(table.ddl(dialect) for table in TABLES), *views(dialect)):
        connection.execute(statement)
