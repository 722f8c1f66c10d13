"""The block decoder says the same as the row decoder, whatever it is given, and loses nothing silently."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kpipe.schema.columns import Columns, parse_type
from resources.decode.block import Payloads
from resources.decode.cast_text import Texts
from resources.decode.json import decoder as json_format
from resources.decode.json.decoder import JsonDecoder
from resources.decode.paths.json_decoder import MappedJsonDecoder
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import schema
from resources.duckdb_engine.column_casts import coercion
from tests.cases import each_case

COLUMNS = Columns.of({"a": "BIGINT", "b": "VARCHAR", "c": "DOUBLE", "d": "STRUCT(x BIGINT, y VARCHAR[])", "e": "BOOLEAN[]"})

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
)
members = st.one_of(
    scalars,
    st.lists(scalars, max_size=3),
    st.dictionaries(st.sampled_from(["x", "y", "X", "new"]), st.one_of(scalars, st.lists(scalars, max_size=2)), max_size=3),
)
good = st.fixed_dictionaries(
    {},
    optional={
        "a": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        "b": st.one_of(st.none(), st.text(max_size=10)),
        "c": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
        "d": st.one_of(
            st.none(),
            st.fixed_dictionaries({}, optional={"x": st.integers(-5, 5), "y": st.lists(st.text(max_size=3), max_size=2)}),
        ),
        "e": st.one_of(st.none(), st.lists(st.booleans(), max_size=3)),
    },
)
anything = st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e", "A", "z", "_kafka_offset"]), members, max_size=5)


def as_payload(value: object, style: int) -> bytes:
    text = json.dumps(value, ensure_ascii=style % 2 == 0, indent=1 if style == 3 else None)
    return text.encode("utf-8", "surrogatepass")


broken = st.sampled_from(
    [
        b'{"c":NaN}',
        b'{"z":[-Infinity]}',
        b'{"b":"x","z":Inf}',
        b"",
        b" ",
        b"{",
        b"[1]",
        b"null",
        b"3",
        b"{}{}",
        b"\xff",
        b'{"a":1}x',
        b'{"a":1,"a":2}',
        b'{"b":"\xff"}',
        b"{\n}",
    ]
)
payload = st.one_of(st.builds(as_payload, good, st.integers(0, 3)), st.builds(as_payload, anything, st.integers(0, 3)), broken)


def rows_of(decoded: Any) -> list[tuple[int, dict[str, Any]]]:
    kept = decoded.kept if decoded.kept is not None else range(decoded.table.num_rows)
    return list(zip(kept, decoded.table.to_pylist(), strict=True))


@given(st.lists(payload, max_size=60))
@example([b'{"a":null,"d":{"x":null,"X":null}}'])
def test_a_block_decodes_as_its_payloads_do_one_by_one(payloads: list[bytes]) -> None:
    whole = JsonDecoder(COLUMNS).decode(Payloads.of(payloads))
    apart: list[tuple[int, dict[str, Any]]] = []
    rejects = []
    single = JsonDecoder(COLUMNS)
    single._blockwise = False  # every payload by the row decoder
    for at, item in enumerate(payloads):
        one = single.decode(Payloads.of([item]))
        apart += [(at, row) for _, row in rows_of(one)]
        rejects += [(at, why) for _, why in one.rejects]
    assert rows_of(whole) == apart
    assert [at for at, _ in whole.rejects] == [at for at, _ in rejects]
    assert sorted([at for at, _ in rows_of(whole)] + [at for at, _ in whole.rejects]) == list(range(len(payloads)))


@given(st.lists(st.builds(as_payload, good, st.integers(0, 2)), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_good_payloads_give_what_json_gives(payloads: list[bytes]) -> None:
    decoded = JsonDecoder(COLUMNS).decode(Payloads.of(payloads))
    assert not decoded.rejects
    for item, row in zip(payloads, decoded.table.to_pylist(), strict=True):
        value = json.loads(item)
        for name in ("a", "b", "c", "e"):
            assert row[name] == value.get(name)
    assert decoded.table.schema == schema(COLUMNS)


@each_case(
    ("payload", "reason"),
    [
        (b'{"a":3.5}', "a: 3.5 is not a BIGINT"),
        (b'{"a":99999999999999999999}', "a: 99999999999999999999 is not a BIGINT"),
        (b'{"a":"many"}', 'a: "many" is not a BIGINT'),
        (b'{"a":true}', "a: true is not a BIGINT"),
        (b'{"d":{"x":"z"}}', 'd.x: "z" is not a BIGINT'),
        (b'{"d":[1]}', "d: a list is not a STRUCT(x BIGINT, y VARCHAR[])"),
        (b'{"A":1}', "member A differs from a column by case only"),
        (b'{"a":1,"a":2}', "duplicate member a"),
        (b'{"a":1}{"a":2}', "not JSON: Extra data at character 7"),
        (b'{"":1}', "member '' of the object: not a valid column name"),
        (b'{"d":{"\\u0000":{}}}', "member '\\x00' of d.: not a valid column name"),
        (b"[1]", "not a JSON object but a list"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b'{"b":"\\ud800"}', "not JSON: half of a surrogate pair"),
        (b"", "not JSON: Expecting value at character 0"),
        (b'\xef\xbb\xbf{"a":1}', "not JSON: Unexpected UTF-8 BOM (decode using utf-8-sig) at character 0"),
        (b'{"a":NaN}', "NaN and Infinity are not valid JSON"),
        (b'{"c":NaN}', "NaN and Infinity are not valid JSON"),
        (b'{"c": -Infinity}', "NaN and Infinity are not valid JSON"),
        (b'{"c":-NaN}', "not JSON: Expecting value at character 5"),
        (b'{"new":NaN}', "NaN and Infinity are not valid JSON"),
        (b'{"new":[1.5,{"x":-Infinity}]}', "NaN and Infinity are not valid JSON"),
        (b'{"new":Inf}', "not JSON: Expecting value at character 7"),
        (b'{"a":' + b"9" * 5000 + b"}", "a number of too many digits"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not JSON: nested too deeply"),
    ],
    ids=lambda item: str(item)[:40],
)
def test_what_cannot_be_a_row_says_why(payload: bytes, reason: str) -> None:
    decoded = JsonDecoder(COLUMNS).decode(Payloads.of([b'{"a":1}', payload, b'{"a":2}']))
    assert decoded.rejects == [(1, reason)]
    assert [row["a"] for row in decoded.table.to_pylist()] == [1, 2]
    assert decoded.kept == [0, 2]


def test_texts_that_name_no_number_are_texts() -> None:
    """In a column of numbers they are what a text that is a number is; beside others they cost nothing but time."""
    payloads = [b'{"b":"[NaN, Infinity"}', b'{"c":"NaN"}', b'{"c":1e400,"new":": Inf"}', *[b'{"c":1}'] * 40]
    decoded = JsonDecoder(COLUMNS).decode(Payloads.of(payloads))
    rows = decoded.table.to_pylist()
    assert not decoded.rejects
    assert (rows[0]["b"], str(rows[1]["c"]), rows[2]["c"], rows[-1]["c"]) == ("[NaN, Infinity", "nan", float("inf"), 1.0)
    assert decoded.new_columns == Columns.of({"new": "VARCHAR"})


def test_a_value_of_megabytes_is_a_value() -> None:
    payloads = [b'{"a":1}', b'{"b":"' + b"x" * 3_000_000 + b'"}', b'{"a":2}']
    decoded = JsonDecoder(COLUMNS).decode(Payloads.of(payloads))
    assert not decoded.rejects
    assert [len(row["b"] or "") for row in decoded.table.to_pylist()] == [0, 3_000_000, 0]


def test_two_objects_in_one_payload_and_none_in_another_do_not_shift_rows() -> None:
    payloads = [b'{"a":1}', b'{"a":2}\n{"a":3}', b"", b'{"a":4}']
    decoded = JsonDecoder(COLUMNS).decode(Payloads.of(payloads))
    assert [(at, row["a"]) for at, row in rows_of(decoded)] == [(0, 1), (3, 4)]


def test_one_bad_payload_in_many_costs_no_neighbour() -> None:
    payloads = [b'{"a":%d,"b":"x"}' % n for n in range(5000)]
    payloads[1234] = b'{"a":"no"}'
    payloads[4999] = b"nonsense"
    decoded = JsonDecoder(COLUMNS).decode(Payloads.of(payloads))
    assert [at for at, _ in decoded.rejects] == [1234, 4999]
    assert [row["a"] for _, row in rows_of(decoded)] == [n for n in range(5000) if n not in (1234, 4999)]


def test_new_members_are_reported_also_inside_structs_and_are_not_in_the_table() -> None:
    payloads = [b'{"a":1,"n":1}', b'{"a":2,"n":2.5,"d":{"x":1,"w":{"v":"s"}}}', b'{"a":3,"empty":[],"nothing":null,"o":{}}']
    decoded = JsonDecoder(COLUMNS).decode(Payloads.of(payloads))
    assert decoded.new_columns.to_dict() == {"n": "DOUBLE", "d": "STRUCT(w STRUCT(v VARCHAR))"}
    assert decoded.table.column_names == list(COLUMNS.names())
    merged = COLUMNS.merged(decoded.new_columns)
    again = JsonDecoder(merged).decode(Payloads.of(payloads))
    assert not again.new_columns
    assert again.table.to_pylist()[1]["d"] == {"x": 1, "y": None, "w": {"v": "s"}}


def test_a_payload_cannot_shadow_kafkas_coordinates() -> None:
    decoded = JsonDecoder(COLUMNS).decode(Payloads.of([b'{"a":1,"_kafka_offset":99,"_KAFKA_partition":7}']))
    assert decoded.table.column_names == list(COLUMNS.names())
    assert not decoded.new_columns


@each_case("count", [1, 40])
def test_types_that_json_lacks_are_cast_and_checked(count: int) -> None:
    columns = Columns.of(
        {
            "at": "TIMESTAMPTZ",
            "day": "DATE",
            "plain": "TIMESTAMP",
            "price": "DECIMAL(10,2)",
            "doc": "JSON",
            "id": "UUID",
            "raw": "BLOB",
            "big": "HUGEINT",
        }
    )
    one = {
        "at": "2026-11-20T10:00:00.123456+02:00", "day": "2026-11-20", "plain": "2026-11-20T10:00:00Z", "price": 12.34,
        "doc": {"k": [1, "x"]}, "id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "raw": "é", "big": 2**100,
    }  # fmt: skip
    payloads = [json.dumps(one).encode()] * count
    decoded = JsonDecoder(columns).decode(Payloads.of(payloads))
    assert not decoded.rejects
    row = decoded.table.to_pylist()[-1]
    assert row["at"].isoformat() == "2026-11-20T08:00:00.123456+00:00"
    assert (row["day"].isoformat(), row["plain"].isoformat(), str(row["price"])) == ("2026-11-20", "2026-11-20T10:00:00", "12.34")
    assert json.loads(row["doc"]) == one["doc"]
    assert (row["id"], row["raw"], row["big"]) == (one["id"], "é".encode(), str(2**100))
    bad = JsonDecoder(columns).decode(Payloads.of([*payloads, b'{"at":"yesterday"}', b'{"day":20261120}', b'{"id":"x"}']))
    assert [at for at, _ in bad.rejects] == [count, count + 1, count + 2]
    assert bad.rejects[0][1] == 'at: "yesterday" is not a TIMESTAMP WITH TIME ZONE'


@each_case("count", [0, 40])
@each_case(
    ("kind", "value", "expected"),
    [
        ("TIMESTAMP", "2026-11-20T10:00:00+02:00", "2026-11-20 08:00:00"),
        ("TIMESTAMP", "2026-11-20 10:00:00", "2026-11-20 10:00:00"),
        ("STRUCT(t TIMESTAMP)", {"t": "2026-11-20T10:00:00+02:00"}, "{'t': datetime.datetime(2026, 11, 20, 8, 0)}"),
        ("DATE", "2026-11-01T23:30:00-05:00", None),
        ("TIME", "10:00:00+02", None),
        ("TIME", "10:00:00", "10:00:00"),
        ("HUGEINT", 1.5, None),
        ("HUGEINT", 7, "7"),
        ("FLOAT", 1e300, None),
        ("FLOAT", 0.5, "0.5"),
        ("DOUBLE", 10**400, "inf"),
        ("DECIMAL(12,2)", 1.239, "1.24"),
    ],
)
def test_declared_types_take_a_value_or_refuse_it_but_never_change_it(
    kind: str, value: object, expected: str | None, count: int
) -> None:
    good = {"TIMESTAMP": "2026-01-01", "DATE": "2026-01-01", "TIME": "10:00"}.get(kind)
    fillers = [json.dumps({"v": good}).encode()] * count
    decoded = JsonDecoder(Columns.of({"v": kind})).decode(Payloads.of([*fillers, json.dumps({"v": value}).encode()]))
    if expected is None:
        assert [at for at, _ in decoded.rejects] == [count]
        assert decoded.rows == count
    else:
        assert not decoded.rejects
        assert str(decoded.table.to_pylist()[-1]["v"]) == expected


TIMES = [
    ("TIME", "01:02", "01:02:00"), ("TIME", "1:2:3", "01:02:03"), ("TIME", " 24:00:00\n", "24:00:00"),
    ("TIME", "23:59:59.1234567", "23:59:59.123456"), ("TIME", "01:02:03.", "01:02:03"), ("TIME", "01:02:03 PM", None),
    ("TIME", "12:00:00 AM", None), ("TIME", "12:00 AM", None), ("TIME", "01:02:03 Europe/Berlin", None),
    ("TIME", "1:2:3 BC", None),
    ("TIME", "01:02:03Z", None), ("TIME", "1:2:349", None), ("TIME", "1:29:3nD", None), ("TIME", "2020 1 1", None),
    ("TIME", "20/1/1", None), ("TIME", "01:02:03.5x", None), ("TIME", "25:00:00", None),
    ("DATE", "1-1-1 01:2", None), ("DATE", "1-1-1 1:2", None), ("DATE", "1-1-1T1:1Z", None), ("DATE", "-epoch", None),
    ("DATE", "2026-1-1 9", None), ("DATE", "2026-7-15Z", None), ("DATE", "2026-1-1/9", None), ("DATE", "2026-01-1Z", None),
    ("DATE", "2020-1-1", "2020-01-01"), ("DATE", " 2020/01/01 ", "2020-01-01"), ("DATE", "epoch", "1970-01-01"),
    ("DATE", "Infinity", "infinity"), ("DATE", "-infinity", "-infinity"), ("DATE", "12020-01-01", "12020-01-01"),
    ("DATE", "0044-03-15 (BC)", "0044-03-15 (BC)"), ("DATE", "-0043-03-15", "0044-03-15 (BC)"), ("DATE", "2020-02-30", None),
    ("TIMESTAMP", "2020-01-01 01:02:03 PM", None), ("TIMESTAMP", "2020-01-01 01:02:03 BC", None),
    ("TIMESTAMP", "2020-01-01 01:02:03 Europe/Berlin", "2020-01-01 00:02:03"), ("TIMESTAMPTZ", "2020-01-01 01:02 AM", None),
]  # fmt: skip


def _as_text(array: pa.Array, kind: str) -> str | None:
    return in_memory.evaluated(array, f"CAST(CAST(v AS {kind}) AS VARCHAR)")[0].as_py()


@each_case(("kind", "text", "expected"), TIMES)
def test_text_of_a_time_is_taken_whole_or_not_at_all_by_every_reader(kind: str, text: str, expected: str | None) -> None:
    """DuckDB's casts leave out what follows a TIME, and a DATE's time of day, without a word."""
    columns = Columns.of({"v": kind})
    payload = json.dumps({"v": text}).encode()
    for decoder in (JsonDecoder(columns), MappedJsonDecoder({"v": "v"}, columns)):
        for count in (1, 40):
            decoded = decoder.decode(Payloads.of([payload] * count))
            assert [at for at, _ in decoded.rejects] == ([] if expected else list(range(count)))
            assert expected is None or _as_text(decoded.table.column("v").combine_chunks(), kind) == expected
    nested = JsonDecoder(Columns.of({"v": f"{kind}[]"})).decode(Payloads.of([json.dumps({"v": [text]}).encode()]))
    assert nested.rows == (expected is not None)
    fitted, reasons, _ = Texts(columns).read([pa.array([text.encode()])])  # CSV, and text of Avro and Protobuf
    assert bool(reasons) == (expected is None) and _as_text(fitted.column("v").combine_chunks(), kind) == expected
    value, lost = coercion("VARCHAR", parse_type(kind))  # expressions
    made = in_memory.evaluated(pa.array([text]), value.format("v"))
    assert _as_text(made, kind) == expected
    assert in_memory.evaluated(pa.array([text]), lost.format("v"))[0].as_py() == (expected is None)


def test_numbers_and_booleans_become_text_where_text_is_declared() -> None:
    decoded = JsonDecoder(Columns.of({"b": "VARCHAR"})).decode(
        Payloads.of([b'{"b":1.10}', b'{"b":true}', b'{"b":{"x":1}}', b'{"b":"s"}', b'{"b":null}'])
    )
    assert [row["b"] for row in decoded.table.to_pylist()] == ["1.10", "true", '{"x":1}', "s", None]


def test_a_good_block_is_never_looked_at_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("row by row")

    monkeypatch.setattr(json_format, "load", refuse)
    payloads = [b'{"a":%d,"b":"x","d":{"x":1,"y":["p"]},"new":{"q":1}}' % n for n in range(100)]
    decoded = JsonDecoder(COLUMNS).decode(Payloads.of(payloads))
    assert decoded.table.num_rows == 100
    assert isinstance(decoded.table, pa.Table)


def test_without_columns_every_object_is_a_row() -> None:
    decoded = JsonDecoder(Columns()).decode(Payloads.of([b"{}", b'{"a":1}', b"x"]))
    assert decoded.rows == 2
    assert decoded.new_columns.to_dict() == {"a": "BIGINT"}


@each_case(
    "columns",
    [{"t": "VARCHAR"}, {"t": "VARCHAR", "m": "MAP(VARCHAR, BIGINT)"}, {"t": "VARCHAR", "d": "DATE"}],
    ids=["text", "map", "date"],
)
@each_case("count", [1, 2, 40], ids=str)
def test_white_space_that_json_does_not_allow_is_never_replaced(columns: dict[str, str], count: int) -> None:
    """A newline inside of a string became a space in small blocks with other columns than texts and numbers."""
    pretty = b'\r\n{\n"t" :\t"x\\ny"\n}\n'
    bad = [b'{"t":"x\ny"}', b'{"t":"x\ry"}', b'\x0c{"t":"x"}', b'{"t":"x"}\x0b', b'{"t":"x","d":"no day"}']
    found = JsonDecoder(Columns.of(columns)).decode(Payloads.of([*[pretty] * count, *bad]))
    assert found.table.column("t").to_pylist() == ["x\ny"] * count + ["x"] * ("d" not in columns)
    assert [at - count for at, _ in found.rejects] == [0, 1, 2, 3, *([4] if "d" in columns else [])]
