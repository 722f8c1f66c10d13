"""Texts of JSON columns are strict JSON, whichever way they come: RFC 8259 without duplicate members and deep nesting."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kpipe.schema.columns import JSON, Columns, parse_type
from resources.decode.cast_text import Texts
from resources.duckdb_engine.arrow_types import staged_type
from resources.duckdb_engine.expressions import Assigned, Evaluator
from resources.duckdb_engine.strict_json import is_json
from resources.native import library
from tests.cases import each_case

VALID = [
    "{}", "[1] ", " null ", '"x"', "-0", "1e400", "1" * 5000, '{"":1}', '{"a":{"a":1},"b":{"a":2}}', '"\\u0000"',
    '"\\ud83d\\ude00"',
    '"NaN"', '{"é":"😀"}', "[" * 199 + "]" * 199, "[" * 120 + "]" * 120, "[" + ",".join(["{}"] * 400) + "]",
    "{" + ",".join(f'"n{at}":{at}' for at in range(200)) + "}",
]  # fmt: skip
INVALID = [
    "", "NaN", "[1,]", '{"a":1,}', "-Infinity", "[inf]", '{"a":NaN}', '{"a":1,"a":2}', '{"a":1,"\\u0061":2}',
    '[{"b":{"a":1,"a":1}}]',
    "01", "+1", ".5", "1.", "'a'", '"a\tb"', '"\\ud800"', "nul", "1 2", "\ufeff1", "[" * 200 + "]" * 200, "[" * 5000, "/* c */ 1",
    "{" + ",".join(f'"n{at % 150}":{at}' for at in range(200)) + "}",
]  # fmt: skip


@pytest.fixture(params=["compiled", "python"])
def _native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "python":
        monkeypatch.setitem(os.environ, "KPIPE_NATIVE", "0")
    library.cache_clear()
    yield
    library.cache_clear()


@pytest.mark.usefixtures("_native")
def test_strict_json() -> None:
    texts = [None, *VALID, None, *INVALID]
    expected = [None, *[True] * len(VALID), None, *[False] * len(INVALID)]
    for array in (pa.array(texts), pa.chunked_array([texts[:5], texts[5:]]), pa.array(["[", *texts]).slice(1)):
        assert dict(zip(texts, is_json(array).to_pylist(), strict=True)) == dict(zip(texts, expected, strict=True))
    assert is_json(pa.array([], pa.string())).to_pylist() == []
    assert is_json(pa.array(["", ""])).to_pylist() == [False, False]


def test_a_column_of_json_takes_strict_json_only() -> None:
    array = pa.array([*VALID, *INVALID])
    table, reasons, _ = Texts(Columns((("v", JSON),))).read([array.cast(pa.binary())])  # CSV, keys
    assert table.column("v").to_pylist() == [*VALID, *[None] * len(INVALID)]
    assert sorted(reasons) == list(range(len(VALID), len(array)))


@each_case(
    "text, valid",
    [("v", VALID), ("CASE WHEN json_valid(v) THEN CAST(v AS JSON) END", [item for item in VALID if len(item) < 5000])],
)
def test_an_expression_gives_strict_json_only(text: str, valid: list[str]) -> None:
    block = pa.table({"v": [*valid, *INVALID]})
    found, reasons = Evaluator(Columns.of({"v": "VARCHAR"}), "", [Assigned("o", text, JSON)]).values(block)
    assert [item for item in found.column("o").to_pylist() if item is not None] == valid
    assert min(reasons) >= len(valid)
    assert len(found) + len(reasons) == len(block)


@each_case(
    "kind, text",
    [
        ("STRUCT(a JSON, b DOUBLE)", "{'a': CAST(v AS JSON), 'b': CAST('NaN' AS DOUBLE)}"),
        ("STRUCT(a JSON, b DOUBLE)", "{'a': v, 'b': CAST('NaN' AS DOUBLE)}"),
        ("JSON[]", "[CAST(v AS JSON), NULL]"),
        ("MAP(VARCHAR, JSON)", "MAP {'a': CAST(v AS JSON)}"),
        ("VARCHAR", "[CAST(v AS JSON)]"),
    ],
)
def test_json_inside_of_a_value_is_strict(kind: str, text: str) -> None:
    block = pa.table({"v": ["[1]", "[1,]", None, '{"a":NaN}']})
    found, reasons = Evaluator(Columns.of({"v": "VARCHAR"}), "", [Assigned("o", text, parse_type(kind))]).values(block)
    assert (len(found), set(reasons)) == (2, {1, 3})


@each_case(
    "text, kinds, values, expected",
    [
        ("[p]", {"p": "JSON"}, ['{"a":1.10000000000000000001}'], '[{"a":1.10000000000000000001}]'),
        ("{'a': [p], 'b''\"{}': 1}", {"p": "JSON"}, ["1.0"], '{"a":[1.0],"b\'\\"{}":1}'),
        ("MAP {'k\"': p}", {"p": "JSON"}, ["1e400"], '{"k\\"":1e400}'),
        ("[NULL, p, NULL]", {"p": "JSON"}, [None], "[null,null,null]"),
        ("{'a': p}", {"p": "BLOB"}, [b"\x00\xff"], '{"a":"AP8="}'),
        ("p", {"p": "BLOB"}, [b"\x00\xff"], '"AP8="'),
        ("{'a': p}", {"p": "DOUBLE"}, [0.5], '{"a":0.5}'),
        ("CASE WHEN p THEN {'a': 1} END", {"p": "BOOLEAN"}, [False], None),
    ],
)
def test_a_value_that_becomes_json_keeps_digits(
    text: str, kinds: dict[str, str], values: list[object], expected: str | None
) -> None:
    columns = Columns.of(kinds)
    block = pa.table([pa.array(values, staged_type(kind)) for _, kind in columns], names=list(columns.names()))
    found, reasons = Evaluator(columns, "", [Assigned("o", text, JSON)]).values(block)
    assert (found.column("o").to_pylist(), reasons) == ([expected], {})


@each_case("text", ["p", "[p]", "{'a': p}"])
def test_a_number_that_json_lacks_is_refused(text: str) -> None:
    block = pa.table({"p": [float("nan"), 1.0, float("inf")]})
    found, reasons = Evaluator(Columns.of({"p": "DOUBLE"}), "", [Assigned("o", text, JSON)]).values(block)
    assert (len(found), set(reasons)) == (1, {0, 2})
