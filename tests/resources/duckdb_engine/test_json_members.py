"""Members of JSON documents: whatever the compiled code gives, document_functions.py gives too."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from kpipe.expressions.mysql.json import document_functions
from kpipe.expressions.mysql.json.documents import Invalid
from resources.duckdb_engine import in_memory, json_members
from resources.native import library
from tests.cases import each_case

if library() is None:
    pytest.skip("nothing is compiled here", allow_module_level=True)

_KEYED = ['["a"]', '["a","b"]', '["a","0"]', '["0"]', '[""]', '["é😀"]', '["a\\"b"]', "[]", '["a","1","b"]', '["999999999999"]']
_PATHS = ["$.a", "$.a.b", "$.a[0]", "$[0]", "$", '$.""', '$."é😀"', '$."a\\"b"', "$.a[1].b", "$[0][0]", "$.a[0][0].b", "$.a[9]"]
_HARD_PATHS = ["$.*", "$.a[last]", "$**.a", "$.a[0 to 1]", "$[*]"]
_NUMBERS = [
    "0", "-0", "1", "-1", "1.50", "1e5", "1E+5", "1e400", "-1e400", "1e-400", "-0.0", "0e0", "123456789012345678",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "12345678901234567890123456789", "0.1", "1e22", "1e99",
    "0.30000000000000004", "1" * 400, "1." + "9" * 50, "01", "1.", ".5", "+1", "-", "1e", "0x10", "NaN", "Infinity", "-Infinity",
    "2.5", "1.5e0", "-1.5", "4.35", "2.2250738585072011e-308", "179769313486231570000e288",
]  # fmt: skip
_TEXTS = [
    '""', '"x"', '"é"', '"😀"', r'"\u00e9"', r'"\ud83d\ude00"', r'"\uD83D"', r'"\ude00"', r'"\ud83dx"', r'"\u0000"', r'"\u0001"',
    r'"\u000a\n\t\r\b\f"', r'"\/\\\""', r'"\u002f\u0022\u005c"', r'"\x"', r'"\u12"', '"a\nb"', '"\x7f"', '"12.5abc"', '"1e400"',
    '"true"', "'x'", '"' + "l" * 300 + '"', r'"\\ud800"', '"\u2028"', '"{\\"a\\":1}"', '"[1]"', '"x', 'x"',
]  # fmt: skip
_NAMES = ['"a"', '"b"', '"0"', '""', '"é😀"', '"a\\"b"', r'"\u0061"', '"A"', '"1"', "a", '"a' + "n" * 70 + '"', r'"\ud800"']
_WHOLE = [
    "", " ", "\ufeff{}", '\ufeff{"a":1}', "{", "}", "[1,]", '{"a":1,}', '{"a" 1}', '{"a":}', "{,}", "[,]", "[1 2]", "nul",
    "nullx", "{} {}", '{"a":1}x', '{"a":1}\0', "\0", "/**/{}", '{"a":1,"a":2}', '{"a":{"b":1},"a":{"c":2}}',
    '{"a":1,"\\u0061":2}', '{"a":{"x":1,"x":2}}',
    '{"a":[{"x":1,"x":2}]}', " \t\r\n{ \"a\" :\n1 } ", '\v{"a":1}', "\xa0{}", '{"a":"\u00a0"}',
    '{"a":' + "[" * 99 + "]" * 99 + "}", '{"a":' + "[" * 100 + "]" * 100 + "}", "[" * 100 + "]" * 100, "[" * 101 + "]" * 101,
    "[" * 5000, '{"a":{' + ",".join(f'"n{n}":{n}' for n in range(100)) + "}}", '"', '""', '"x"', '"a" ', ' "a"', "'a'", "true",
]  # fmt: skip


def _documents(chance: random.Random, count: int) -> Iterator[str | None]:
    def space() -> str:
        return "".join(chance.choice(" \t\r\n") for _ in range(chance.choice((0, 0, 0, 1, 3))))

    def value(depth: int) -> str:
        kind = chance.random()
        if depth > 3 or kind < 0.5:
            return space() + chance.choice([*_NUMBERS, *_TEXTS, "true", "false", "null", "{}", "[]", "True"]) + space()
        items = [value(depth + 1) for _ in range(chance.randrange(4))]
        if kind < 0.7:
            return f"{space()}[{','.join(items)}]{space()}"
        return f"{space()}{{{','.join(f'{space()}{chance.choice(_NAMES)}{space()}:{item}' for item in items)}}}{space()}"

    def object_with(inner: str) -> str:
        return '{"b":1,"a":' + inner + ',"z":[1,{"y":null}]}'

    yield from (None, *_WHOLE, *_NUMBERS, *_TEXTS)
    yield from map(object_with, (*_NUMBERS, *_TEXTS))
    yield from (object_with(f'{{"b": {inner}}}') for inner in (*_NUMBERS, *_TEXTS))
    for _ in range(count):
        made = value(0)
        yield made
        yield object_with(made)
        if chance.random() < 0.3:  # cut, or with a sign too much
            at = chance.randrange(len(made) + 1)
            yield made[:at] + chance.choice(["", ",", '"', "\\", "}", "]", "\0", "é"]) + made[at + chance.randrange(2) :]


def _exact(name: str, args: list[str | None]) -> tuple[str, object]:
    try:
        found = document_functions.call(name, args)
    except Invalid as error:
        return "error", str(error)
    return "value", found if found is None or name != "double" else repr(float(found))


def _compare(name: str, paths: list[str], documents: list[str | None]) -> None:
    kind = {"double": "DOUBLE", "bigint": "BIGINT"}.get(name, "VARCHAR")
    function = "kpipe_json_document" if name in ("get", "extract") else "kpipe_json"
    for path in paths:
        args = [[text] if name == "unquote" else [text, path] for text in documents]
        wanted = [_exact(name, items) for items in args]
        good = [at for at, (outcome, _) in enumerate(wanted) if outcome == "value"]
        table = pa.table({"j": pa.array([documents[at] for at in good], pa.string())})
        quoted = "" if name == "unquote" else ", '" + path.replace("'", "''") + "'"
        sql = f"CAST({function}('{name}', [j{quoted}]) AS {kind})"
        found = in_memory.query(f"SELECT {sql} AS v FROM block", table).column("v").to_pylist()
        found = [repr(item) if isinstance(item, float) else str(item) if isinstance(item, int) else item for item in found]
        for at, item in zip(good, found, strict=True):
            assert item == wanted[at][1], (name, path, documents[at])
        failing = [(documents[at], str(reason)) for at, (outcome, reason) in enumerate(wanted) if outcome == "error"]
        for document, reason in failing[:: max(len(failing) // 5, 1)]:  # each takes a query of its own
            with pytest.raises(duckdb.InvalidInputException) as error:
                in_memory.ask(f"SELECT {sql.replace('[j', '[?::VARCHAR')}", [document])
            assert re.split("[\n\0]", reason)[0] in str(error.value), (name, path, document)


@each_case("name", ["get", "string", "double", "bigint"])
def test_members_by_keys_are_those_of_exact_code(name: str) -> None:
    _compare(name, _KEYED, list(_documents(random.Random(f"{name}1"), 300)))


@each_case("name", ["extract", "extract_text", "value"])
def test_members_by_paths_are_those_of_exact_code(name: str) -> None:
    _compare(name, [*_PATHS, *_HARD_PATHS], list(_documents(random.Random(f"{name}2"), 200)))


def test_texts_without_their_quotes_are_those_of_exact_code() -> None:
    _compare("unquote", [""], list(_documents(random.Random("3"), 500)))


@pytest.mark.parametrize("name", ["get", "string", "double", "bigint", "extract", "extract_text", "value"])
def test_plain_documents_need_no_exact_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_members, "call", None)
    records = ({"id": at, "a": {"b": at / 4, "é": "ü\n"}, "n": None} for at in range(5000))
    documents = [json.dumps(record, ensure_ascii=at % 2 == 0) for at, record in enumerate(records)]
    path = '["a","b"]' if name in ("get", "string", "double", "bigint") else "$.a.b"
    if name == "bigint":
        path = '["id"]'
    table = pa.table({"j": pa.array([*documents, None])})
    found = in_memory.query(f"SELECT kpipe_json('{name}', [j, '{path}']) AS v FROM block", table).column("v").to_pylist()
    assert found == [document_functions.call(name, [text, path]) if name != "double" else str(at / 4)
                     for at, text in enumerate(documents)] + [None]  # fmt: skip


def test_paths_that_differ_between_records_are_followed() -> None:
    table = pa.table({"j": ['{"a":1,"b":2}'] * 4, "p": ['["a"]', '["b"]', None, '["c"]']})
    found = in_memory.query("SELECT kpipe_json('string', [j, p]) AS v FROM block", table).column("v").to_pylist()
    assert found == ["1", "2", '{"a":1,"b":2}', None]
    table = pa.table({"j": ['{"a":1,"b":2}'] * 2, "p": ["string", "bigint"]})
    assert in_memory.query("SELECT kpipe_json(p, [j, '[\"b\"]']) AS v FROM block", table).column("v").to_pylist() == ["2", "2"]


def test_without_the_compiled_part_the_results_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_members, "library", lambda: None)
    _compare("string", _KEYED[:3], list(_documents(random.Random("4"), 50)))
