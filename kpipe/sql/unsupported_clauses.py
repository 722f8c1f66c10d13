"""Reject clauses that kpipe does not support, each with the reason and an alternative."""

from __future__ import annotations

import re
from typing import NoReturn

from lark import Token, Tree

from kpipe.sql.ast import Node, wrong

__all__ = ["elsewhere", "refuse", "remote_transform"]

_STORES = (
    "paths name their store",
    "write CREATE SOURCE PIPELINE ... LOAD DATA FILES '/folder/*.csv' or 's3://bucket/folder/*.csv' INTO KAFKA 'host:port/topic'",
)
_OTHERS = "kpipe reads Kafka and files only", "write KAFKA 'host:port/topic'"
_REASONS: dict[str, tuple[str, str]] = {
    "LINK": (
        "kpipe stores no connections apart from pipelines",
        "write KAFKA 'host:port/topic' with CONFIG and CREDENTIALS",
    ),
    **dict.fromkeys(("S3", "FS", "AZURE", "GCS"), _STORES),
    **dict.fromkeys(("HDFS", "MONGODB", "MYSQL", "ICEBERG"), _OTHERS),
    "KAFKACONNECT": (
        "kpipe runs no source connectors",
        "run the connector in Kafka Connect, and read its topic: KAFKA 'host:port/topic'",
    ),
    "RESOURCE POOL": ("kpipe has no resource pools: Spark's settings limit a run", "remove it"),
    "IGNORE": (
        "it would silently change invalid values",
        "write SKIP ALL ERRORS, which stores invalid records as dead letters",
    ),
    "ERRORS HANDLE": (
        "errors are stored by pipeline, without a handle",
        "query SELECT * FROM kpipe_errors WHERE pipeline_name = '...'",
    ),
    "MAX_ERRORS": (
        "the limit is errors.max_dead_letters",
        """write OPTIONS '{"errors": {"max_dead_letters": 100}}'""",
    ),
    "INTO PROCEDURE": (
        "kpipe has no stored procedures",
        "write INTO TABLE with SET, WHERE or a program (WITH TRANSFORM); for more tables, add ALSO INTO TABLE",
    ),
    "FORMAT PARQUET": ("a Kafka message is not a Parquet file", "write FORMAT JSON, CSV, AVRO, PROTOBUF, RAW or DEBEZIUM"),
    "CREATE INFERRED PIPELINE": ("review it before it loads data", "run INFER PIPELINE to print the statements"),
    "INFER TABLE": (
        "it is part of INFER PIPELINE",
        "write INFER PIPELINE AS LOAD DATA ..., which prints the table and the pipeline",
    ),
    "PROFILE PIPELINE": (
        "kpipe has no query plans to show",
        "run TEST PIPELINE, which writes nothing; query kpipe_batches for times and rates",
    ),
    "DROP FILE": (
        "a file that was read is never read again",
        "write DROP ORPHAN PARTITIONS to continue without files that were removed",
    ),
    "DELETE ... WHERE": (
        "kpipe verify counts every loaded row, and could not distinguish deleted rows from lost ones",
        "filter them with WHERE in CREATE OR REPLACE PIPELINE, then reload the table with RESET PIPELINE; DELETE FROM"
        " without WHERE clears it",
    ),
    "OFFSET CURSOR": (
        "a position in Kafka is an offset for each partition",
        """write SET OFFSETS EARLIEST, LATEST, TIMESTAMP '...' or '{"0": 120}'""",
    ),
    "BATCH_MATCHES_SNAPSHOT": ("a Kafka topic has no snapshots", "write MAX_OFFSETS_PER_BATCH_PARTITION to limit a batch"),
    "FIELDS": ("a format is replaced as a whole", "write CREATE OR REPLACE PIPELINE, which keeps the position"),
    "LINES": ("a format is replaced as a whole", "write CREATE OR REPLACE PIPELINE, which keeps the position"),
}


def refuse(node: Node | None, clause: str) -> NoReturn:
    """Raise an error: the clause is not supported."""
    reason, instead = _REASONS[clause]
    wrong(node, f"{clause} is not supported: {reason}", instead)


def remote_transform(tree: Tree[Token], scheme: str) -> NoReturn:
    """Raise an error: the program is not a local file."""
    if scheme.lower() == "memsql":
        wrong(
            tree,
            "TRANSFORM from memsql:// is not supported: it is a program inside SingleStore",
            "read members by path: FORMAT JSON (column <- member::member)",
        )
    wrong(
        tree,
        f"TRANSFORM from {scheme}:// is not supported: kpipe does not download programs",
        "download it, and write its path",
    )


_CLIENT = "use a client of the database, such as duckdb, while no pipeline runs"
_VARIABLES = (
    "kpipe has no engine variables: each pipeline has its own settings, with the same defaults",
    "write ALTER PIPELINE name SET BATCH_INTERVAL, MAX_OFFSETS_PER_BATCH_PARTITION, STOP_ON_ERROR ...",
)
_USERS = (
    "kpipe has no users: access to the home's folder is access to everything",
    "remove it; permissions are those of the folder, or of the destination's database",
)
# Other statements in scripts for SingleStore: pattern, reason, alternative.
_ELSEWHERE = (
    (r"DROP\s+DATABASE\b", "a home has one database, and its ledger is in it", "remove the folder of the home"),
    (r"DELIMITER\b|(?:CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?(?:PROCEDURE|TRIGGER|FUNCTION|AGGREGATE)\b|(?:CALL|ECHO)\b",
     *_REASONS["INTO PROCEDURE"]),
    (r"(?:CREATE|DROP|ALTER|SHOW)\s+(?:OR\s+REPLACE\s+)?LINKS?\b", *_REASONS["LINK"]),
    (r"(?:CREATE|DROP|ALTER|SHOW)\s+RESOURCE\s+POOLS?\b|SET\s+(?:SESSION\s+)?resource_pool\b", *_REASONS["RESOURCE POOL"]),
    (r"(?:GRANT|REVOKE)\b|(?:CREATE|DROP|ALTER)\s+(?:USER|ROLE|GROUP)\b|SHOW\s+GRANTS\b", *_USERS),
    (r"(?:SELECT|WITH|FROM)\b.*\bINTO\s+KAFKA\b", "a query cannot write",
     "write to a topic with a pipeline: INTO TABLE name IN kafka, with OPTIONS '{\"into\": {\"brokers\": ..., \"topic\": ...}}'"),
    (r"(?:SELECT|WITH|FROM)\b.*\bINTO\s+(?:OUTFILE|S3|FS|GCS|AZURE|HDFS|LINK)\b", "a query cannot write",
     "run kpipe sql --json 'SELECT ...' > FILE"),
    (r"SET\s+(?:GLOBAL|SESSION|CLUSTER|@@|pipelines_|ingest_)|SHOW\s+(?:GLOBAL\s+|SESSION\s+)?VARIABLES\b", *_VARIABLES),
    (r"(?:FLUSH|OPTIMIZE|ANALYZE|KILL|SNAPSHOT|REBALANCE)\b", "it manages SingleStore's nodes", "remove it"),
    (r"SHOW\s+(?:FULL\s+)?(?:COLUMNS|FIELDS|INDEX\w*|KEYS)\b", "kpipe shows a table with DESCRIBE", "write DESCRIBE name"),
    (r"LOAD\s+DATA\b", "records are loaded by pipelines",
     "write CREATE PIPELINE name AS LOAD DATA KAFKA ..., then START PIPELINE name FOREGROUND"),
    (r"ALTER\s+TABLE\b", "a pipeline adds new columns of records automatically (schema: evolve)",
     f"for other changes, DETACH PIPELINE name, then {_CLIENT}"),
    (r"DROP\s+TABLE\b", "the ledger still counts the table's rows", f"run DROP PIPELINE name, then {_CLIENT}"),
    (r"(?:INSERT|UPDATE|MERGE|REPLACE)\b", "only pipelines write rows, so that kpipe can verify each row", _CLIENT),
    (r".*\\G\s*$", "\\G is a command of MySQL's client", "end the statement with ;"),
)  # fmt: skip


def elsewhere(text: str) -> tuple[str, str] | None:
    """Return why a statement of SingleStore's does not work in kpipe, and an alternative; None: unknown statement."""
    for pattern, reason, instead in _ELSEWHERE:
        if re.match(pattern, text.lstrip(), re.IGNORECASE | re.DOTALL):
            return reason, instead
    return None
