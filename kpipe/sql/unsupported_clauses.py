"""Clauses that kpipe knows and does not take, each with the reason and what to write instead."""

from __future__ import annotations

import re
from typing import NoReturn

from lark import Token, Tree

from kpipe.sql.ast import Node, wrong

__all__ = ["elsewhere", "refuse", "remote_transform"]

_FILES = "kpipe reads Kafka only", "write KAFKA 'host:port/topic'"
_REASONS: dict[str, tuple[str, str]] = {
    "LINK": (
        "kpipe keeps no connections beside the pipelines",
        "write KAFKA 'host:port/topic' with CONFIG and CREDENTIALS",
    ),
    **dict.fromkeys(("S3", "FS", "AZURE", "HDFS", "GCS", "MONGODB", "MYSQL", "ICEBERG"), _FILES),
    "KAFKACONNECT": (
        "kpipe runs no source connectors",
        "run the connector in Kafka Connect, and read its topic: KAFKA 'host:port/topic'",
    ),
    "RESOURCE POOL": ("there are no pools: Spark's own settings bound what a run may use", "leave it out"),
    "IGNORE": (
        "it would change values until they fit, without a word",
        "SKIP ALL ERRORS keeps what does not fit as dead letters",
    ),
    "ERRORS HANDLE": (
        "errors are kept by pipeline, and need no handle",
        "SELECT * FROM kpipe_errors WHERE pipeline_name = '...'",
    ),
    "MAX_ERRORS": ("it is no setting of a pipeline", """OPTIONS '{"errors": {"max_dead_letters": 100}}' stops it at so many"""),
    "INTO PROCEDURE": (
        "there are no stored procedures",
        "shape rows with SET, WHERE or a program (WITH TRANSFORM), and write INTO TABLE; for more tables, ALSO INTO TABLE",
    ),
    "FORMAT PARQUET": ("a message of Kafka is no Parquet file", "JSON, CSV, AVRO, PROTOBUF or RAW"),
    "CREATE INFERRED PIPELINE": ("a guess should be read before it loads anything", "INFER PIPELINE prints the statements"),
    "INFER TABLE": ("it is part of INFER PIPELINE", "INFER PIPELINE AS LOAD DATA ... prints the table, and the pipeline"),
    "PROFILE PIPELINE": (
        "kpipe has no query plans to show",
        "TEST PIPELINE runs a batch without writing; kpipe_batches has times and rates",
    ),
    "DROP FILE": ("kpipe reads Kafka only", "DROP PARTITION and DROP ORPHAN PARTITIONS forget partitions"),
    "DELETE ... WHERE": (
        "the proof counts every row that was loaded, and could not tell deleted rows from lost ones",
        "keep them out with WHERE in CREATE OR REPLACE PIPELINE, and load the table again with RESET PIPELINE; DELETE FROM"
        " without WHERE clears it",
    ),
    "OFFSET CURSOR": (
        "a position is an offset of each partition, and of no other kind",
        """SET OFFSETS EARLIEST, LATEST, TIMESTAMP '...' or '{"0": 120}'""",
    ),
    "BATCH_MATCHES_SNAPSHOT": ("a topic of Kafka has no snapshots", "MAX_OFFSETS_PER_BATCH_PARTITION bounds a batch"),
    "FIELDS": ("a format is changed as a whole", "CREATE OR REPLACE PIPELINE keeps where it reads"),
    "LINES": ("a format is changed as a whole", "CREATE OR REPLACE PIPELINE keeps where it reads"),
}


def refuse(node: Node | None, clause: str) -> NoReturn:
    """Complain that a clause is not taken."""
    reason, instead = _REASONS[clause]
    wrong(node, f"{clause} is not taken: {reason}", instead)


def remote_transform(tree: Tree[Token], scheme: str) -> NoReturn:
    """Complain about a program that lies elsewhere."""
    if scheme.lower() == "memsql":
        wrong(
            tree,
            "TRANSFORM from memsql:// is not taken: it is a program inside of SingleStore",
            "take members by paths: FORMAT JSON (column <- member::member)",
        )
    wrong(
        tree,
        f"TRANSFORM from {scheme}:// is not taken: kpipe runs no program that it has fetched by itself",
        "download it, and write its path",
    )


_CLIENT = "use a client of the database, such as duckdb, while no pipeline runs"
_VARIABLES = (
    "there are no engine variables: each pipeline has settings of its own, with the same defaults",
    "ALTER PIPELINE name SET BATCH_INTERVAL, MAX_OFFSETS_PER_BATCH_PARTITION, STOP_ON_ERROR ...",
)
_USERS = (
    "there are no users: whoever can read and write the home's folder can do everything",
    "leave it out; permissions are those of the folder, or of the destination's own database",
)
# What scripts for SingleStore hold beside the statements of pipelines.
_ELSEWHERE = (
    (r"DROP\s+DATABASE\b", "a home has one database, and its ledger is in it", "remove the folder of the home"),
    (r"DELIMITER\b|(?:CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?(?:PROCEDURE|TRIGGER|FUNCTION|AGGREGATE)\b|(?:CALL|ECHO)\b",
     *_REASONS["INTO PROCEDURE"]),
    (r"(?:CREATE|DROP|ALTER|SHOW)\s+(?:OR\s+REPLACE\s+)?LINKS?\b", *_REASONS["LINK"]),
    (r"(?:CREATE|DROP|ALTER|SHOW)\s+RESOURCE\s+POOLS?\b|SET\s+(?:SESSION\s+)?resource_pool\b", *_REASONS["RESOURCE POOL"]),
    (r"(?:GRANT|REVOKE)\b|(?:CREATE|DROP|ALTER)\s+(?:USER|ROLE|GROUP)\b|SHOW\s+GRANTS\b", *_USERS),
    (r"(?:SELECT|WITH|FROM)\b.*\bINTO\s+KAFKA\b", "a question writes nowhere",
     "a pipeline writes to a topic: INTO TABLE name IN kafka, with OPTIONS '{\"into\": {\"brokers\": ..., \"topic\": ...}}'"),
    (r"(?:SELECT|WITH|FROM)\b.*\bINTO\s+(?:OUTFILE|S3|FS|GCS|AZURE|HDFS|LINK)\b", "a question writes nowhere",
     "kpipe sql --json 'SELECT ...' > FILE"),
    (r"SET\s+(?:GLOBAL|SESSION|CLUSTER|@@|pipelines_|ingest_)|SHOW\s+(?:GLOBAL\s+|SESSION\s+)?VARIABLES\b", *_VARIABLES),
    (r"(?:FLUSH|OPTIMIZE|ANALYZE|KILL|SNAPSHOT|REBALANCE)\b", "it is about SingleStore's own nodes", "leave it out"),
    (r"SHOW\s+(?:FULL\s+)?(?:COLUMNS|FIELDS|INDEX\w*|KEYS)\b", "a table is shown by its name", "DESCRIBE name"),
    (r"LOAD\s+DATA\b", "records are loaded by pipelines",
     "CREATE PIPELINE name AS LOAD DATA KAFKA ..., then START PIPELINE name FOREGROUND"),
    (r"ALTER\s+TABLE\b", "a pipeline adds the columns that records bring by itself (schema: evolve)",
     f"DETACH PIPELINE name; for other changes {_CLIENT}"),
    (r"DROP\s+TABLE\b", "the ledger still counts the table's rows", f"DROP PIPELINE name, then {_CLIENT}"),
    (r"(?:INSERT|UPDATE|MERGE|REPLACE)\b", "rows come through pipelines, so that each can be proven", _CLIENT),
    (r".*\\G\s*$", "\\G is a command of MySQL's client", "end the statement with ;"),
)  # fmt: skip


def elsewhere(text: str) -> tuple[str, str] | None:
    """The reason why a statement that works in SingleStore does not here, and what to do; None: nothing is known of it."""
    for pattern, reason, instead in _ELSEWHERE:
        if re.match(pattern, text.lstrip(), re.IGNORECASE | re.DOTALL):
            return reason, instead
    return None
