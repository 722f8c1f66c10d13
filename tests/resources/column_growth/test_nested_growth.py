"""Structs, lists and maps with very many fields, through real decoders into real tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow.parquet as pq
import pytest

from kpipe.batch.batch import Batch, Piece, RangeReport
from kpipe.column_growth import Closed
from kpipe.schema.columns import Columns
from resources.spark.task import range_task
from tests.resources.column_growth.wide_records import ids, names, only_duckdb, reasons, staged_batch, wide
from tests.resources.several import Bench, _Stager


class Pieces(_Stager):
    """Reads every range in parts, as several tasks do."""

    count = 1

    def stage(self, batch: Batch, tables: Sequence[Columns], closed: Sequence[Closed] = ()) -> Sequence[RangeReport]:
        job = self._shaped(batch, tables, None, closed)
        parts = [(step.source, part) for step in batch.steps for part in step.range.split(self.count)]
        return [range_task.stage(job, Piece(source, part)) for source, part in parts]


@only_duckdb
def test_the_split_into_tasks_changes_neither_columns_nor_dead_letters(bench: Callable[..., Bench]) -> None:
    made = bench()
    for partition in range(2):
        made.topics.produce(partition, *(wide(at, 300, f"p{partition}r{at}_") for at in range(4)), {"id": 9})
        made.topics.produce(partition, *({"id": at, "o": {f"k{partition}_{at}": at}} for at in range(10, 130)))
    found = []
    for count in (1, 2, 7):
        loop = made.ingest()
        loop.stager = Pieces(made.pipeline, made.home, made.topics, made.place)
        loop.stager.count = count
        extract = staged_batch(loop)
        dead = [
            (row["partition"], row["offset"], row["reason"])
            for report in extract.reports
            if report.dead_letters is not None
            for row in pq.read_table(report.dead_letters.path).to_pylist()
        ]
        found.append((set(extract.columns[0].items), extract.closed, sorted(dead)))
    assert found[0] == found[1] == found[2] and found[0][2]


@only_duckdb
@pytest.mark.parametrize(("kind", "value"), [
    ("STRUCT(a BIGINT)", lambda members: members), ("STRUCT(a BIGINT)[]", lambda members: [{"a": 1}, members]),
], ids=["an object", "a list"])  # fmt: skip
def test_fields_of_a_declared_struct_are_bounded(bench: Callable[..., Bench], kind: str, value: Callable[..., Any]) -> None:
    made = bench(columns={"id": "BIGINT", "o": kind})
    made.topics.produce(0, {"id": 0, "o": value({"a": 1})})
    made.run()
    made.topics.produce(0, {"id": 1}, {"id": 2, "o": value({f"k{at}": at for at in range(201)})}, {"id": 3, "o": value({"b": 1})})
    made.run()
    assert sorted(ids(made)) == [0, 1, 3] and "200 fields" in reasons(made)[2]
    for batch in range(2):
        made.topics.produce(0, {"id": 4 + batch, "o": value({f"b{batch}k{at:03}": at for at in range(150)})}, {"id": 10})
        made.run()
    assert sorted(ids(made)) == [0, 1, 3, 4, 10, 10] and sorted(reasons(made)) == [2, 6]


WIDE_OBJECT = {f"k{at}": 1 for at in range(201)}
ALONE = {
    "201 members": ([{"o": {"new": 1}}, {"o": WIDE_OBJECT}], [1], "200 fields"),
    "201 members in a list": ([{"l": [{"new": 1}]}, {"l": [WIDE_OBJECT]}], [1], "200 fields"),
    "case in a record": ([{"o": {"new": 1}}, {"o": {"q": 1, "Q": 1}}], [1], "members Q, q differ by upper and lower case only"),
    "case in two records": ([{"o": {"a": 1, "b": 1}}, {"o": {"A": 1}}, {"o": {"c": 1}}], [0], "by case only"),
    "more columns than fit": ([{"zz": 1}, {f"a{at}": 1 for at in range(1_000)}], [1], "1,000 columns at most"),
    "more names than fit": ([{"zz": 1}, {f"a{at}": {"b": 1, "c": 2} for at in range(500)}], [1], "1,000 columns and fields"),
    "more fields than fit": (
        [{"o": {"new": 1}}, {"o": {f"k{at}": {f"j{inner}": 1 for inner in range(6)} for at in range(180)}}], [1], "1,000"
    ),
}  # fmt: skip


@pytest.mark.crossed
@only_duckdb
@pytest.mark.parametrize("first", [True, False], ids=["a new table", "a table"])
@pytest.mark.parametrize("case", list(ALONE))
def test_a_record_beyond_the_bounds_leaves_its_neighbours_alone(bench: Callable[..., Bench], case: str, first: bool) -> None:
    records, bad, why = ALONE[case]
    made = bench(columns={"id": "BIGINT", "o": "STRUCT(x BIGINT)", "l": "STRUCT(x BIGINT)[]"})
    if not first:
        made.topics.produce(0, {"id": -1})
        made.run()
    tagged = [{"id": at, **record} for at, record in enumerate(records)]
    made.topics.produce(0, *(tagged[::-1] if first else tagged), *({"id": at} for at in range(10, 30)))
    made.run()
    found = reasons(made)
    assert sorted(set(ids(made)) - {-1}) == [*(at for at in range(len(records)) if at not in bad), *range(10, 30)]
    assert len(found) == len(bad) and all(why in text for text in found.values())
    assert len(names(made)) <= 4, "what is refused adds no columns"


@pytest.mark.crossed
@only_duckdb
@pytest.mark.parametrize("evolution", ["evolve", "ignore", "fail"])
@pytest.mark.parametrize("kind", ["STRUCT(a BIGINT)", "STRUCT(a BIGINT)[]", "MAP(VARCHAR, STRUCT(a BIGINT))"])
def test_new_members_of_a_maps_values_are_not_lost_without_a_word(bench: Callable[..., Bench], evolution: str, kind: str) -> None:
    made = bench(columns={"id": "BIGINT", "m": f"MAP(VARCHAR, {kind})"}, schema=evolution)

    def member(**fields: int) -> Any:
        return {"k": [fields] if kind.endswith("[]") else {"j": fields} if kind.startswith("MAP") else fields}

    made.topics.produce(0, {"id": 0, "m": member(a=1)}, {"id": 1, "m": member(a=1, b=2)}, {"id": 2, "m": member(a=1), "new": 1})
    if evolution == "fail":
        with pytest.raises(Exception, match="records have columns that the table lacks"):
            made.run()
        return
    made.run()
    found = reasons(made)
    if evolution == "ignore":
        assert ids(made) == [0, 1, 2] and not found
    else:
        assert ids(made) == [0, 2] and list(found) == [1] and "a MAP's values" in found[1] and names(made) == {"id", "m", "new"}


@only_duckdb
def test_the_split_into_tasks_does_not_change_what_odd_records_leave(bench: Callable[..., Bench]) -> None:
    made = bench(columns={"id": "BIGINT", "o": "STRUCT(x BIGINT)"})
    made.topics.produce(0, {"id": -1})
    made.run()
    odd = [{"o": WIDE_OBJECT}, {"o": {"q": 1, "Q": 1}}, {"zz": 1}, {f"a{at}": at for at in range(1_000)}, {"o": {"a": 1}}]
    for partition, records in enumerate((odd, [{"o": {"A": "text"}}, *odd[::-1], {"o": {"b": 1}}])):
        made.topics.produce(partition, *({"id": at, **record} for at, record in enumerate(records)))
    found = []
    for count in (1, 2, 7):
        loop = made.ingest()
        loop.stager = Pieces(made.pipeline, made.home, made.topics, made.place)
        loop.stager.count = count
        extract = staged_batch(loop)
        assert [report.counts.rows for report in extract.reports if report.counts.rows]
        found.append((set(extract.columns[0].items), sum(report.counts.dead_letters for report in extract.reports)))
    assert found[0] == found[1] == found[2] and found[0][1] == 8
    assert Columns(tuple(found[0][0])).get("o") == Columns.of({"o": 'STRUCT(x BIGINT, "A" VARCHAR, b BIGINT)'}).get("o")


@only_duckdb
@pytest.mark.parametrize("extra", ["", ", n BIGINT GENERATED ALWAYS AS (id + 1)", ", CHECK (id < 1000)"])
def test_many_new_fields_of_a_struct_rewrite_it_once(bench: Callable[..., Bench], extra: str) -> None:
    made = bench()
    coordinates = "_kafka_partition INTEGER, _kafka_offset BIGINT, _kafka_timestamp TIMESTAMPTZ"
    made.sql(
        "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, o STRUCT(a BIGINT, s STRUCT(b BIGINT)) DEFAULT {'a': 7, 's': NULL},"
        f" l STRUCT(c BIGINT)[], {coordinates}{extra})"
    )
    made.sql("INSERT INTO t (id, o, l) VALUES (-1, NULL, [NULL]), (-2, {'a': 1, 's': {'b': 2}}, [{'c': 3}])")
    inside = {f"k{at}": at for at in range(30)}
    made.topics.produce(0, {"id": 1, "o": {"a": 4, **inside, "s": {"b": 5, **inside}}, "l": [{"c": 6, **inside}], "x": 1, "y": 2})
    made.run()
    assert not reasons(made)
    none = dict.fromkeys(inside)
    rows = {key: (o, items) for key, o, items in made.sql("SELECT id, o, l FROM t")}
    assert rows == {
        -1: (None, [None]),
        -2: ({"a": 1, "s": {"b": 2, **none}, **none}, [{"c": 3, **none}]),
        1: ({"a": 4, "s": {"b": 5, **inside}, **inside}, [{"c": 6, **inside}]),
    }
    made.sql("INSERT INTO t (id) VALUES (-3)")
    assert made.sql("SELECT o.a FROM t WHERE id = -3") == [(7,)]


@only_duckdb
def test_deeply_nested_records_load(bench: Callable[..., Bench]) -> None:
    made = bench()

    def deep(depth: int, name: str | None) -> Any:
        value: Any = 1
        for _ in range(depth):
            value = [value] if name is None else {name: value}
        return value

    depths = (3, 45, 101, 190)
    made.topics.produce(0, *({"id": at, "o": {f"l{at}": deep(at, None)}, "s": {f"o{at}": deep(at, "a")}} for at in depths))
    made.topics.produce(0, {"id": 500, "o": deep(500, None)}, {"id": 501})
    made.run()
    assert list(reasons(made)) == [4] and ids(made) == [*depths, 501]
    made.topics.produce(0, *({"id": 1_000 + at, "n": deep(at, None), "m": deep(at, "a")} for at in depths[1:]))
    made.run()
    assert list(reasons(made)) == [4] and len(ids(made)) == 8
