"""Definitions of SingleStore's views of pipelines, as queries over the views of a destination.

Names and meaning of the columns: SingleStore's documentation, Information Schema Reference, Data Ingest, versions 6.7 to 9.1. A
column without a value in kpipe is NULL, of SingleStore's type.
"""

# ruff: noqa: S608 - what is put together are constants and quoted names
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from resources.duckdb_engine.file_connection import quote

__all__ = ["BASES", "MACROS", "SCHEMA", "VIEWS", "View"]

#: Schema of the views, in memory: the database file is read-only.
SCHEMA = "memory.kpipe_information_schema"
#: Columns that the views read from `Destination.view`.
BASES: Mapping[str, Mapping[str, str]] = {
    "pipelines": {
        "database_name": "VARCHAR", "pipeline_name": "VARCHAR", "pipeline_id": "VARCHAR", "config_json": "VARCHAR",
        "state": "VARCHAR", "skipped_batches": "BIGINT", "created": "TIMESTAMPTZ", "altered": "TIMESTAMPTZ",
    },
    "batches": {
        "database_name": "VARCHAR", "pipeline_name": "VARCHAR", "batch_id": "VARCHAR", "batch_state": "VARCHAR",
        "batch_time": "DOUBLE", "batch_start_unix_timestamp": "DOUBLE", "batch_partition_parsed_rows": "BIGINT",
        "batch_source_partition_id": "INTEGER", "batch_earliest_offset": "BIGINT", "batch_latest_offset": "BIGINT",
        "batch_partition_time": "DOUBLE", "batch_partition_extracted_bytes": "BIGINT",
        "batch_partition_extracted_rows": "BIGINT", "topic": "VARCHAR", "seq": "BIGINT", "inserted": "BIGINT",
        "updated": "BIGINT", "deleted": "BIGINT",
    },
    "errors": {
        "database_name": "VARCHAR", "pipeline_name": "VARCHAR", "error_unix_timestamp": "DOUBLE", "error_type": "VARCHAR",
        "error_message": "VARCHAR", "error_kind": "VARCHAR", "std_error": "VARCHAR", "load_data_line": "BLOB",
        "batch_id": "VARCHAR", "error_id": "BIGINT", "batch_source_partition_id": "INTEGER",
        "batch_earliest_offset": "BIGINT", "batch_latest_offset": "BIGINT", "topic": "VARCHAR",
    },
    "cursors": {
        "database_name": "VARCHAR", "pipeline_name": "VARCHAR", "source_type": "VARCHAR", "source_partition_id": "INTEGER",
        "earliest_offset": "BIGINT", "latest_offset": "BIGINT", "cursor_offset": "BIGINT",
        "successful_cursor_offset": "BIGINT", "updated_unix_timestamp": "DOUBLE", "topic": "VARCHAR",
    },
}  # fmt: skip


@dataclass(frozen=True)
class View:
    """The definition of a view.

    Attributes:
        bases: names in `BASES`; the first has the alias `b` in expressions.
        columns: type and expression by name.
        rest: the SQL after FROM.
    """

    bases: tuple[str, ...]
    columns: Mapping[str, tuple[str, str]]
    rest: str

    def sql(self, name: str) -> str:
        """Return the CREATE VIEW statement."""
        items = ", ".join(f"CAST({text} AS {kind}) AS {quote(column)}" for column, (kind, text) in self.columns.items())
        return f"CREATE VIEW {SCHEMA}.{quote(name)} AS SELECT {items} FROM {self.rest}"


def _named(database: str = "b.database_name") -> dict[str, tuple[str, str]]:
    return {"DATABASE_NAME": ("VARCHAR", database), "PIPELINE_NAME": ("VARCHAR", "b.pipeline_name")}


# With several topics, a partition is named with its topic.
_TOPICS = f"(SELECT pipeline_name, count(DISTINCT topic) AS topics FROM {SCHEMA}.kpipe_{{0}} GROUP BY ALL) AS t"
_PART = "CASE WHEN t.topics > 1 THEN concat(b.topic, ':', b.{0}) ELSE CAST(b.{0} AS VARCHAR) END"
# Without decisions, which are in the history, too.
_BATCH = "b.batch_state IN ('Succeeded', 'Landed')"
_NODE = {"HOST": ("VARCHAR", "NULL"), "PORT": ("BIGINT", "NULL"), "PARTITION": ("BIGINT", "NULL")}
_OF_BATCH = "OVER (PARTITION BY b.pipeline_name, b.seq)"

#: The views, by name.
VIEWS: Mapping[str, View] = {
    "PIPELINES": View(
        ("pipelines",),
        {
            **_named(),
            "PIPELINE_ID": ("VARCHAR", "b.pipeline_id"),
            "CONFIG_JSON": ("VARCHAR", "b.config_json"),
            "STATE": ("VARCHAR", "b.state"),
            "SKIPPED_BATCH_PARTITIONS": ("BIGINT", "b.skipped_batches"),
            "SKIPPED_BATCHES": ("BIGINT", "b.skipped_batches"),  # its name up to version 6.7
            "CREATE_TIME": ("TIMESTAMPTZ", "b.created"),
            "ALTER_TIME": ("TIMESTAMPTZ", "b.altered"),
        },
        f"{SCHEMA}.kpipe_pipelines AS b",
    ),
    "PIPELINES_BATCHES": View(
        ("batches",),
        {
            **_named(),
            "BATCH_ID": ("BIGINT", "b.seq"),
            "BATCH_STATE": ("VARCHAR", "'Succeeded'"),
            "BATCH_ROWS_WRITTEN": ("BIGINT", f"sum(b.inserted + b.updated + b.deleted) {_OF_BATCH}"),
            "BATCH_TIME": ("DOUBLE", "b.batch_time"),
            "BATCH_START_UNIX_TIMESTAMP": ("DOUBLE", "b.batch_start_unix_timestamp"),
            "BATCH_PARTITION_STATE": ("VARCHAR", "'Succeeded'"),
            "BATCH_PARTITION_PARSED_ROWS": ("BIGINT", "b.batch_partition_parsed_rows"),
            "BATCH_SOURCE_PARTITION_ID": ("VARCHAR", _PART.format("batch_source_partition_id")),
            "BATCH_EARLIEST_OFFSET": ("BIGINT", "b.batch_earliest_offset"),
            "BATCH_LATEST_OFFSET": ("BIGINT", "b.batch_latest_offset"),
            "BATCH_PARTITION_TIME": ("DOUBLE", "b.batch_partition_time"),
            "BATCH_PARTITION_EXTRACTED_BYTES": ("BIGINT", "b.batch_partition_extracted_bytes"),
            "BATCH_PARTITION_EXTRACTED_ROWS": ("BIGINT", "b.batch_partition_extracted_rows"),
            "BATCH_PARTITION_TRANSFORMED_BYTES": ("BIGINT", "NULL"),
            "BATCH_PARTITION_EXTRACTOR_WAIT_TIME": ("DOUBLE", "NULL"),
            "BATCH_PARTITION_TRANSFORM_WAIT_TIME": ("DOUBLE", "NULL"),
            **_NODE,
        },
        f"{SCHEMA}.kpipe_batches AS b JOIN {_TOPICS.format('batches')} USING (pipeline_name) WHERE {_BATCH}",
    ),
    "PIPELINES_BATCHES_SUMMARY": View(
        ("batches",),
        {
            **_named("min(b.database_name)"),
            "BATCH_ID": ("BIGINT", "b.seq"),
            "BATCH_STATE": ("VARCHAR", "'Succeeded'"),
            "START_TIME": ("TIMESTAMPTZ", "to_timestamp(min(b.batch_start_unix_timestamp))"),
            "EXTRACTOR_WAIT_TIME": ("DOUBLE", "NULL"),
            "TRANSFORM_WAIT_TIME": ("DOUBLE", "NULL"),
            "BATCH_TIME": ("DOUBLE", "max(b.batch_time)"),
            "ROWS_PER_SEC": ("DOUBLE", "sum(b.batch_partition_extracted_rows) / nullif(max(b.batch_time), 0)"),
            "ROWS_STREAMED": ("BIGINT", "sum(b.batch_partition_extracted_rows)"),
            "ROWS_INSERTED": ("BIGINT", "sum(b.inserted)"),
            "ROWS_UPDATED": ("BIGINT", "sum(b.updated)"),
            "ROWS_DELETED": ("BIGINT", "sum(b.deleted)"),
            "NUM_PARTITIONS": ("BIGINT", "count(DISTINCT (b.topic, b.batch_source_partition_id))"),
            "NUM_PARTITIONS_FINISHED": ("BIGINT", "count(DISTINCT (b.topic, b.batch_source_partition_id))"),
            "MB_STREAMED": ("DOUBLE", "sum(b.batch_partition_extracted_bytes) / 1e6"),
            "MB_PER_SEC": ("DOUBLE", "sum(b.batch_partition_extracted_bytes) / 1e6 / nullif(max(b.batch_time), 0)"),
        },
        f"{SCHEMA}.kpipe_batches AS b WHERE {_BATCH} GROUP BY b.pipeline_name, b.seq",
    ),
    "PIPELINES_ERRORS": View(
        ("errors", "batches"),
        {
            **_named(),
            "ERROR_UNIX_TIMESTAMP": ("DOUBLE", "b.error_unix_timestamp"),
            "ERROR_TYPE": ("VARCHAR", "b.error_type"),
            "ERROR_CODE": ("BIGINT", "NULL"),
            "ERROR_MESSAGE": ("VARCHAR", "b.error_message"),
            "ERROR_KIND": ("VARCHAR", "b.error_kind"),
            "STD_ERROR": ("VARCHAR", "b.std_error"),
            # Text if it is valid UTF-8, else DuckDB's notation of bytes.
            "LOAD_DATA_LINE": ("VARCHAR", "coalesce(TRY(decode(b.load_data_line)), CAST(b.load_data_line AS VARCHAR))"),
            "LOAD_DATA_LINE_NUMBER": ("BIGINT", "NULL"),
            "BATCH_ID": ("BIGINT", "c.seq"),
            "ERROR_ID": ("BIGINT", "b.error_id"),
            "BATCH_SOURCE_PARTITION_ID": ("VARCHAR", _PART.format("batch_source_partition_id")),
            "BATCH_EARLIEST_OFFSET": ("BIGINT", "b.batch_earliest_offset"),
            "BATCH_LATEST_OFFSET": ("BIGINT", "b.batch_latest_offset"),
            **_NODE,
        },
        f"{SCHEMA}.kpipe_errors AS b LEFT JOIN {_TOPICS.format('batches')} USING (pipeline_name)"
        f" LEFT JOIN (SELECT DISTINCT pipeline_name, batch_id, seq FROM {SCHEMA}.kpipe_batches) AS c"
        " ON c.pipeline_name = b.pipeline_name AND c.batch_id = b.batch_id",
    ),
    "PIPELINES_CURSORS": View(
        ("cursors",),
        {
            **_named(),
            "SOURCE_TYPE": ("VARCHAR", "b.source_type"),
            "SOURCE_PARTITION_ID": ("VARCHAR", _PART.format("source_partition_id")),
            "EARLIEST_OFFSET": ("BIGINT", "b.earliest_offset"),
            "LATEST_OFFSET": ("BIGINT", "b.latest_offset"),
            "CURSOR_OFFSET": ("BIGINT", "b.cursor_offset"),
            "SUCCESSFUL_CURSOR_OFFSET": ("BIGINT", "b.successful_cursor_offset"),
            "UPDATED_UNIX_TIMESTAMP": ("DOUBLE", "b.updated_unix_timestamp"),
            "EXTRA_FIELDS": ("VARCHAR", "NULL"),
        },
        f"{SCHEMA}.kpipe_cursors AS b JOIN {_TOPICS.format('cursors')} USING (pipeline_name)",
    ),
    "PIPELINES_FILES": View(
        (),
        {
            "DATABASE_NAME": ("VARCHAR", "NULL"),
            "PIPELINE_NAME": ("VARCHAR", "NULL"),
            "SOURCE_TYPE": ("VARCHAR", "NULL"),
            "FILE_NAME": ("VARCHAR", "NULL"),
            "FILE_SIZE": ("BIGINT", "NULL"),
            "FILE_STATE": ("VARCHAR", "NULL"),
        },
        "(SELECT 1 WHERE false) AS b",
    ),
}
#: SingleStore's time functions that queries of these views use; DuckDB has other names for them.
MACROS = (
    "from_unixtime(x) AS to_timestamp(CAST(x AS DOUBLE))",
    "unix_timestamp() AS epoch(now()), (x) AS epoch(CAST(x AS TIMESTAMPTZ))",
    "time_to_sec(x) AS epoch(CAST(x AS TIMESTAMPTZ)) - epoch(date_trunc('day', CAST(x AS TIMESTAMPTZ)))",
)
