"""Compute expressions of both languages on one record."""

from __future__ import annotations

from typing import Any

import duckdb

from kpipe.expressions import languages
from kpipe.expressions.duckdb_dialect import to_duckdb
from kpipe.expressions.mysql.columns import of_columns
from kpipe.schema.columns import Columns

DOC = '{"a": {"b c": [10, "x\\"y", null, 2.5]}, "n": 12, "s": "text", "z": null, "big": 9007199254740993, "k\\"q": 1}'
RECORD = f"""
    SELECT 5 AS a, NULL::INTEGER AS n, 'abc' AS t, '2026-11-20T08:05:07.25' AS "@iso", '20/1/2026' AS "@day", 'x' AS "odd name",
        1700000000 AS s, 1700000000123 AS ms, '1700000000' AS "@text", TIMESTAMP '2026-01-05 03:04:05.678901' AS at,
        DATE '2026-01-05' AS d, '{DOC}' AS doc, 'www.example.com' AS host,
        120::BIGINT AS _kafka_offset, 3 AS _kafka_partition, TIMESTAMPTZ '2026-11-20 00:00:00.123+00' AS _kafka_timestamp,
        'orders' AS _kafka_topic, 'key'::BLOB AS _kafka_key,
        [{{'name': 'trace', 'value': 'one'::BLOB}}, {{'name': 'trace', 'value': 'two'::BLOB}},
         {{'name': 'bad', 'value': '\\xFF'::BLOB}}] AS _kafka_headers
"""
TYPES = of_columns(
    Columns.of(
        {"a": "INTEGER", "n": "INTEGER", "t": "VARCHAR", "@iso": "VARCHAR", "@day": "VARCHAR", "odd name": "VARCHAR", "s": "INTEGER",  # noqa: E501
         "ms": "BIGINT", "@text": "VARCHAR", "at": "TIMESTAMP", "d": "DATE", "doc": "VARCHAR", "host": "VARCHAR"}
    )
)  # fmt: skip


def value(engine: duckdb.DuckDBPyConnection, expression: str) -> Any:
    """Of an expression of MySQL's; one that begins with `duckdb:` is DuckDB's."""
    body = expression.removeprefix("duckdb:")
    sql = to_duckdb(body) if body != expression else languages.to_duckdb(f"mysql: {expression}", TYPES)
    found = engine.execute(f"SELECT {sql} FROM record").fetchone()
    assert found is not None
    return found[0]
