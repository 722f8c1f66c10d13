"""Hadoop's jars: what `make yarn` has fetched, and what Spark brings of the same version."""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark

FETCHED = Path(sys.prefix) / "share" / "yarn"
FOLDER = "hadoop"
"""Where hosts see them, in the folder of all hosts. Nothing else of Spark's is in it."""
_SPARKS = (
    "hadoop-client-api-*", "hadoop-client-runtime-*", "slf4j-api-*", "jcl-over-slf4j-*", "log4j-api-*", "log4j-core-*",
    "log4j-slf4j2-impl-*", "log4j-1.2-api-*", "snappy-java-*",
)  # fmt: skip


def jars() -> list[Path]:
    """The class path of YARN's servers; empty without `make yarn`."""
    spark = Path(pyspark.__file__).parent / "jars"
    fetched = sorted(FETCHED.glob("*.jar"))
    return [*fetched, *(jar for name in _SPARKS for jar in sorted(spark.glob(name)))] if fetched else []
