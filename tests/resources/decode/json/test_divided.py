"""Records that give several rows: JSON values one after another, and exploded lists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Decoded, Payloads
from resources.decode.factory import decoder, sampled
from resources.decode.growth_guard import Bound
from resources.decode.json import divided
from resources.decode.json.divided import Division
from resources.decode.json.rows import Reject
from tests.cases import each_case

COLUMNS = Columns.of({"id": "BIGINT", "lines": "STRUCT(sku VARCHAR, n BIGINT)"})


def _decoded(payloads: list[bytes], columns: Columns = COLUMNS, bound: Bound | None = None, **options: Any) -> Decoded:
    return decoder(Format(type="json", **options), columns, bound=bound).decode(Payloads.of(payloads))


def _objects(payload: str, **options: Any) -> list[Any]:
    return [json.loads(text) for text in Division(Format(type="json", **options)).objects(payload.encode())]


def _rows(payload: str, **options: Any) -> list[Any] | str:
    try:
        return _objects(payload, **options)
    except Reject as error:
        return str(error)


LIST, LINES, NESTED = {"explode": "%"}, {"explode": "lines"}, {"explode": "orders::lines"}
OUTER = {**NESTED, "explode_outer": True}
MANY = {"documents": "many"}
SHAPES = [
    (LIST, '[{"a":1}, {"a":2}]', [{"a": 1}, {"a": 2}]),
    (LIST, "[]", []),
    (LIST, '{"a":1}', "not a list but an object"),
    (LIST, "5", "not a list but 5"),
    (LIST, '[{"a":1},]', "not JSON: Expecting value at character 9"),
    (LIST, '[{"a":1}', "not JSON: Expecting ',' delimiter at character 8"),
    (LIST, '[{"a":1}] x', "not JSON: Extra data at character 10"),
    (MANY, '{"a":1}{"a":2}\n\n{"a":3}\n', [{"a": 1}, {"a": 2}, {"a": 3}]),
    (MANY, "", []),
    (MANY, '{"a":1} x', "not JSON: Expecting value at character 8"),
    ({**MANY, **LINES}, '{"id":1,"lines":[1,2]}{"id":2,"lines":[3]}',
     [{"id": 1, "lines": 1}, {"id": 1, "lines": 2}, {"id": 2, "lines": 3}]),
    (LINES, '{"id":1,"lines":["a","b"],"z":{}}', [{"id": 1, "lines": "a", "z": {}}, {"id": 1, "lines": "b", "z": {}}]),
    (LINES, '[{"id":1,"lines":[1]},{"id":2,"lines":[2]}]', [{"id": 1, "lines": 1}, {"id": 2, "lines": 2}]),
    (LINES, '{"l\\u0069nes":[1]}', [{"lines": 1}]),
    (LINES, '{"lines":[[1,2],[3]]}', [{"lines": [1, 2]}, {"lines": [3]}]),
    (LINES, '{"lines":[1],"lines":[2]}', "duplicate member lines"),
    (LINES, '{"lines":{}}', "lines: an object is not a list"),
    (LINES, "null", "not a JSON object but null"),
    (LINES, '{"lines":[],"a":1,"a":2}', "duplicate member a"),
    (LINES, '{"lines":[],"a":NaN}', "NaN and Infinity are not valid JSON"),
    (NESTED, '{"orders":[{"c":1,"lines":[1,2]},{"c":2,"lines":[]},{"lines":[3]}]}',
     [{"orders": {"c": 1, "lines": 1}}, {"orders": {"c": 1, "lines": 2}}, {"orders": {"lines": 3}}]),
    (NESTED, '{"orders":{"lines":[1]}}', [{"orders": {"lines": 1}}]),
    (NESTED, '{"orders":[null]}', []),
    (NESTED, '{"orders":[5]}', "orders: 5 is not an object"),
    (NESTED, '{"orders":[{"lines":"x"}]}', 'orders::lines: "x" is not a list'),
    (NESTED, '{"orders" [', "not JSON: Expecting ':' delimiter at character 10"),
    (NESTED, '{"id":1,}', "not JSON: Expecting property name enclosed in double quotes at character 8"),
    (OUTER, '{"id":1 }', [{"id": 1, "orders": None}]),
    (OUTER, '{}', [{"orders": None}]),
    (OUTER, '{"orders":{}}', [{"orders": {"lines": None}}]),
    (OUTER, '{"id":1,"orders":[]}', [{"id": 1, "orders": None}]),
    (OUTER, '{"id":1,"orders":[{"lines":null},null]}', [{"id": 1, "orders": {"lines": None}}, {"id": 1, "orders": None}]),
    (OUTER, '{"orders":5}', "orders: 5 is not an object"),
    ({**LIST, "ordinality": "n"}, '[{"a":1},{ },5]', [{"n": 1, "a": 1}, {"n": 2}, 5]),
    ({**NESTED, "ordinality": 'a "b"'}, '{"orders":[{"lines":[1,2]},{"lines":[3]}]}',
     [{"orders": {"lines": 1}, 'a "b"': 1}, {"orders": {"lines": 2}, 'a "b"': 2}, {"orders": {"lines": 3}, 'a "b"': 3}]),
]  # fmt: skip


@each_case(("options", "payload", "want"), SHAPES, ids=[f"{at}" for at in range(len(SHAPES))])
def test_a_record_is_divided_into_these_objects(options: dict[str, Any], payload: str, want: list[Any] | str) -> None:
    assert _rows(payload, **options) == want


def test_rows_have_their_record_and_one_bad_row_rejects_it_all() -> None:
    good, bad = b'{"id":1,"lines":[{"sku":"a","n":1},{"sku":"b","n":2}]}', b'{"id":2,"lines":[{"n":1},{"n":"x","y":1}]}'
    done = _decoded([good, bad, b'{"id":3,"lines":[]}', b"{", b'{"id":4,"lines":[{"new":5}]}'], **LINES)
    assert done.table.to_pylist() == [
        {"id": 1, "lines": {"sku": "a", "n": 1}},
        {"id": 1, "lines": {"sku": "b", "n": 2}},
        {"id": 4, "lines": {"sku": None, "n": None}},
    ]
    assert list(done.kept or ()) == [0, 0, 4]
    assert done.rejects[0] == (1, 'row 2: lines.n: "x" is not a BIGINT')
    assert [at for at, _ in done.rejects] == [1, 3]
    assert str(done.new_columns.get("lines")) == "STRUCT(new BIGINT)", "a rejected record brings no columns"


def test_other_members_are_mapped_beside_the_items() -> None:
    mapping = {"id": "id", "sku": "orders::lines::sku", "day": {"path": "orders::day", "default": None}}
    columns = Columns.of({"id": "BIGINT", "sku": "VARCHAR", "day": "DATE"})
    record = {"id": 7, "ignored": "x" * 99, "orders": [{"day": "2026-01-02", "lines": [{"sku": "a"}, {"sku": "b"}]},
                                                       {"lines": [{"sku": "c"}]}]}  # fmt: skip
    done = _decoded([json.dumps(record).encode()] * 20, columns, mapping=mapping, **NESTED)
    assert [(row["id"], row["sku"], str(row["day"])) for row in done.table.slice(57).to_pylist()] == [
        (7, "a", "2026-01-02"), (7, "b", "2026-01-02"), (7, "c", "None")]  # fmt: skip


def test_a_record_must_be_strict_json_also_where_the_mapping_reads_nothing() -> None:
    mapping = {"sku": "lines::sku"}
    texts = [b'{"a":1,"a":2,"lines":[{"sku":"x"},{"sku":"y"}]}', b'{"a":"\\ud800","lines":[{"sku":"x"}]}']
    done = _decoded(texts, Columns.of({"sku": "VARCHAR"}), mapping=mapping, **LINES)
    assert [at for at, _ in done.rejects] == [0, 1]


def test_a_record_may_not_have_a_member_of_the_name_of_the_number() -> None:
    done = _decoded([b'[{"id":1},{"id":2}]', b'[{"id":3},{"line":4}]'], Columns.of({"line": "BIGINT"}), ordinality="line", **LIST)
    assert done.table.column("line").to_pylist() == [1, 2]
    assert done.rejects == [(1, "row 2: duplicate member line")]


def test_columns_are_inferred_from_items() -> None:
    payloads = [b'{"id":1,"lines":[{"n":1},{"sku":"x"}]}', b'{"id":2}', b"{"]
    assert dict(sampled(Format(**LINES), payloads)) == dict(
        Columns.of({"id": "BIGINT", "lines": "STRUCT(n BIGINT, sku VARCHAR)"})
    )
    mapped = Format(mapping={"n": {"path": "lines::n", "default": None}}, **LINES)
    assert dict(sampled(mapped, payloads)) == dict(Columns.of({"n": "BIGINT"}))
    assert dict(sampled(Format(**LIST), [b'[{"a":1},{"b":true}]'])) == dict(Columns.of({"a": "BIGINT", "b": "BOOLEAN"}))


def test_limits_on_new_columns_count_for_a_record_not_for_an_item() -> None:
    wide = json.dumps([{f"c{at}_{n}": 1 for n in range(300)} for at in range(4)]).encode()
    narrow = json.dumps([{"c": 1}, {"d": 1}]).encode()
    done = _decoded([narrow, wide, narrow], Columns(), Bound(), **LIST)
    assert list(done.kept or ()) == [0, 0, 2, 2]
    assert "found 1,200" in done.rejects[0][1]
    assert sorted(done.new_columns.names()) == ["c", "d"]
    assert sorted(sampled(Format(**LIST), [narrow, wide]).names()) == ["c", "d"]


def test_a_record_whose_members_repeat_too_often_is_a_reject(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divided, "_MOST_TEXT", 5_000)
    record = json.dumps({"big": "x" * 1_000, "lines": list(range(10))})
    assert "explode: 10 items or more have over 5,000 characters" in str(_rows(record, **LINES))
    assert "format.mapping" in str(_rows(record, **LINES))
    assert len(_objects(record, mapping={"n": "lines"}, **LINES)) == 10
    assert "explode:" in str(_rows(json.dumps({"orders": [{"big": "x" * 900, "lines": [1, 2]}] * 4}), **NESTED))
    assert "explode:" in str(_rows(json.dumps({"big": "x" * 900, "lines": [1, 2]}) * 4, **MANY, **LINES))


def test_blocks_are_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    payloads = [json.dumps([{"id": at}, {"id": -at}]).encode() for at in range(50)]
    whole = _decoded(payloads, Columns.of({"id": "BIGINT"}), **LIST)
    monkeypatch.setattr(divided, "_BLOCK_TEXT", 100)
    assert _decoded(payloads, Columns.of({"id": "BIGINT"}), **LIST).table.to_pylist() == whole.table.to_pylist()
    assert whole.rows == 100


def test_a_prefix_of_a_registry_is_removed_first() -> None:
    done = _decoded([b"\0\0\0\0\7" + b'[{"id":1},{"id":2}]', b"[]"], registry="http://r:1", **LIST)
    assert list(done.kept or ()) == [0, 0]
    assert done.rejects[0][0] == 1


JSONS = st.recursive(
    st.none() | st.integers(-5, 5) | st.sampled_from(["", "a\n", "é"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["o", "l", "c"]), inner, max_size=3),
    max_leaves=12,
)


def _walk(value: Any, steps: tuple[str, ...], outer: bool, top: bool = True) -> Iterator[Any]:
    """The rule, on values instead of text."""
    if top and not isinstance(value, list | dict):
        raise TypeError
    if isinstance(value, list):
        for item in value:
            if steps:
                found = list(_walk(item, steps, outer, top)) if top or item is not None else []
                yield from found or ([None] if outer else [])
            else:
                yield item
        return
    if value is None:
        return
    if not steps or not isinstance(value, dict):
        raise TypeError
    found = list(_walk(value.get(steps[0]), steps[1:], outer, False))
    yield from ({**value, steps[0]: item} for item in found or ([None] if outer else []))


@given(JSONS, st.sampled_from([("o",), ("o", "l"), ("l", "o", "c")]), st.booleans())
def test_text_is_divided_as_values_are(value: Any, steps: tuple[str, ...], outer: bool) -> None:
    have = _rows(json.dumps(value, indent=1), explode="::".join(steps), explode_outer=outer)
    try:
        want: Any = list(_walk(value, steps, outer))
    except TypeError:
        want = TypeError
    assert isinstance(have, str) if want is TypeError else have == want


def test_a_block_decodes_as_its_payloads_do_one_by_one() -> None:
    texts = [b'[{"id":1},{"id":2}]', b"[]", b'[{"id":"x"}]', b'[{"id":3,"new":{"a":1}}]', b"[5]", b'[{"id":4},{"ID":5}]']
    block = _decoded(texts, **LIST)
    alone = [_decoded([text], **LIST) for text in texts]
    assert block.table.to_pylist() == pa.concat_tables([one.table for one in alone]).to_pylist()
    assert [at for at, _ in block.rejects] == [at for at, one in enumerate(alone) if one.rejects]
