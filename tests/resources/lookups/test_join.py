"""What lookups make of blocks of records: values, never rows; reasons where a key must be there."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.batch.batch import Batch, Piece, RangeReport
from kpipe.definition.lookups import Version
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, RecordRejected
from kpipe.expressions.lookup_calls import Call
from kpipe.ingest.staging import wanted
from kpipe.offsets import Range
from kpipe.schema.columns import Columns, parse_type
from kpipe.topics import PartitionId, TopicId
from resources.decode import repeated
from resources.decode.block import Payloads
from resources.decode.factory import sampled
from resources.duckdb_engine.arrow_types import staged_type
from resources.home import Home
from resources.kafka.record_block import RecordBlock
from resources.lookups import join as lookup_join
from resources.lookups.join import Join
from resources.lookups.reference_table import Here, Reference, packed
from resources.spark.driver.sample_stager import LocalStager
from resources.spark.task.range_writer import RangeOutput
from tests.cases import each_case

SOURCE = PartitionId(TopicId("c", "t", "orders"), 3)
Rows = list[dict[str, Any]]
Staged = Callable[..., tuple[Rows, list[str], RangeReport]]


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Staged:
    """`staged(records, **definition)`: rows without coordinates, reasons, and the report."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.csv").write_text("code,name,boss,n\nDE,Germany,FR,1\nFR,France,NA,2\nNA,Namibia,,x\n")
    (tmp_path / "n.json").write_text('[{"id": 1, "word": "one", "x": {"y": [1, 2]}}, {"id": 2, "word": "two"}]')

    def stage(records: list[Any], **fields: Any) -> tuple[Rows, list[str], RangeReport]:
        lookups = {
            "c": {"path": "c.csv", "key": "code", **fields.pop("c", {})},
            "n": {"path": "n.json", "key": "id", **fields.pop("n", {})},
        }
        base = {"name": "p", "source": {"brokers": "b", "topic": "orders"}, "into": {"table": "t"}, "lookups": lookups}
        pipeline = Pipeline.model_validate({**base, **fields})
        values = [json.dumps(record).encode() for record in records]
        stager = LocalStager(pipeline, Home(tmp_path / "home").make())
        stager._seen[""] = "", sampled(pipeline.format, values)
        batch = Batch("b", "p", ())
        job = stager._shaped(batch, [wanted(pipeline, None, lambda: stager.columns(batch, 0))], None)
        output = RangeOutput(job, Piece(SOURCE, Range(0, len(values))))
        held = RecordBlock.of(range(len(values)), [0] * len(values), values)
        try:
            output.decoded([reads.decode(Payloads.of_array(held.column("line"))) for reads in job.decoders], held)
        except BaseException:
            output.abandon()
            raise
        report = output.finish(len(values), 0, 0)
        assert report.counts.unaccounted(len(values)) == 0
        rows = [row for file in report.tables[0].files for row in pq.read_table(file.path).to_pylist()]
        shown = [{k: v for k, v in row.items() if not k.startswith("_kafka_")} for row in rows]
        dead = [] if report.dead_letters is None else pq.read_table(report.dead_letters.path).to_pylist()
        return shown, [f"{row['offset']} {row['stage']}: {row['reason']}" for row in dead], report

    return stage


ASIDE = {"constraint": "dead_letter"}


def test_several_calls_of_one_lookup_and_calls_inside_of_calls(staged: Staged) -> None:
    rows, aside, report = staged(
        [{"a": "DE", "b": "FR"}, {"a": "NA"}, {"a": "FR", "b": "de"}],
        set={
            "x": "c(a).name || '/' || coalesce(C(b).Name, c(upper(b)).name, '-')",
            "boss": "c(c(a).boss).name",
            "B": "c(a).BOSS",
        },
    )
    assert [(row["x"], row["boss"], row["B"]) for row in rows] == [
        ("Germany/France", "France", "FR"), ("Namibia/-", None, None), ("France/Germany", "Namibia", "NA"),
    ]  # fmt: skip
    assert not aside and report.lookups["c"].rows == 3 and set(report.lookups) == {"c"}


def test_numbers_and_text_find_each_other_and_what_can_be_no_key_has_no_row(staged: Staged) -> None:
    records = [{"t": "2", "f": 1.0, "i": 2, "b": "07"}, {"t": "two", "f": 1.5, "i": 3}, {"t": "2.5", "f": 1e300, "i": None}]
    rows, _, _ = staged(records, set={"x": "n(t).word", "y": "n(f).word", "z": "n(i).word", "w": "n(b[2:]).word"})
    assert [(row["x"], row["y"], row["z"]) for row in rows] == [("two", "one", "two"), (None, None, None), (None, None, None)]


@each_case(
    "key, rows, kind, values, expected",
    [
        ("DOUBLE", [2.0**53], "BIGINT", [2**53 + 1, 2**53, 2**53 - 1], [None, 0, None]),
        ("DOUBLE", [2.0**64], "UBIGINT", [2**64 - 1, 2**64 - 1000], [None, None]),
        ("FLOAT", [2.0**24, 0.1], "INTEGER", [2**24, 2**24 + 1], [0, None]),
        ("FLOAT", [0.1, float("inf")], "DOUBLE", [0.1, 0.10000000149011612, 0.10000000001, float("inf")], [0, 0, None, 1]),
        ("DECIMAL(10,2)", [Decimal("1.00")], "DOUBLE", [1.004, 1.0, 1e300], [None, 0, None]),
        ("DECIMAL(10,2)", [Decimal("1.00")], "DECIMAL(10,3)", [Decimal("1.004"), Decimal("1.000")], [None, 0]),
        (
            "DECIMAL(10,2)",
            [Decimal("1.00")],
            "VARCHAR",
            ["1.004", "1", "10e-1", "1.0000", "x", None],
            [None, 0, 0, 0, None, None],
        ),
        ("BIGINT", [7], "DOUBLE", [7.0, 7.4, 1e300], [0, None, None]),
        ("HUGEINT", ["7"], "DOUBLE", [7.0, 7.4], [0, None]),
    ],
)
def test_numbers_of_other_types_match_only_if_they_are_equal(
    key: str, rows: list[Any], kind: str, values: list[Any], expected: list[int | None]
) -> None:
    table = pa.table({"id": pa.array(rows, staged_type(parse_type(key))), "n": list(range(len(rows)))})
    reference = Reference("l", 1, Columns.of({"id": key, "n": "BIGINT"}), False, Version("", 1, 0), packed(table))
    join = Join([Call("l(x)", "l", ("x",), ("n",))], {"l": Here(reference)}, Columns.of({"x": kind}))
    found, reasons = join.apply(pa.table({"x": pa.array(values, staged_type(parse_type(kind)))}))
    assert (found.column(1).to_pylist(), reasons) == (expected, {})


@each_case(
    "kind, value, shown",
    [
        ("DATE", 4_000_000, "12921-08-18"),
        ("DATE", -1_000_000, "0769-02-04 (BC)"),
        ("DATE", 2**31 - 1, "infinity"),
        ("DATE", 0, "1970-01-01"),
        ("TIMESTAMP", 253_402_300_800_000_000, "10000-01-01 00:00:00"),
        ("TIMESTAMP WITH TIME ZONE", 2**63 - 1, "infinity"),
        ("TIME", 1, "00:00:00.000001"),
        ("DECIMAL(10,2)", Decimal("1.50"), "1.50"),
        ("FLOAT", 0.1, "0.1"),
        ("BOOLEAN", True, "true"),
        ("BLOB", b"\x00a", "\\x00a"),
        ("VARCHAR", "it's", '"it\'s"'),
        ("BIGINT", None, "NULL"),
    ],
)
def test_a_missing_key_of_every_type_is_in_the_reason(kind: str, value: Any, shown: str) -> None:
    """Python has no dates beyond the years 1 to 9999."""
    arrow, columns = staged_type(parse_type(kind)), Columns.of({"id": kind, "n": "BIGINT"})
    table = pa.table({"id": pa.nulls(0, arrow), "n": pa.nulls(0, pa.int64())})
    reference = Reference("l", 1, columns, True, Version("", 0, 0), packed(table))
    join = Join([Call("l(x)", "l", ("x",), ("n",))], {"l": Here(reference)}, Columns.of({"x": kind}))
    found, reasons = join.apply(pa.table({"x": pa.array([value], arrow)}))
    assert (found.column(1).to_pylist(), reasons) == ([None], {0: f"l(x): the lookup has no row for {shown}"})


WIDE: dict[str, Any] = {
    "lookups": {"w": {"path": "w.json", "key": "code"}},
    "select": "SELECT id, w(code).body AS body FROM records, UNNEST(codes) AS code",
    "columns": {"codes": "VARCHAR[]"},
    "errors": ASIDE,
}


@pytest.fixture
def wide(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> Staged:
    """`staged` with a lookup of 1,000 bytes for DE and 3 for FR, and 5,000 bytes in memory."""
    Path("w.json").write_text(json.dumps([{"code": "DE", "body": "x" * 1000}, {"code": "FR", "body": "fr."}]))
    for module in (repeated, lookup_join):
        monkeypatch.setattr(module, "MOST_BYTES", 5_000)
    return staged


def test_copies_of_a_lookups_values_are_bounded_by_record(wide: Staged) -> None:
    lists = [["DE"] * 10, ["DE"], ["FR"] * 100, ["DE"] * 5, ["XX", *["DE"] * 6, "FR"], [], ["FR", "DE"]]
    rows, aside, report = wide([{"id": at, "codes": codes} for at, codes in enumerate(lists)], **WIDE)
    assert aside == [
        "0 constraint: w(code): 10 rows, each with a copy of the lookup's values: 10,000 bytes, over 5,000",
        "4 constraint: w(code): 8 rows, each with a copy of the lookup's values: 6,003 bytes, over 5,000",
    ]
    sizes = {"DE": 1000, "FR": 3}
    expected = [(at, sizes[code]) for at in (1, 2, 3, 6) for code in lists[at]]
    assert [(row["id"], len(row["body"])) for row in rows] == expected
    assert (report.counts.given, report.counts.filtered) == (4, 1)


def test_copies_for_records_of_one_row_are_joined_in_parts(wide: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WIDE["lookups"]["w"], "required", True)
    fields = {"lookups": WIDE["lookups"], "set": {"x": "w(a).body"}, "errors": {**ASIDE, "parse": "dead_letter"}}
    joined, real = list[int](), lookup_join.crowded

    def crowded(sizes: Any, payloads: Any) -> Any:
        large = real(sizes, payloads)
        joined.append(int(sizes.sum()))
        return large

    monkeypatch.setattr(lookup_join, "crowded", crowded)
    records = [{"id": at, "a": "XX" if at == 7 else "DE"} for at in range(20)]
    rows, aside, report = wide(records, **fields)
    assert max(joined) <= 5_000 and sum(joined) == 19_000
    assert [(row["id"], len(row["x"])) for row in rows] == [(at, 1000) for at in range(20) if at != 7]
    assert aside == ["7 constraint: w(a): the lookup has no row for 'XX'"] and report.counts.rows == 19
    monkeypatch.setattr(repeated, "MOST_BYTES", 900)  # one copy is never too many
    assert len(wide(records[:3], **fields)[0]) == 3


def test_copies_of_several_lookups_are_bounded_together(wide: Staged) -> None:
    text = "SELECT id, w(code).body || w(upper(code)).body AS body FROM records, UNNEST(codes) AS code"
    rows, aside, _ = wide([{"id": 1, "codes": ["DE"] * 3}, {"id": 2, "codes": ["DE"] * 2}], **{**WIDE, "select": text})
    assert [row["id"] for row in rows] == [2, 2]
    assert aside == ["0 constraint: w(UPPER(code)): 3 rows, each with a copy of the lookup's values: 6,000 bytes, over 5,000"]


def test_nested_values_of_a_row(staged: Staged) -> None:
    rows, _, _ = staged([{"i": 1}, {"i": 2}], set={"x": "n(i).x.y[2]", "all": "n(i).x"})
    assert [(row["x"], row["all"]) for row in rows] == [(2, {"y": [1, 2]}), (None, None)]


def test_a_key_that_must_be_there(staged: Staged) -> None:
    records = [{"a": "DE", "keep": 1}, {"a": "XX", "keep": 1}, {"a": "XX", "keep": 0}, {"keep": 1}, {"a": "NA", "keep": 1}]
    fields: dict[str, Any] = {"set": {"x": "c(a).name"}, "where": "keep = 1", "c": {"required": True}}
    rows, aside, report = staged(records, **fields, errors=ASIDE)
    assert [row["x"] for row in rows] == ["Germany", "Namibia"]
    assert aside == ["1 constraint: c(a): the lookup has no row for 'XX'", "3 constraint: c(a): the lookup has no row for NULL"]
    assert report.counts.filtered == 1, "what `where` leaves out is not asked for"
    assert len(staged(records, **fields, errors={"constraint": "skip"})[0]) == 2
    with pytest.raises(RecordRejected, match=r"orders/3 offset 1: c.a.: the lookup has no row for 'XX'"):
        staged(records, **fields)


def test_a_key_that_must_be_there_in_where(staged: Staged) -> None:
    fields: dict[str, Any] = {"where": "c(a).name <> 'France'", "c": {"required": True}, "errors": ASIDE}
    rows, aside, report = staged([{"a": "XX"}, {"a": "FR"}, {"a": "DE"}], **fields)
    assert [row["a"] for row in rows] == ["DE"] and len(aside) == 1 and report.counts.filtered == 1


def test_a_key_whose_expression_fails_is_the_records_fault(staged: Staged) -> None:
    records = [{"t": "1"}, {"t": "x"}, {"t": "2"}]
    rows, aside, _ = staged(records, set={"x": "n(CAST(t AS BIGINT)).word"}, errors=ASIDE)
    assert [row["x"] for row in rows] == ["one", "two"]
    assert len(aside) == 1 and aside[0].startswith("1 constraint: n(CAST(t AS BIGINT)): Could not convert string 'x'")


def test_a_value_of_a_lookup_that_fails_in_an_expression(staged: Staged) -> None:
    rows, aside, _ = staged([{"a": "DE"}, {"a": "NA"}], set={"x": "CAST(c(a).n AS BIGINT)"}, errors=ASIDE)
    assert [row["x"] for row in rows] == [1]
    assert len(aside) == 1 and "x" in aside[0] and "Could not convert" in aside[0]


def test_select_names_columns_and_asks(staged: Staged) -> None:
    text = "SELECT a, c(a).name AS country FROM records WHERE c(a).code IS NOT NULL"
    rows, _, _ = staged([{"a": "DE", "more": 1}, {"a": "XX"}], select=text)
    assert rows == [{"a": "DE", "country": "Germany"}]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"set": {"x": "c(a)"}}, r"c\(\.\.\.\) is a row of a lookup"),
        ({"set": {"x": "c(a, i).name"}}, "expected 1 key, found 2"),
        ({"set": {"x": "c.name"}}, "lookups.c is a lookup -> write c"),
        ({"where": "c = 'DE'"}, "as a column, but lookups.c is a lookup"),
        ({"set": {"x": "c(a).nme"}}, "has no column nme -> there are code, name"),
        ({"set": {"x": "list_transform([a], lambda q: c(q).name)"}}, "inside a lambda"),
        ({"set": {"x": "n([i]).word"}}, r"the key id of lookup n is BIGINT"),
        ({"set": {"x": "n(CAST('2026-11-21' AS DATE)).word"}}, r"the key id of lookup n is BIGINT"),
        ({"set": {"x": "c(sum(i)).name"}}, "aggregates|aggregate"),
        ({"set": {"x": "c((SELECT 1)).name"}}, "a query is not allowed"),
        ({"set": {"x": "c(nope(i)).name"}}, "nope does not exist"),
        ({"set": {"x": "lower(a).name"}, "lookups": {"lower": {"path": "c.csv", "key": "code"}}}, "lower is a function"),
        ({"set": {"x": "d(a).name"}, "lookups": {"d": {"path": "none.csv", "key": "code"}}}, "file 'none.csv' does not exist"),
        ({"set": {"x": "d(a).name"}, "lookups": {"d": {"path": "c.csv", "key": "cod"}}}, "no column cod"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_write(staged: Staged, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidPipeline, match=words) as raised:
        staged([{"a": "DE", "i": 1}], **fields)
    assert raised.value.hint or "aggregate" in str(raised.value) or "nope" in str(raised.value)
