"""Clauses that kpipe knows and does not take, each with the reason and what to write instead."""

from __future__ import annotations

from typing import NoReturn

from lark import Token, Tree

from kpipe.sql.trees import Node, wrong

__all__ = ["refuse", "remote_transform"]

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
        "shape rows with SET, WHERE or a program (WITH TRANSFORM), and write INTO TABLE",
    ),
    "FORMAT PARQUET": ("a message of Kafka is no Parquet file", "JSON, CSV, AVRO, PROTOBUF or RAW"),
    "CREATE INFERRED PIPELINE": ("a guess should be read before it loads anything", "INFER PIPELINE prints the statements"),
    "PROFILE PIPELINE": (
        "kpipe has no query plans to show",
        "TEST PIPELINE runs a batch without writing; kpipe_batches has times and rates",
    ),
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
