"""Records with new columns beyond the bounds, in every format that brings columns: rejects, and the others are rows."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import fastavro
import pytest

from kpipe.column_growth import MOST_IN_BATCH, MOST_IN_RECORD, Closed
from kpipe.definition.formats import Format
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.target import declarations
from kpipe.schema.columns import BIGINT, JSON, Columns, ListOf, Struct, Type
from kpipe.schema.inference import infer
from kpipe.schema.nesting import DEEPEST, MOST_LISTS, shallow
from resources.decode.block import Decoded, Payloads
from resources.decode.factory import decoder, sampled
from resources.decode.growth_guard import Bound, bound_of
from resources.decode.json.blocks import affordable, names_of, too_deep
from tests.cases import each_case

ID = Columns.of({"id": "BIGINT"})


def payload(number: int, **more: Any) -> bytes:
    return json.dumps({"id": number, **more}).encode()


def wide(count: int) -> dict[str, int]:
    return {f"m{at}": at for at in range(count)}


@each_case("ordinary", [1, 200])
def test_a_json_record_with_too_many_new_members(ordinary: int) -> None:
    block = [*(payload(at) for at in range(ordinary)), payload(-1, **wide(MOST_IN_RECORD + 1)), payload(-2, **wide(5))]
    found = decoder(Format(), ID, bound=Bound(ID)).decode(Payloads.of(block))
    assert [at for at, _ in found.rejects] == [ordinary] and found.rows == ordinary + 1
    assert found.new_columns.names() == tuple(wide(5))
    assert "found 1,001 (m0" in found.rejects[0][1] and "schema: ignore" in found.rejects[0][1]


@each_case("ordinary", [1, 200])
def test_when_no_further_columns_are_taken(ordinary: int) -> None:
    columns = Columns.of({"id": "BIGINT", "o": "STRUCT(a BIGINT)"})
    bad = [payload(-1, new=1), payload(-2, o={"a": 1, "b": 2})]
    good = [payload(at, o={"a": at}, unknown=None, empty=[]) for at in range(ordinary)]
    bound = Bound(columns, closed=Closed("the outer bound", "the inner bound"))
    found = decoder(Format(), columns, bound=bound).decode(Payloads.of([*bad, *good]))
    assert found.rows == ordinary and not found.new_columns
    (_, outer), (_, inner) = found.rejects
    assert "new" in outer and "the outer bound" in outer and inner.startswith("o: ") and "the inner bound" in inner


@each_case("policy", ["evolve", "ignore", "fail"])
def test_a_member_beyond_a_map_that_a_select_copies(policy: str) -> None:
    """A table cannot be given it: with `evolve` the record is a reject, not the end of the batch."""
    fields: dict[str, Any] = {"select": "SELECT id, m FROM records", "schema": policy, "into": {"table": "t"}}
    definition = Pipeline.model_validate({"name": "p", "source": {"brokers": "b", "topic": "t"}, **fields})
    table = Columns.of({"id": "BIGINT", "m": "MAP(VARCHAR, STRUCT(a BIGINT))"})
    paths = {name: {"path": name, "default": None} for name in table.names()}
    bound = replace(bound_of(definition, None, table), columns=table)
    payloads = [json.dumps({"id": at, "m": {"k": {"a": 1, **({"b": 2} if at == 5 else {})}}}).encode() for at in range(9)]
    found = decoder(Format.model_validate({"mapping": paths}), table, bound=bound).decode(Payloads.of(payloads))
    assert [at for at, _ in found.rejects] == ([5] if policy == "evolve" else [])
    assert [name for name, _ in found.new_columns] == (["m"] if policy == "fail" else [])


def test_an_avro_schema_with_too_many_new_fields() -> None:
    fields = [{"name": name, "type": "long"} for name in ("id", *wide(MOST_IN_RECORD + 1))]
    schema = {"type": "record", "name": "r", "fields": fields}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"id": 1, **wide(MOST_IN_RECORD + 1)})
    kind = Format(type="avro", schema=json.dumps(schema))
    found = decoder(kind, ID, bound=Bound(ID)).decode(Payloads.of([out.getvalue()] * 3))
    assert found.rows == 0 and [at for at, _ in found.rejects] == [0, 1, 2] and not found.new_columns
    assert decoder(kind, ID, bound=Bound(ID, free=frozenset(wide(10)))).decode(Payloads.of([out.getvalue()])).rows == 1
    assert not sampled(kind, [out.getvalue()])


@each_case("ordinary", [1, 200])
@each_case("key", [None, Format()])
def test_names_that_the_destinations_columns_cannot_have(ordinary: int, key: Format | None) -> None:
    bound = Bound(ID, destination="postgres")
    bad = [payload(-1, **{"x" * 64: 1}), payload(-2, xmin=1, other=2)]
    good = [payload(at, xmin=None, o={"xmin": 1}) for at in range(ordinary)]
    keys = None if key is None else _bytes([b"{}"] * (2 + ordinary))
    found = decoder(Format(), ID, key, bound=bound).decode(Payloads.of([*bad, *good]), keys)
    assert found.rows == ordinary and found.new_columns.names() == ("o",)
    (_, long), (_, system) = found.rejects
    assert "63 bytes" in long and "'xmin'" in system and "other" not in system and "system column" in system
    if key is None:
        assert sampled(Format(), [*bad, *good], destination="postgres").names() == ("id", "o")
        assert "xmin" in sampled(Format(), [*bad, *good])


def test_an_avro_schema_with_a_name_that_the_destinations_columns_cannot_have() -> None:
    kind = Format(type="avro", schema=json.dumps({
        "type": "record", "name": "r", "fields": [{"name": name, "type": "long"} for name in ("id", "n" * 65)],
    }))  # fmt: skip
    block = Payloads.of([b"\x02\x04"] * 3)
    found = decoder(kind, ID, bound=Bound(ID, destination="mysql")).decode(block)
    assert found.rows == 0 and all("64 characters" in why for _, why in found.rejects) and len(found.rejects) == 3
    assert decoder(kind, ID, bound=Bound(ID, destination="mysql", rejects=False)).decode(block).rows == 3
    assert decoder(kind, ID, bound=Bound(ID, destination="duckdb")).decode(block).rows == 3


def test_keys_count_with_their_values() -> None:
    key = Format()
    bound = Bound(ID)
    found = decoder(Format(), ID, key, bound=bound).decode(
        Payloads.of([payload(1, **wide(600)), payload(2)]),
        _bytes([json.dumps({f"k{at}": at for at in range(600)}).encode(), b'{"k": 1}']),
    )
    assert [at for at, _ in found.rejects] == [0] and found.new_columns.names() == ("k",)


def _bytes(values: list[bytes]) -> Any:
    import pyarrow as pa

    return pa.array(values, pa.binary())


def test_what_a_task_reports_is_bounded() -> None:
    block = [payload(at, **{f"r{at}_{n}": n for n in range(100)}) for at in range(50)]
    for bound in (Bound(ID), Bound(ID, rejects=False)):
        found = decoder(Format(), ID, bound=bound).decode(Payloads.of(block))
        assert found.rows == 50 and len(found.new_columns) == MOST_IN_BATCH + 1
        assert set(found.new_columns.names()) == set(sorted(f"r{at}_{n}" for at in range(50) for n in range(100))[:1001])


@pytest.mark.parametrize("native", [True, False])
def test_distinct_names_are_counted(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    if not native:
        monkeypatch.setattr("resources.decode.json.blocks.library", lambda: None)
    text = rb'{"a": 1, "b" : {"a": "x:y", "c\"": [{"d":"e"}]}, "\\": "f\\", "g":"\"h\":"}'
    assert names_of(text, 10) == 6  # a, b, c\", d, \\, g
    assert names_of(text, 5) == -1 and names_of(b"", 5) == 0 and names_of(b'"open', 5) == 0


def test_many_objects_with_names_of_their_own_are_not_given_to_a_reader_that_infers() -> None:
    items = json.dumps({"items": [{f"n{at}": at} for at in range(10_000)]}).encode()
    assert not affordable(items, 1)
    assert affordable(b"\n".join([payload(at, a=1, b=2) for at in range(10_000)]), 1)


def nested(levels: int, of: str, inner: str = "1") -> str:
    """JSON of a value in so many lists or objects."""
    return "[" * levels + inner + "]" * levels if of == "lists" else '{"a":' * levels + inner + "}" * levels


def levels(kind: Type | None) -> tuple[int, int, Type | None]:
    """Lists and STRUCTs of a type, and what is inside of all."""
    lists = structs = 0
    while isinstance(kind, ListOf | Struct):
        lists, structs = lists + isinstance(kind, ListOf), structs + isinstance(kind, Struct)
        kind = kind.item if isinstance(kind, ListOf) else kind.fields[0][1]
    return lists, structs, kind


def both_readers(new: str, columns: Columns = ID) -> list[Decoded]:
    """A block with such a record, as Arrow's reader infers, and row by row."""
    block = [payload(at) for at in range(40)]
    bad = b'{"id": "no number"}'
    deep = f'{{"id": 40, {new}}}'.encode()
    kind = Format()
    return [
        decoder(kind, columns, bound=Bound(columns)).decode(Payloads.of(texts)) for texts in ([*block, deep], [deep, bad], [deep])
    ]


@each_case("of", ["lists", "objects"])
@each_case("depth", [3, 8, 9, 20, 21, 45, 150, 199])
def test_deep_nesting_is_json(of: str, depth: int) -> None:
    most = MOST_LISTS if of == "lists" else DEEPEST
    inner = BIGINT if depth <= most else JSON
    expected = (min(depth, most), 0, inner) if of == "lists" else (0, min(depth, most), inner)
    for found in both_readers(f'"o": {nested(depth, of)}'):
        assert levels(found.new_columns.get("o")) == expected and not [why for _, why in found.rejects if "nested" in why]
    assert levels(sampled(Format(), [f'{{"o": {nested(depth, of)}}}'.encode()]).get("o")) == expected
    known = Columns.of({"id": "BIGINT", "o": "STRUCT(b BIGINT)"})
    for found in both_readers(f'"o": {{"b": 1, "more": {nested(depth, of)}}}', known):
        if depth == 199:
            assert len(found.rejects) >= 1 and "nested too deeply" in found.rejects[-1][1] + found.rejects[0][1]
            continue
        lists, structs, kind = levels(found.new_columns.get("o"))
        assert lists + structs == min(depth + 1, MOST_LISTS + 1 if of == "lists" else DEEPEST)
        assert kind == (BIGINT if depth + (of == "objects") <= most else JSON)
    for text in ("JSON", "VARCHAR"):
        for found in both_readers(f'"o": {nested(depth, of)}', Columns.of({"id": "BIGINT", "o": text})):
            assert nested(depth, of) in found.table.column("o").to_pylist()
    read = Columns.of({"id": "BIGINT", "o": str(shallow(infer([json.loads(f'{{"o": {nested(depth, of)}}}')]).items[0][1]))})
    for found in both_readers(f'"o": {nested(depth, of)}', read):
        assert 40 in found.table.column("id").to_pylist() and not found.new_columns


@pytest.mark.parametrize("of", ["lists", "objects"])
@pytest.mark.parametrize("depth", [200, 480, 1_000, 20_000, 500_000])
@pytest.mark.parametrize("native", [True, False])
def test_deeper_nesting_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch, of: str, depth: int, native: bool) -> None:
    if not native:
        monkeypatch.setattr("resources.decode.json.blocks.library", lambda: None)
    for columns in (ID, Columns.of({"id": "BIGINT", "o": "JSON"}), Columns.of({"id": "BIGINT", "o": "VARCHAR"})):
        for found in both_readers(f'"o": {nested(depth, of)}', columns):
            assert [why for _, why in found.rejects if "nested" in why] == ["not JSON: nested too deeply"]
            assert 40 not in found.table.column("id").to_pylist()
    assert not sampled(Format(), [f'{{"o": {nested(depth, of)}}}'.encode()])


@pytest.mark.parametrize("native", [True, False])
def test_depth_is_counted_outside_of_texts(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    if not native:
        monkeypatch.setattr("resources.decode.json.blocks.library", lambda: None)
    assert not too_deep(b'{"a": "[[[[", "b": [1, [2], {}], "c": "\\"[[[["}', 3)
    assert too_deep(b'{"a": "]]]\\\\", "b": [1, [2], {}]}', 2)
    assert not too_deep(b"[[]]" * 1_000 + b"[[", 2) and too_deep(b"}}}[[[", 2) and not too_deep(b'"open [[[', 1)


@each_case("wrapped", ["array", "record"])
def test_a_deep_avro_schema_gives_json(wrapped: str) -> None:
    kind: Any = "long"
    value: Any = 1
    for at in range(30):
        kind = {"type": "array", "items": kind} if wrapped == "array" else {
            "type": "record", "name": f"r{at}", "fields": [{"name": "a", "type": kind}]}  # fmt: skip
        value = [value] if wrapped == "array" else {"a": value}
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}, {"name": "o", "type": kind}]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"id": 1, "o": value})
    form = Format(type="avro", schema=json.dumps(schema))
    new = decoder(form, ID, bound=Bound(ID)).decode(Payloads.of([out.getvalue()])).new_columns
    assert levels(new.get("o")) == ((MOST_LISTS, 0, JSON) if wrapped == "array" else (0, DEEPEST, JSON))
    columns = Columns((("id", BIGINT), *new))
    found = decoder(form, columns, bound=Bound(columns)).decode(Payloads.of([out.getvalue()]))
    assert found.rows == 1 and not found.new_columns
    got, left = found.table.column("o").to_pylist()[0], 30
    while not isinstance(got, str):
        got, left = (got[0] if wrapped == "array" else got["a"]), left - 1
    assert got == nested(left, "lists" if wrapped == "array" else "objects")


def test_a_declared_column_that_is_nested_deeper_is_refused() -> None:
    for text in ("BIGINT" + "[]" * 9, "STRUCT(a " * 21 + "BIGINT" + ")" * 21, "MAP(VARCHAR, " * 9 + "BIGINT" + ")" * 9):
        with pytest.raises(ValueError, match=r"column deep: nested too deeply.*JSON"):
            declarations({"id": "BIGINT", "deep": text})
    declarations({"deep": "BIGINT" + "[]" * 8, "o": "STRUCT(a " * 20 + "BIGINT" + ")" * 20})
    for text in ("BIGINT" + "[]" * 5_000, "STRUCT(a " * 5_000 + "BIGINT" + ")" * 5_000):
        with pytest.raises(ValueError, match="column deep: nested too deeply"):
            declarations({"deep": text})
