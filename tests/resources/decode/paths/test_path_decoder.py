"""Paths give what a plain reading of the record gives, however a block is decoded."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kpipe.definition.formats import Format
from kpipe.definition.json_path import parse_path
from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import Columns
from resources.decode.block import Payloads
from resources.decode.factory import decoder, sampled
from resources.decode.json.decoder import JsonDecoder
from resources.decode.paths import json_decoder
from resources.decode.paths.json_decoder import MappedJsonDecoder
from tests.cases import each_case

COLUMNS = Columns.of(
    {
        "id": "BIGINT", "name": "VARCHAR", "n": "SMALLINT", "first": "VARCHAR", "deep": "DOUBLE", "whole": "JSON", "user": "JSON",
        "@v": "VARCHAR", "amount": "DECIMAL(10,2)", "at": "TIMESTAMP", "tags": "VARCHAR[]", "pair": "STRUCT(a BIGINT, b VARCHAR)",
        "odd": "BOOLEAN",
    }
)  # fmt: skip
MAPPING: dict[str, Any] = {
    "id": "id",
    "name": {"path": "user::name", "default": "nobody"},
    "n": {"path": "user::n", "default": 7},
    "first": {"path": "tags::0", "default": None},
    "deep": {"path": "list::1::x", "default": -1.5},
    "whole": "%",
    "user": {"path": "%::user", "default": "none"},
    "@v": {"path": "v", "default": None},
    "amount": {"path": "user::amount", "default": "3.10"},
    "at": {"path": "user::at", "default": None},
    "tags": {"path": "tags", "default": None},
    "pair": {"path": "pair", "default": None},
    "odd": {"path": "`a::b`::`0`", "default": True},
}
DEFAULTS = {"name": "nobody", "n": 7, "deep": -1.5, "user": '"none"', "amount": "3.10", "odd": True}


def decoders() -> tuple[MappedJsonDecoder, MappedJsonDecoder]:
    """The decoder, and the same without compiled code."""
    kind = Format.model_validate({"mapping": MAPPING})
    found, plain = decoder(kind, COLUMNS), decoder(kind, COLUMNS)
    assert isinstance(found, MappedJsonDecoder) and isinstance(plain, MappedJsonDecoder)
    plain._natives, plain._whole = [], None
    return found, plain


scalar = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**66), 2**66), st.integers(-5, 5), st.text(max_size=5),
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["2026-11-21 10:00:00", "12.5", "7", ""]),
)  # fmt: skip
item = st.one_of(scalar, st.fixed_dictionaries({}, optional={"x": scalar, "z": scalar}))
record = st.fixed_dictionaries(
    {},
    optional={
        "id": st.one_of(st.integers(0, 9), scalar),
        "user": st.one_of(
            scalar,
            st.fixed_dictionaries(
                {},
                optional={
                    "name": st.one_of(st.text(max_size=3), scalar),
                    "n": st.one_of(st.integers(-9, 9), scalar),
                    "amount": st.sampled_from([1, "2.50", None, "x", 1.25]),
                    "at": st.sampled_from(["2026-11-21 10:00:00", None, "soon", 5]),
                    "Name": scalar,
                },
            ),
        ),
        "tags": st.one_of(st.lists(st.text(max_size=3), max_size=3), st.lists(scalar, max_size=3), scalar),
        "list": st.one_of(st.lists(item, max_size=3), scalar),
        "pair": st.one_of(scalar, st.fixed_dictionaries({}, optional={"a": st.integers(), "b": scalar, "c": scalar})),
        "a::b": st.one_of(scalar, st.fixed_dictionaries({}, optional={"0": st.booleans(), "1": scalar})),
        "v": st.one_of(scalar, st.lists(scalar, max_size=2)),
        "other": item,
    },
)


def plainly(value: Any, path: str) -> tuple[bool, Any]:
    """What stands at a path; written without a look at the code."""
    for part in parse_path(path):
        try:
            if isinstance(value, list) != isinstance(part, int):
                return False, None
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return False, None
    return True, value


def check(values: list[Any]) -> None:
    payloads = [value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode() for value in values]
    found, plain = (one.decode(Payloads.of(payloads)) for one in decoders())
    assert found.table.to_pylist() == plain.table.to_pylist()
    assert list(found.rejects) == list(plain.rejects)
    assert found.new_columns.to_dict() == plain.new_columns.to_dict()
    kept = list(range(len(payloads))) if found.kept is None else list(found.kept)
    assert kept == (list(range(len(payloads))) if plain.kept is None else list(plain.kept))
    assert sorted([*kept, *(at for at, _ in found.rejects)]) == list(range(len(payloads)))
    for at, row in zip(kept, found.table.to_pylist(), strict=True):
        record = json.loads(payloads[at])
        assert json.loads(row["whole"]) == record
        for name, item in MAPPING.items():
            there, value = plainly(record, item if isinstance(item, str) else item["path"])
            if not there:
                expected = DEFAULTS.get(name)
                assert (str(row[name]) if name == "amount" else row[name]) == expected, name
            elif value is None:
                assert row[name] is None, name
            elif name in ("id", "n", "deep"):
                assert float(row[name]) == float(value) and (name == "deep" or row[name] == int(Decimal(str(value)))), name
            elif name in ("name", "first", "@v"):
                assert row[name] == value if isinstance(value, str) else json.loads(row[name]) == value, name
            elif name == "user":
                assert json.loads(row[name]) == value
            else:
                assert row[name] is not None, name
    missing = [at for at, payload in enumerate(payloads) if "id" not in json.loads(payload)]
    reasons = dict(found.rejects)
    assert all(at in reasons for at in missing)


@settings(max_examples=30, deadline=None)
@given(st.lists(record, max_size=8))
@example([{"id": 1}] * 20)
@example([{"id": 1, "user": None, "tags": [], "list": [{"x": 5}]}] * 20)
@example([{"id": 1, "user": {"name": "a", "n": None, "amount": 1}, "tags": ["x"], "list": [1, {"x": 0.5}]}] * 20)
@example([{"id": n, "user": {"name": str(n), "at": "soon" if n == 7 else None}} for n in range(40)])
@example(
    [{"id": n, "tags": [str(n), "y"], "list": [{}, {"x": n}], "pair": {"a": n, "c": 1}, "a::b": {"0": False}} for n in range(40)]
)
@example([{"user": {"name": "no id"}}] * 3 + [{"id": n} for n in range(30)])
def test_the_same_as_a_plain_reading(values: list[Any]) -> None:
    monkey = json_decoder._SMALLEST_BLOCK
    try:
        for smallest in (monkey, 1):
            json_decoder._SMALLEST_BLOCK = smallest
            check(values)
    finally:
        json_decoder._SMALLEST_BLOCK = monkey


def rows(mapping: dict[str, Any], columns: dict[str, str], *payloads: bytes) -> Any:
    kind = Format.model_validate({"mapping": mapping})
    return decoder(kind, Columns.of(columns)).decode(Payloads.of(list(payloads) * 20))


def test_absent_without_default_is_a_reject_and_null_is_null() -> None:
    found = rows({"a": "x::y"}, {"a": "BIGINT"}, b'{"x": {"y": null}}', b'{"x": {}}', b'{"x": {"y": 3}}')
    assert found.table.column("a").to_pylist() == [None, 3] * 20
    assert found.rejects[0] == (1, "a: the record has no x::y (DEFAULT NULL makes that NULL)")


def test_a_path_without_default_is_required_before_its_column_exists() -> None:
    """Otherwise a misspelt path loads all records without the column."""
    for count in (1, 20):
        kind = Format.model_validate({"mapping": {"a": "a", "b": "x::b", "c": {"path": "x::c", "default": None}}})
        payloads = [b'{"a": 1}', b'{"a": 2, "x": {"b": null}}', b'{"a": 3, "x": {"b": 4, "c": "s"}}'] * count
        found = decoder(kind, Columns.of({"a": "BIGINT"})).decode(Payloads.of(payloads))
        why = "b: the record has no x::b (DEFAULT NULL makes that NULL)"
        assert list(found.rejects) == [(at, why) for at in range(0, len(payloads), 3)]
        assert found.table.column("a").to_pylist() == [2, 3] * count
        assert found.new_columns.to_dict() == {"b": "BIGINT", "c": "VARCHAR"}


def test_what_no_path_leads_to_is_read_as_strictly() -> None:
    for bad in (
        b'{"a": 1, "z": 1, "z": 2}',
        b'{"a": 1, "z": {"q": [1,]}}',
        b'{"a": 1, "z": "\xff"}',
        b'{"a": 1} x',
        b'{"a": 1, "z": 01}',
    ):
        found = rows({"a": "a"}, {"a": "BIGINT"}, b'{"a": 2, "z": {"A": 1}}', bad)
        assert len(found.rejects) == 20 and found.rows == 20, bad


def test_numbers_stay_what_they_are() -> None:
    found = rows({"n": "n", "t": "n"}, {"n": "BIGINT", "t": "VARCHAR"}, b'{"n": 3.5}', b'{"n": 9223372036854775808}', b'{"n": 3}')
    assert [why for _, why in found.rejects[:2]] == ["n: 3.5 is not a BIGINT", "n: 9223372036854775808 is not a BIGINT"]
    assert found.table.slice(0, 1).to_pylist() == [{"n": 3, "t": "3"}]
    kept = rows({"t": "n::0"}, {"t": "VARCHAR"}, b'{"n": [123456789012345678901234567890.10]}')
    assert kept.table.column("t")[0].as_py() == "123456789012345678901234567890.10"


def test_columns_that_are_not_wanted_yet_are_reported_with_what_they_hold() -> None:
    found = rows({"a": "a", "b": "x::b", "c": "x::c", "@v": "x"}, {"a": "BIGINT"}, b'{"a": 1, "x": {"b": [1.5], "c": null}}')
    assert found.new_columns.to_dict() == {"b": "DOUBLE[]"} and found.rows == 20


def test_a_sample_tells_the_types() -> None:
    mapping = {"a": "x::a", "b": {"path": "nope", "default": 1}, "c": {"path": "c", "default": None}, "@v": "v"}
    kind = Format.model_validate({"mapping": mapping})
    assert sampled(kind, [b'{"x": {"a": 1}}', b"{", b'{"x": {"a": 2.5}}']).to_dict() == {"a": "DOUBLE", "b": "BIGINT"}


def test_a_default_must_be_a_value_of_its_column() -> None:
    with pytest.raises(InvalidPipeline, match="DEFAULT 'x' of a is not a BIGINT"):
        rows({"a": {"path": "a", "default": "x"}}, {"a": "BIGINT"})


STRICT = [
    ("STRUCT(a BIGINT)", {"A": 1}, "st.A"), ("STRUCT(a BIGINT)", {"a": 1, "A": 2}, "st.A"),
    ("STRUCT(a BIGINT)[]", [{"a": 1}, {"A": 1}], "st[1].A"), ("STRUCT(x STRUCT(a BIGINT))", {"x": {"A": None}}, "st.x.A"),
    ("STRUCT(k BIGINT)", {"\u212a": 1}, "st.\u212a"),
    ('STRUCT("é" BIGINT)', {"É": 1}, "st.É"), ('STRUCT("\u212a" BIGINT)', {"k": 1}, "st.k"),
    ("MAP(VARCHAR, STRUCT(a BIGINT))", {"k": {"A": 1}}, "st.k.A"), ("STRUCT(a DECIMAL(5,2))", {"A": 1}, "st.A"),
    ("STRUCT(a BIGINT)", {"": 1}, "''"), ("STRUCT(a BIGINT)", {"x" * 256: 1}, "'xxx"), ("STRUCT(a BIGINT)", {"\0": 1}, "'\\x00'"),
]  # fmt: skip


@each_case(("kind", "value", "member"), STRICT)
@each_case("place", [("st",), ("p", "st"), ("l", 0, "st")])
def test_a_struct_is_read_as_strictly_as_without_a_path(kind: str, value: Any, member: str, place: tuple[Any, ...]) -> None:
    record, fine = value, None
    for part in reversed(place):
        record, fine = ({part: record, "St": 1}, {part: fine, "ST": 1}) if isinstance(part, str) else ([record], [fine])
    payloads = [json.dumps(item, ensure_ascii=False).encode() for item in (record, fine)]
    path = "::".join(str(part) for part in place)
    found = rows({"st": {"path": path, "default": None}}, {"st": kind}, *payloads)
    plain = JsonDecoder(Columns.of({"st": kind})).decode(Payloads.of([json.dumps({"st": value}).encode()]))
    assert member in plain.rejects[0][1]
    assert list(found.rejects) == [(at, plain.rejects[0][1]) for at in range(0, 40, 2)] and found.rows == 20


@each_case("compiled", [True, False])
@each_case("path", ["st", "o::st", "l::0"])
def test_members_that_a_struct_lacks_are_reported(compiled: bool, path: str) -> None:
    """By column; those beside a path are not, nor those of a variable."""
    values = [b'{"b": 1, "a": 2, "aa": {"A": 3}}', b'{"a": null, "\xc3\xa9": [1], "x": [{"p": 1, "q": "s"}]}']
    kind = Format.model_validate({"mapping": {"St": path, "@v": path, "n": {"path": "n", "default": None}}})
    columns = Columns.of({"St": "STRUCT(a BIGINT, x STRUCT(p BIGINT)[])", "@v": "STRUCT(a BIGINT)", "n": "BIGINT"})
    payloads = [b'{"st": %b, "o": {"st": %b, "b": 1}, "l": [%b], "n": 1, "z": 1}' % ((value,) * 3) for value in values]
    made = decoder(kind, columns)
    assert isinstance(made, MappedJsonDecoder)
    if not compiled:
        made._natives, made._whole = [], None
    bad = b'{"st": {"lost": 1}, "o": {"st": {"lost": 1}}, "l": [{"lost": 1}], "n": "x"}'
    found = made.decode(Payloads.of([*payloads * 20, bad]))
    assert found.table.column("St").to_pylist() == [{"a": 2, "x": None}, {"a": None, "x": [{"p": 1}]}] * 20
    assert [at for at, _ in found.rejects] == [40]
    assert found.new_columns.to_dict() == {"St": 'STRUCT(b BIGINT, aa STRUCT("A" BIGINT), x STRUCT(q VARCHAR)[], "é" BIGINT[])'}


@each_case("rows", [2, 40])
def test_a_whole_record_is_a_json_column_where_nothing_says_what_it_is(rows: int) -> None:
    """Also in blocks that compiled code reads."""
    kind = Format.model_validate({"mapping": {"a": "user::name", "j": "%", "n": {"path": "n", "default": 1}}})
    payloads = [json.dumps({"id": at, "user": {"name": f"n{at}"}}).encode() for at in range(rows)]
    expected = {"a": "VARCHAR", "j": "JSON", "n": "BIGINT"}
    assert sampled(kind, payloads).to_dict() == expected
    table = Columns.of({"a": "VARCHAR"})
    found = decoder(kind, table).decode(Payloads.of(payloads))
    assert found.new_columns.to_dict() == {"j": "JSON"}
    both = decoder(kind, table.joined(found.new_columns)).decode(Payloads.of(payloads)).table
    assert both is not None
    assert both.column("j").to_pylist() == [f'{{"id":{at},"user":{{"name":"n{at}"}}}}' for at in range(rows)]


_COUNTED = Columns.of({
    "text": "VARCHAR", "tiny": "TINYINT", "wide": "HUGEINT", "real": "DOUBLE", "exact": "DECIMAL(4,2)", "flag": "BOOLEAN",
    "doc": "JSON", "inner": "VARCHAR",
})  # fmt: skip
_PATHS: dict[str, Any] = {name: {"path": "v", "default": True} for name in _COUNTED.names() if name != "inner"} | {
    "inner": "o::v"
}


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("value", ["true", "false", '"true"', "1", "null", "", '"tr\\u0075e"'])
def test_true_and_false_are_numbers_where_the_format_says_so(value: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As SingleStore's page "Extracting and Converting JSON Values" has it; inside of a document they are what they are."""
    if not compiled:
        monkeypatch.setattr(json_decoder, "native_json", lambda *_, **__: None)
    mapping = {name: item for name, item in _PATHS.items() if value != '"tr\\u0075e"' or name in ("text", "doc", "inner")}
    columns = Columns(tuple(item for item in _COUNTED if item[0] in mapping))
    mapping = {name: item for name, item in mapping.items() if value != '"true"' or name in ("text", "doc", "inner")}
    columns = Columns(tuple(item for item in columns if item[0] in mapping))
    if value == "1":
        mapping, columns = {**mapping}, columns.without(["flag"])
        del mapping["flag"]
    member = f'"v":{value},' if value else ""
    payload = f'{{{member}"o":{{"v":{value or "true"}}}}}'.encode()
    kind = Format.model_validate({"mapping": mapping, "booleans": "number"})
    found = decoder(kind, columns).decode(Payloads.of([payload] * 40 + [b'{"v":"x"}']))
    assert len(found.rejects) == 1
    said = {"true": "1", "false": "0", '"true"': "true", "1": "1", "null": None, "": "1", '"tr\\u0075e"': "true"}[value]
    row = found.table.to_pylist()[0]
    assert (row["text"], row["inner"]) == (said, said)
    number = None if said is None else said if said == "true" else int(said)
    if "tiny" in row:
        assert (row["tiny"], row["wide"], row["real"], row["exact"]) == (
            number, None if number is None else str(number), number, number
        )  # fmt: skip
    if value in ("true", "false"):
        assert (row["flag"], row["doc"]) == (value == "true", value)
    assert found.table.to_pylist() == [row] * 40


def test_true_and_false_in_one_block_beside_texts_that_say_so() -> None:
    values = [random.Random(at).choice(["true", "false", '"true"', '"false"', "5", "null", '"x"', "{}"]) for at in range(500)]
    payloads = Payloads.of([f'{{"a":{value}}}'.encode() for value in values])
    kind = Format.model_validate({"mapping": {"a": "a"}, "booleans": "number"})
    found = decoder(kind, Columns.of({"a": "VARCHAR"})).decode(payloads).table.column("a").to_pylist()
    said = {"true": "1", "false": "0", "null": None}
    assert found == [said[value] if value in said else value.strip('"') for value in values]
    plain = decoder(Format.model_validate({"mapping": {"a": "a"}}), Columns.of({"a": "VARCHAR"})).decode(payloads)
    assert plain.table.column("a").to_pylist() == [None if value == "null" else value.strip('"') for value in values]
