from __future__ import annotations

from typing import Any

import pyarrow as pa

from kpipe.schema.columns import JSON, VARCHAR, parse_type
from resources.spark.task.nul_check import may_hold_nul, rows_with_nul
from tests.cases import each_case


@each_case(
    ("kind", "values", "found"),
    [
        ("VARCHAR", ["a", None, "\x00", "a\x00b", ""], [2, 3]),
        ("JSON", ['"\\u0000"', '"\\\\u0000"', '"\\\\\\u0000"', None, '{"\\u0000":1}', '"\\u00001"', "1"], [0, 2, 4, 5]),
        ("VARCHAR[]", [["a", "\x00"], [], None, ["a"], ["\x00", "\x00"]], [0, 4]),
        ("STRUCT(a VARCHAR, b BIGINT)", [{"a": "\x00", "b": 1}, None, {"a": None, "b": None}, {"a": "x\x00", "b": 0}], [0, 3]),
        ("STRUCT(a VARCHAR[])[]", [[{"a": ["x"]}, {"a": ["x", "\x00"]}], [None], [{"a": None}]], [0]),
        ("BLOB", [b"\x00"], []),
    ],
)
def test_rows_are_found_however_deep(kind: str, values: list[Any], found: list[int]) -> None:
    arrow = {
        "VARCHAR": pa.string(), "JSON": pa.string(), "VARCHAR[]": pa.list_(pa.string()), "BLOB": pa.binary(),
        "STRUCT(a VARCHAR, b BIGINT)": pa.struct([("a", pa.string()), ("b", pa.int64())]),
        "STRUCT(a VARCHAR[])[]": pa.list_(pa.struct([("a", pa.list_(pa.string()))])),
    }[kind]  # fmt: skip
    array = pa.array([values[0], *values], arrow)[1:]  # with an offset, as a slice has it
    texts = {VARCHAR, JSON}
    assert rows_with_nul(array, parse_type(kind), texts).tolist() == found
    chunks = pa.chunked_array([array, array])
    assert rows_with_nul(chunks, parse_type(kind), texts).tolist() == found + [n + len(values) for n in found]
    assert may_hold_nul(parse_type(kind), texts) == (kind != "BLOB")
    assert rows_with_nul(array, parse_type(kind), {VARCHAR}).tolist() == ([] if kind == "JSON" else found)
