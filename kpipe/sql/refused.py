"""Clauses that kpipe knows and does not take, each with the reason and what to write instead."""

from __future__ import annotations

import re
from typing import NoReturn

from lark import Token, Tree

from kpipe.sql.trees import Node, wrong

__all__ = ["elsewhere", "refuse", "remote_transform"]

_FILES = "kpipe reads Kafka only", "write KAFKA 'host:port/topic'"
_REASONS: dict[str, tuple[str, str]] = {
    "LINK": (
        "kpipe keeps no connections beside the pipelines",
        "write KAFKA 'host:port/topic' with CONFIG and CREDENTIALS",
    ),
    **dict.fromkeys(("S3", "FS", "AZURE", "HDFS", "GCS", "MONGODB", "MYSQL", "ICEBERG"), _FILES),
    "RESOURCE POOL": ("there are no pools: Spark's own settings bound what a run may use", "leave it out"),
    "IGNORE": (
        "it would change values until they fit, without a word",
        "SKIP ALL ERRORS keeps what does not fit as dead letters",
    ),
    "INTO PROCEDURE": (
        "there are no stored procedures",
        "shape rows with SET, WHERE or a program (WITH TRANSFORM), and write INTO TABLE; for more tables, ALSO INTO TABLE",
    ),
    "FORMAT PARQUET": ("a message of Kafka is no Parquet file", "JSON, CSV, AVRO, PROTOBUF or RAW"),
    "CREATE INFERRED PIPELINE": ("a guess should be read before it loads anything", "INFER PIPELINE prints the statements"),
    "PROFILE PIPELINE": (
        "kpipe has no query plans to show",
        "TEST PIPELINE runs a batch without writing; kpipe_batches has times and rates",
    ),
    "DROP FILE": ("kpipe reads Kafka only", "DROP PARTITION and DROP ORPHAN PARTITIONS forget partitions"),
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
    wrong(
        tree,
        f"TRANSFORM from {scheme}:// is not taken: kpipe runs no program that it has fetched by itself",
        "download it, and write its path",
    )


_TABLES = (
    "tables are DuckDB's",
    "write CREATE TABLE name (column TYPE, ..., PRIMARY KEY (...)), or leave it out: a pipeline makes its table",
)
_ONE_DATABASE = "a home has one database", "leave it out; KPIPE_HOME names another home"
# What scripts for SingleStore hold beside the statements of pipelines.
_ELSEWHERE = (
    (r"USE\b", *_ONE_DATABASE),
    (r"(?:CREATE|DROP)\s+DATABASE\b", *_ONE_DATABASE),
    (r"DELIMITER\b|(?:CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?(?:PROCEDURE|TRIGGER)\b|CALL\b", *_REASONS["INTO PROCEDURE"]),
    (r"(?:CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?LINK\b", *_REASONS["LINK"]),
    (r"CREATE\s+(?:(?:ROWSTORE|COLUMNSTORE|REFERENCE|GLOBAL|TEMPORARY)\s+)+TABLE\b", *_TABLES),
    (r"CREATE\s+TABLE\b.*(?:\b(?:SHARD|SORT|UNIQUE)\s+KEY\b|,\s*KEY\b|\bAUTO_INCREMENT\b|\bCHARACTER\s+SET\b|\bENGINE\s*=)",
     *_TABLES),
    (r".*\\G\s*$", "\\G is a command of MySQL's client", "end the statement with ;"),
)  # fmt: skip


def elsewhere(text: str) -> tuple[str, str] | None:
    """The reason why a statement that works in SingleStore does not here, and what to do; None: nothing is known of it."""
    for pattern, reason, instead in _ELSEWHERE:
        if re.match(pattern, text.lstrip(), re.IGNORECASE | re.DOTALL):
            return reason, instead
    return None
