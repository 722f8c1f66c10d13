"""What `where`, `set` and NOT NULL make of blocks of records, without Kafka and without Spark: files are read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpipe.batch.batch import Piece, RangeReport
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, RecordRejected, SchemaConflict
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from resources.decode.block import Payloads
from resources.duckdb_engine.expression_checks import checked_selection
from resources.kafka.record_block import RecordBlock
from resources.spark.task.projection_plan import shaped
from resources.spark.task.range_writer import RangeOutput
from resources.spark.task.task_spec import JobSpec, TableSpec
from tests.cases import each_case

SOURCE = PartitionId(TopicId("c", "t", "tweets"), 3)


def pipeline(**fields: Any) -> Pipeline:
    return Pipeline.model_validate({"name": "p", "source": {"brokers": "b", "topic": "tweets"}, "into": {"table": "t"}, **fields})


class Staged:
    """One range of records through decoder, selector and files."""

    def __init__(
        self,
        folder: Path,
        definition: Pipeline,
        columns: dict[str, str],
        values: list[Any],
        required: tuple[str, ...] = (),
        sample: dict[str, str] | None = None,
        held: RecordBlock | None = None,
    ) -> None:
        def given() -> Columns:
            return Columns.of(sample or {})

        kinds = Columns.of(columns)
        errors = definition.errors
        job = JobSpec(
            batch="b",
            config={},
            staging=str(folder),
            format=definition.format,
            tables=(TableSpec(kinds, shape=shaped(definition, checked_selection(definition), kinds, given, required)),),
            parse=errors.parse,
            constraint=errors.constraint,
        )
        raw = [value if isinstance(value, bytes | None) else json.dumps(value).encode() for value in values]
        held = held or RecordBlock.of(list(range(len(raw))), [1_600_000_000_000 + n for n in range(len(raw))], raw)
        output = RangeOutput(job, Piece(SOURCE, Range(0, len(raw))))
        try:
            (reads,) = job.decoders
            block, tombstones = (held, 0) if reads.takes_nulls else held.split_tombstones()
            output.filtered += tombstones
            output.decoded([reads.decode(Payloads.of_array(block.column("line")), block.column("key"))], block)
            self.report: RangeReport = output.finish(len(raw), 0, 0)
        except BaseException:
            output.abandon()
            raise
        self.new = self.report.tables[0].new_columns.to_dict()
        assert self.report.counts.unaccounted(len(raw)) == 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        found = [row for file in self.report.tables[0].files for row in pq.read_table(file.path).to_pylist()]
        return [{k: v for k, v in row.items() if k not in ("_kafka_partition", "_kafka_timestamp")} for row in found]

    @property
    def aside(self) -> list[tuple[int, str, str]]:
        if self.report.dead_letters is None:
            return []
        found = pq.read_table(self.report.dead_letters.path).to_pylist()
        return [(row["offset"], row["stage"], row["reason"]) for row in found]


@pytest.fixture
def staged(tmp_path: Path) -> Callable[..., Staged]:
    return lambda *given, **more: Staged(tmp_path, *given, **more)


ASIDE = {"constraint": "dead_letter"}


def test_where_filters_and_counts(staged: Callable[..., Staged]) -> None:
    found = staged(pipeline(where="n > 1"), {"n": "BIGINT"}, [{"n": 1}, {"n": 2}, {}, {"n": None}, {"n": 3}, None, b"{"])
    assert found.rows == [{"n": 2, "_kafka_offset": 1}, {"n": 3, "_kafka_offset": 4}]
    assert (found.report.counts.filtered, found.report.counts.dead_letters) == (4, 1)


def test_where_fails_for_a_record_of_a_table_without_columns(staged: Callable[..., Staged]) -> None:
    where = "CAST(CASE _kafka_offset WHEN 0 THEN 'x' ELSE '1' END AS INTEGER) = 1"
    found = staged(pipeline(where=where, errors=ASIDE), {}, [{}, {}, {}])
    assert found.rows == [{"_kafka_offset": 1}, {"_kafka_offset": 2}]
    assert [(offset, stage) for offset, stage, _ in found.aside] == [(0, "constraint")]


def test_set_computes_columns_from_the_record_and_from_kafka(staged: Callable[..., Staged]) -> None:
    definition = pipeline(
        set={
            "text": "upper(text)",
            "twice": "n * 2",
            "place": "get_kafka_pipeline_prop('prop_topicname') || _kafka_partition || '/' || _kafka_offset",
            "at": "_kafka_timestamp",
            "who": "get_kafka_pipeline_prop('who')",
            "key": "get_kafka_pipeline_prop('prop_key')",
        }
    )
    held = RecordBlock.of(
        [7, 9], [1000, -1], [b'{"n": 4, "text": "a"}', b'{"text": "b"}'], [b"k", None], [[("who", b"me")], None]
    )
    columns = {"n": "BIGINT", "text": "VARCHAR", "twice": "BIGINT", "place": "VARCHAR", "at": "TIMESTAMP", "who": "VARCHAR"}
    found = staged(definition, {**columns, "key": "VARCHAR"}, [b"", b""], held=held)
    first, second = found.rows
    assert (first["n"], first["text"], first["twice"], first["place"], first["who"], first["key"]) == (
        4, "A", 8, "tweets3/7", "me", "k",
    )  # fmt: skip
    assert first["at"].isoformat() == "1970-01-01T00:00:01"
    assert (second["text"], second["twice"], second["at"], second["who"], second["key"]) == ("B", None, None, None, None)


def test_one_record_that_fails_is_set_aside_alone(staged: Callable[..., Staged]) -> None:
    definition = pipeline(set={"n": "CAST(v AS BIGINT)"}, errors=ASIDE)
    columns = {"v": "VARCHAR", "n": "INTEGER"}
    found = staged(definition, columns, [{"v": "1"}, {"v": "x"}, {"v": None}, {"v": "3000000000"}, {"v": "4"}])
    assert [(row["n"], row["_kafka_offset"]) for row in found.rows] == [(1, 0), (None, 2), (4, 4)]
    assert [(offset, stage) for offset, stage, _ in found.aside] == [(1, "constraint"), (3, "constraint")]
    assert "set.n" in found.aside[0][2] or "n:" in found.aside[0][2]
    assert found.aside[1][2] == "n: 3000000000 is not a valid INTEGER"


def test_expressions_that_share_what_fails_set_that_record_aside_alone(staged: Callable[..., Staged]) -> None:
    definition = pipeline(set={"n": "CAST(v AS BIGINT)", "m": "CAST(v AS BIGINT) + 1"}, errors=ASIDE)
    found = staged(definition, {"v": "VARCHAR", "n": "BIGINT", "m": "BIGINT"}, [{"v": "1"}, {"v": "x"}, {"v": "3"}])
    assert [(row["n"], row["m"]) for row in found.rows] == [(1, 2), (3, 4)]
    assert [offset for offset, _, _ in found.aside] == [1]


def test_a_record_that_fails_in_where_is_set_aside_and_the_others_go_on(staged: Callable[..., Staged]) -> None:
    definition = pipeline(where="CAST(v AS BIGINT) > 1", errors={"constraint": "skip"})
    found = staged(definition, {"v": "VARCHAR"}, [{"v": "1"}, {"v": "x"}, {"v": "3"}])
    assert [row["v"] for row in found.rows] == ["3"]
    assert found.report.counts.filtered == 2 and not found.aside


def test_the_default_is_to_fail_and_names_the_record(staged: Callable[..., Staged]) -> None:
    with pytest.raises(RecordRejected, match=r"offset 1: n: .*'x'.*errors\.constraint"):
        staged(pipeline(set={"n": "CAST(v AS BIGINT)"}), {"v": "VARCHAR", "n": "BIGINT"}, [{"v": "1"}, {"v": "x"}])


@pytest.mark.parametrize(
    ("expression", "kind", "good", "bad"),
    [
        ("CAST(v AS DOUBLE)", "BIGINT", ["3.0", "-2"], ["3.5", "1e300", "nan"]),
        ("CAST(v AS BIGINT)", "UTINYINT", ["0", "255"], ["256", "-1"]),
        ("CAST(v AS TIMESTAMP)", "DATE", ["2026-01-01", "2026-01-01 00:00:00"], ["2026-01-01 10:00:00"]),
        ("v", "BIGINT", ["3", "-3"], ["3.0", "x", "0x10", "9223372036854775808"]),
        ("v", "DATE", ["2026-02-28"], ["2026-02-30", "2026-01-01 10:00"]),
        ("v", "JSON", ['{"a":1}', "1.10"], ["{", "x"]),
        ("v", "UUID", ["00000000-0000-0000-0000-000000000001"], ["1"]),
        ("v", "HUGEINT", ["170141183460469231731687303715884105727"], ["1.5"]),
        ("CAST(v AS BIGINT)", "BOOLEAN", ["0", "1"], ["2"]),
        ("CAST(v AS BIGINT)", "VARCHAR", ["7"], []),
        ("CAST(v AS HUGEINT)", "DECIMAL(5,2)", ["999"], ["1000"]),
        ("encode(v)", "VARCHAR", ["a"], []),
        ("[v]", "VARCHAR", ["a"], []),
        ("{'x': CAST(v AS DOUBLE)}", "STRUCT(x BIGINT)", ["3"], ["3.5"]),
        ("[CAST(v AS BIGINT)]", "HUGEINT[]", ["3"], []),
    ],
)
def test_a_value_becomes_the_column_s_only_where_nothing_is_lost(
    staged: Callable[..., Staged], expression: str, kind: str, good: list[str], bad: list[str]
) -> None:
    definition = pipeline(set={"x": expression}, errors=ASIDE)
    found = staged(definition, {"v": "VARCHAR", "x": kind}, [{"v": v} for v in [*good, *bad, None]])
    assert [row["v"] for row in found.rows] == [*good, None]
    assert all(row["x"] is not None for row in found.rows[:-1])
    assert [offset for offset, _, _ in found.aside] == list(range(len(good), len(good) + len(bad)))


def test_columns_that_the_table_lacks_are_reported_with_the_expression_s_type(staged: Callable[..., Staged]) -> None:
    found = staged(pipeline(set={"day": "CAST(seen AS DATE)"}), {"seen": "VARCHAR"}, [{"seen": "2026-01-01", "new": 1}])
    assert found.new == {"day": "DATE", "new": "BIGINT"}


def test_members_that_are_replaced_are_no_new_columns(staged: Callable[..., Staged]) -> None:
    found = staged(pipeline(set={"at": "now()"}), {"at": "TIMESTAMP WITH TIME ZONE"}, [{"at": 5}, {"at": {"x": 1}}])
    assert not found.new and all(row["at"] is not None for row in found.rows)


def test_without_evolution_a_column_that_the_table_lacks_is_an_error(staged: Callable[..., Staged]) -> None:
    with pytest.raises(SchemaConflict, match=r"set\.day: table t has no such column"):
        staged(pipeline(set={"day": "1"}, schema="ignore"), {"at": "VARCHAR"}, [])


def test_null_into_a_column_that_takes_none(staged: Callable[..., Staged]) -> None:
    found = staged(pipeline(errors=ASIDE), {"n": "BIGINT", "m": "BIGINT"}, [{"n": 1}, {"m": 1}, {"n": 2}], required=("n",))
    assert [row["n"] for row in found.rows] == [1, 2]
    assert found.aside == [(1, "constraint", "n: NULL in a NOT NULL column")]


def test_csv_variables_and_dummies(staged: Callable[..., Staged]) -> None:
    kind = {"type": "csv", "fields": ["id", "@when", "@dummy"], "delimiter": ","}
    definition = pipeline(format=kind, set={"at": "mysql: STR_TO_DATE(@when, '%d.%m.%Y')"}, where="@when <> ''", errors=ASIDE)
    found = staged(definition, {"id": "BIGINT", "at": "DATE"}, [b"1,24.12.2026,x", b"2,,y", b"3,1.1.2026,z\n4,,q"])
    assert [(row["id"], str(row["at"])) for row in found.rows] == [(1, "2026-12-24"), (3, "2026-01-01")]
    assert found.report.counts.filtered == 1 and not found.new


def test_a_line_that_fails_takes_its_whole_record_along(staged: Callable[..., Staged]) -> None:
    kind = {"type": "csv", "fields": ["@a"]}
    definition = pipeline(format=kind, set={"n": "CAST(@a AS BIGINT)"}, errors=ASIDE)
    found = staged(definition, {"n": "BIGINT"}, [b"1\n2", b"3\nx", b"4"])
    assert [row["n"] for row in found.rows] == [1, 2, 4]
    assert [offset for offset, _, _ in found.aside] == [1]


def test_raw_records(staged: Callable[..., Staged]) -> None:
    definition = pipeline(format={"type": "raw"}, where="value IS NOT NULL", set={"size": "octet_length(value)"})
    found = staged(definition, {"key": "BLOB", "value": "BLOB", "size": "BIGINT"}, [b"abc", None])
    assert [(row["value"], row["size"]) for row in found.rows] == [(b"abc", 3)]


def test_declared_variables_have_types(staged: Callable[..., Staged]) -> None:
    kind = {"type": "csv", "fields": ["@a"]}
    found = staged(pipeline(format=kind, columns={"@a": "BIGINT"}, set={"n": "@a + 1"}), {"n": "BIGINT"}, [b"1"])
    assert found.rows[0]["n"] == 2


@each_case(
    ("fields", "words"),
    [
        ({"set": {"x": "(SELECT 1)"}}, "query"),
        ({"set": {"x": "sum(n)"}}, "an aggregate needs several records"),
        ({"set": {"x": "nope(n)"}}, "nope does not exist"),
        ({"set": {"x": "1) FROM range(9) --"}}, "expression"),
        ({"set": {"x": "nextval('s')"}}, "nextval"),
        ({"set": {"x": "unnest([1, 2])"}}, "UNNEST"),
        ({"set": {"@x": "1"}}, "not a column"),
        ({"set": {"_kafka_offset": "1"}}, "not a column"),
        ({"set": {"a": "1", "A": "2"}}, "duplicate column"),
        ({"set": {"x": "@y"}}, "the record does not have"),
        ({"where": "_kafka_nope = 1"}, "is not a Kafka coordinate"),
        ({"where": "v", "format": {"type": "raw"}}, "the record does not have"),
        ({"where": "sleep_ms(1)"}, "sleep_ms"),
        ({"where": "current_setting('threads') = '1'"}, "current_setting"),
    ],
)
def test_refused_before_anything_is_read(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidPipeline, match=words):
        checked_selection(pipeline(**fields))


@pytest.mark.parametrize("text", ["read_text('/etc/hostname')", "n + 'a'::INTERVAL"])
def test_what_does_not_fit_the_columns_is_refused_when_they_are_known(staged: Callable[..., Staged], text: str) -> None:
    with pytest.raises(InvalidPipeline, match=r"set\.x"):
        staged(pipeline(set={"x": text}), {"n": "BIGINT", "x": "BIGINT"}, [{"n": 1}])


value = st.one_of(st.none(), st.integers(-300, 300), st.floats(-300, 300), st.sampled_from(["", "7", "-7", "x", "1e2", "3.5"]))


@settings(max_examples=12, deadline=None)
@given(values=st.lists(value, max_size=8), volatile=st.booleans())
def test_the_same_as_record_by_record(tmp_path_factory: pytest.TempPathFactory, values: list[Any], volatile: bool) -> None:
    """A block gives what each of its records gives alone: rows, order, reasons."""
    extra = " + CAST(random() * 0 AS INTEGER)" if volatile else ""
    fields = {"set": {"n": f"CAST(v AS INTEGER){extra}", "m": "CAST(v AS DOUBLE)"}, "where": "v <> '7'", "errors": ASIDE}
    columns = {"v": "VARCHAR", "n": "TINYINT", "m": "BIGINT"}
    folder = tmp_path_factory.mktemp("staged")
    whole = Staged(folder, pipeline(**fields), columns, [{"v": v} for v in values])
    alone = [Staged(folder, pipeline(**fields), columns, [{"v": v}]) for v in values]
    assert whole.rows == [{**row, "_kafka_offset": at} for at, one in enumerate(alone) for row in one.rows]
    assert whole.aside == [(at, stage, why) for at, one in enumerate(alone) for _, stage, why in one.aside]


def test_select_takes_what_it_names(staged: Callable[..., Staged]) -> None:
    query = "SELECT id, n + 1 AS more, `odd name` AS odd FROM records WHERE CAST(n AS BIGINT) IS DISTINCT FROM 2"
    definition = pipeline(select=query.replace("n + 1", "CAST(n AS BIGINT) + 1"), errors=ASIDE)
    values = [
        {"id": 1, "n": 1, "odd name": "x", "zz": {}},
        {"id": 2, "n": 2},
        {"id": 3, "n": "x"},
        {"n": None},
        {"id": 4, "zz": 1},
    ]
    found = staged(definition, {"id": "BIGINT", "more": "INTEGER", "odd": "VARCHAR"}, values)
    assert [(row["id"], row["more"], row["odd"]) for row in found.rows] == [(1, 2, "x"), (None, None, None), (4, None, None)]
    assert [offset for offset, _, _ in found.aside] == [2] and not found.new


def test_select_everything_and_more(staged: Callable[..., Staged]) -> None:
    found = staged(
        pipeline(select="select *, n * 2 as twice from records where n > 0"), {"n": "BIGINT"}, [{"n": 1, "m": 2}, {"n": 0}]
    )
    assert found.rows == [{"n": 1, "_kafka_offset": 0}] and found.new == {"twice": "BIGINT", "m": "BIGINT"}


def test_select_reports_columns_that_the_table_lacks(staged: Callable[..., Staged]) -> None:
    found = staged(pipeline(select="SELECT id, n, 1 AS one FROM records"), {"id": "BIGINT"}, [{"id": 1, "n": 2.5, "m": 2}])
    assert found.new == {"one": "INTEGER", "n": "DOUBLE"}


@pytest.mark.parametrize("count", [3, 20])
@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELECT id, Amount FROM records", "amount"),
        ("SELECT id FROM records WHERE Lang = 'en'", "lang"),
        ("SELECT id, upper(GRÖSSE) AS size FROM records", "grösse"),
    ],
)
def test_select_rejects_a_member_that_differs_by_case_only(
    staged: Callable[..., Staged], query: str, name: str, count: int
) -> None:
    """Three records are decoded row by row, twenty by compiled code."""
    record = {"id": 1, "lang": "en", "amount": 5, "grösse": "s", "Länge": 1, "": 1, "tags": {"Id": 1}}
    exact = {"id": 2, "Lang": "en", "Amount": 6, "GRÖSSE": "s", "Länge": {"ID": 2}}
    columns = {"id": "BIGINT", "amount": "BIGINT", "size": "VARCHAR"}
    found = staged(pipeline(select=query), columns, [record, exact] * count)
    assert [row["id"] for row in found.rows] == [2] * count
    assert [(at, stage) for at, stage, _ in found.aside] == [(2 * at, "parse") for at in range(count)]
    assert {why.partition(" from ")[0] for _, _, why in found.aside} == {f"member {name} differs by case only"}


@pytest.mark.parametrize("count", [3, 20])
def test_select_reads_the_member_of_its_name_beside_one_in_another_case(staged: Callable[..., Staged], count: int) -> None:
    columns = {"id": "BIGINT", "amount": "BIGINT"}
    found = staged(pipeline(select="SELECT id, amount FROM records"), columns, [{"id": 1, "ID": "x", "amount": 5}] * count)
    assert [(row["id"], row["amount"]) for row in found.rows] == [(1, 5)] * count and not found.aside


def test_select_reports_members_that_a_copied_column_lacks(staged: Callable[..., Staged]) -> None:
    """Those of inputs that it does not copy are no columns."""
    definition = pipeline(
        select="SELECT id, user, json_extract(seen, '$.a') AS a FROM records", columns={"seen": "STRUCT(a BIGINT)"}
    )
    record = {"id": 1, "user": {"name": "Bo", "email": "b@x"}, "seen": {"a": 1, "b": 2}}
    found = staged(definition, {"id": "BIGINT", "user": "STRUCT(name VARCHAR)", "a": "JSON"}, [record] * 20)
    assert found.new == {"user": "STRUCT(email VARCHAR)"} and found.rows[0]["user"] == {"name": "Bo"}


@each_case("policy", ["evolve", "ignore"])
def test_a_path_without_default_is_required_whether_or_not_the_table_has_its_column(
    staged: Callable[..., Staged], policy: str
) -> None:
    mapping = {"a": "a", "b": "x::b", "c": {"path": "c", "default": None}}
    definition = pipeline(format={"mapping": mapping}, schema=policy)
    found = staged(definition, {"a": "BIGINT"}, [{"a": 1}, {"a": 2, "x": {"b": 3}}])
    assert [offset for offset, _, _ in found.aside] == [0] and [row["a"] for row in found.rows] == [2]


def test_select_over_csv_and_raw(staged: Callable[..., Staged]) -> None:
    kind = {"type": "csv", "fields": ["a", "@b", "c"]}
    found = staged(
        pipeline(format=kind, select="SELECT a, @b || c AS bc FROM records"), {"a": "BIGINT", "bc": "VARCHAR"}, [b"1\t2\t3"]
    )
    assert [(row["a"], row["bc"]) for row in found.rows] == [(1, "23")] and not found.new
    raw = pipeline(format={"type": "raw"}, select="SELECT decode(value) AS text FROM records")
    assert staged(raw, {"text": "VARCHAR"}, [b"x"]).rows[0]["text"] == "x"


@each_case(
    "query",
    [
        "SELECT 1", "INSERT INTO t SELECT 1", "SELECT a FROM other", "SELECT DISTINCT a FROM records", "SELECT a+1 FROM records",
        "SELECT a FROM records, records", "SELECT a FROM records JOIN x ON true", "SELECT a FROM records ORDER BY a",
        "SELECT a FROM records WHERE a > 1 GROUP BY a", "SELECT a, A FROM records", "SELECT sum(a) AS s FROM records",
        "SELECT (SELECT 1) AS s FROM records", "SELECT a FROM records; DROP TABLE t", "SELECT * EXCLUDE (a) FROM records",
        "SELECT a FROM records WHERE", "SELECT @x AS x FROM records", "SELECT , FROM records",
    ],
)  # fmt: skip
def test_other_queries_are_refused(query: str) -> None:
    with pytest.raises(InvalidPipeline):
        checked_selection(pipeline(select=query))
