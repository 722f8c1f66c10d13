"""Literals of the rows that kpipe inserts, without a server."""

from __future__ import annotations

import struct

import duckdb

from kpipe.schema.columns import Scalar
from resources.destinations.mysql.insert_literals import filled
from tests.cases import each_case

LARGEST = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


@each_case("value", [LARGEST, -LARGEST, 1e-45, 0.5, 3.4028232635611926e38])
def test_a_float_is_written_as_the_equal_double(value: float) -> None:
    sql = f"SELECT {filled('v', Scalar('FLOAT'))} FROM (SELECT CAST($1 AS FLOAT) AS v)"
    ((literal,),) = duckdb.execute(sql, [value]).fetchall()
    assert float(literal.strip("'")) == struct.unpack("<f", struct.pack("<f", value))[0]
