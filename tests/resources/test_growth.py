"""Records with very many new columns, through real decoders into real tables: dead letters, and all others load."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kpipe import failpoints
from kpipe.batch.batch import Batch, Piece, RangeReport
from kpipe.column_growth import Closed
from kpipe.ingest.prefetch import staged
from kpipe.interfaces import Destination
from kpipe.schema.columns import Columns
from kpipe.schema.growth_limits import room
from resources.destinations import open_destination
from resources.home import Home
from resources.spark.task import range_task
from resources.testing.place import Place
from tests.resources.destinations.databases import database
from tests.resources.destinations.webhook_place import WebhookPlace
from tests.resources.several import Bench, _Stager

FIELDS: dict[str, Any] = {"select": None, "also": [], "columns": {}, "into": {"table": "t"}}


@pytest.fixture(params=["duckdb", "postgres", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield database(request, tmp_path)
    failpoints.arm(None)


class Sending(Bench):
    """Into a destination that is no table."""

    @property
    def destination(self) -> Destination:
        return open_destination(self.pipeline, self.home)


only_duckdb = pytest.mark.parametrize("place", ["duckdb"], indirect=True)


@pytest.fixture
def bench(place: Place, tmp_path: Path) -> Callable[..., Bench]:
    return lambda **fields: Bench(place, Home.at(tmp_path / "home"), **{**FIELDS, **fields})


def wide(number: int, count: int, prefix: str = "m") -> dict[str, Any]:
    return {"id": number, **{f"{prefix}{at}": at for at in range(count)}}


def reasons(made: Bench) -> dict[int, str]:
    proof = made.proof()
    assert proof.ok, proof.problems
    return {row["offset"]: row["error_message"] for row in made.destination.view("errors")}


def ids(made: Bench) -> list[Any]:
    return [number for (number,) in made.table("t", "id")]


def names(made: Bench) -> set[str]:
    columns = made.destination.columns()
    assert columns is not None
    return {name for name in columns.names() if not name.startswith("_kafka_")}


@pytest.mark.parametrize("first", [True, False], ids=["a new table", "a table"])
@pytest.mark.parametrize("count", [1_700, 20_000])
def test_one_record_of_very_many_members_is_a_dead_letter(bench: Callable[..., Bench], first: bool, count: int) -> None:
    made = bench()
    if not first:
        made.topics.produce(0, {"id": -1})
        made.run()
    made.topics.produce(0, *({"id": at, "name": "n"} for at in range(20)), wide(20, count), {"id": 21, "more": "x"})
    made.run()
    found = reasons(made)
    offset = 20 if first else 21
    assert list(found) == [offset] and "members without a column (m0, m1" in found[offset] and "declare" in found[offset]
    assert names(made) == {"id", "name", "more"} and len(ids(made)) == 21 + (not first)
    made.topics.produce(0, {"id": 22})
    made.run()
    assert 22 in ids(made)


def test_records_that_are_together_beyond_the_bounds(bench: Callable[..., Bench]) -> None:
    made = bench()
    made.topics.produce(0, {"id": -1})
    made.run()
    for partition in range(2):
        made.topics.produce(partition, *(wide(10 * partition + at, 300, f"p{partition}r{at}_") for at in range(3)))
    made.topics.produce(1, {"id": 100})
    made.run()
    found = reasons(made)
    assert found and {-1, 100} <= set(ids(made))
    assert len(ids(made)) + made.proof().counts.dead_letters == 8
    assert all("at most" in why and "declare" in why for why in found.values())
    made.topics.produce(0, {"id": 101})
    made.run()
    assert 101 in ids(made)


def test_a_table_of_long_texts_grows_to_its_bound_and_takes_rows_that_fill_it(bench: Callable[..., Bench]) -> None:
    made = bench(metadata=["topic", "key", "headers"])
    for batch in range(8):
        made.topics.produce(0, {"id": batch, **{f"b{batch}c{at}": "x" * 3_000 for at in range(180)}})
        made.run()
    assert 0 < len(reasons(made)) < 8
    texts = sorted(names(made) - {"id"})
    made.topics.produce(0, {"id": 100, **dict.fromkeys(texts, "y" * 3_000)})
    made.run()
    assert 100 in ids(made) and len(ids(made)) + len(reasons(made)) == 9


@only_duckdb
def test_an_object_with_very_many_keys_in_one_batch(bench: Callable[..., Bench]) -> None:
    made = bench()
    made.topics.produce(0, *({"id": at, "o": {f"k{at}": at}} for at in range(2_000)))
    made.run()
    assert not reasons(made) and len(ids(made)) == 2_000
    assert made.sql("SELECT data_type FROM information_schema.columns WHERE column_name = 'o'") == [("JSON",)]


def test_a_struct_of_a_table_that_would_get_very_many_fields(bench: Callable[..., Bench]) -> None:
    made = bench()
    made.topics.produce(0, {"id": -1, "o": {"a": 1}})
    made.run()
    made.topics.produce(0, *({"id": at, "o": {f"k{at}": at}} for at in range(400)), {"id": 400, "o": {"a": 2}, "other": 1})
    made.run()
    found = reasons(made)
    assert len(found) == 400 and all(why.startswith("o: ") and "STRUCT" in why for why in found.values())
    assert sorted(ids(made)) == [-1, 400] and names(made) == {"id", "o", "other"}
    made.topics.produce(0, *({"id": at, "o": {f"k{at}": at}} for at in range(401, 411)))
    made.run()
    assert len(reasons(made)) == 400, "few new keys are fields as ever"


@only_duckdb
def test_lists_of_objects_with_a_name_of_their_own_each(bench: Callable[..., Bench]) -> None:
    made = bench()
    made.topics.produce(0, {"id": -1})
    made.run()
    items = [{f"n{at}": at} for at in range(20_000)]
    made.topics.produce(0, *({"id": at} for at in range(50)), {"id": 50, "items": items})
    made.run()
    assert not reasons(made) and len(ids(made)) == 52
    assert made.sql("SELECT data_type FROM information_schema.columns WHERE column_name = 'items'") == [("JSON[]",)]


@only_duckdb
@pytest.mark.parametrize("name", ["", "a\0b", "n" * 256])
@pytest.mark.parametrize("first", [True, False], ids=["a new table", "a table"])
def test_names_that_no_column_can_have(bench: Callable[..., Bench], name: str, first: bool) -> None:
    made = bench()
    if not first:
        made.topics.produce(0, {"id": -1})
        made.run()
    made.topics.produce(0, {"id": 0, name: 1}, {"id": 1, "o": {name: 1}}, {"id": 2, "l": [{"x": {name: 1}}]}, {"id": 3})
    made.run()
    found = reasons(made)
    assert len(found) == 1 and "no name that a column can have" in next(iter(found.values()))
    assert [number for number in ids(made) if number >= 0] == [1, 2, 3] and names(made) == {"id", "o", "l"}
    kinds = dict(made.sql("SELECT column_name, data_type FROM information_schema.columns WHERE column_name IN ('o', 'l')"))
    assert kinds == {"o": "JSON", "l": "STRUCT(x JSON)[]"}


@only_duckdb
def test_the_same_batch_gives_the_same_columns_and_dead_letters_again(bench: Callable[..., Bench]) -> None:
    made = bench()
    for partition in range(2):
        made.topics.produce(partition, *(wide(at, 300, f"p{partition}r{at}_") for at in range(4)), {"id": 9})
    found = []
    for _ in range(2):
        loop = made.ingest()
        extract = loop._extract()
        again = staged(made.pipeline, loop.stager, extract.batch, extract.columns, lambda _: None, closed=extract.closed)
        assert again[0] == extract.columns and [r.counts for r in again[2]] == [r.counts for r in extract.reports]
        found.append((extract.columns, [(report.counts, report.sample_dead_letter) for report in extract.reports]))
    assert found[0][0] == found[1][0]
    assert [counts.dead_letters for counts, _ in found[0][1]] == [counts.dead_letters for counts, _ in found[1][1]]
    assert sum(counts.dead_letters for counts, _ in found[0][1])


@only_duckdb
@pytest.mark.parametrize("evolution", ["ignore", "fail"])
def test_other_policies_have_no_dead_letters_for_it(bench: Callable[..., Bench], evolution: str) -> None:
    made = bench(columns={"id": "BIGINT"}, schema=evolution)
    made.place.sql("CREATE TABLE t (id BIGINT, _kafka_partition INTEGER, _kafka_offset BIGINT, _kafka_timestamp TIMESTAMPTZ)")
    made.topics.produce(0, wide(0, 20_000), {"id": 1})
    if evolution == "fail":
        with pytest.raises(Exception, match="records hold columns that the table lacks") as caught:
            made.run()
        assert len(str(caught.value)) < 2_000
    else:
        made.run()
        assert ids(made) == [0, 1] and not reasons(made)


@only_duckdb
def test_declared_columns_are_taken_whatever_their_number(bench: Callable[..., Bench]) -> None:
    made = bench(columns={"id": "BIGINT", **{f"m{at}": "BIGINT" for at in range(1_200)}})
    made.topics.produce(0, wide(0, 1_200))
    made.run()
    assert not reasons(made) and len(names(made)) == 1_201


def test_a_dead_letter_holds_the_whole_record(bench: Callable[..., Bench]) -> None:
    made = bench()
    made.topics.produce(0, {"id": 0}, wide(1, 1_500))
    made.run()
    (row,) = made.destination.view("errors")
    assert json.loads(row["load_data_line"]) == wide(1, 1_500)


@pytest.mark.parametrize("name", ["", "a\0b", "n" * 256])
def test_names_that_no_column_can_have_do_not_stop_a_webhook(tmp_path: Path, name: str) -> None:
    place, home = WebhookPlace(tmp_path), Home.at(tmp_path / "home")
    place.staging = home.make().staging
    place.staging.mkdir(parents=True, exist_ok=True)
    try:
        into = {**place.into().model_dump(exclude_unset=True), "database": str(place.path)}
        made = Sending(place, home, **{**FIELDS, "into": into})
        made.topics.produce(0, {"id": 0, name: 1}, {"id": 1, "o": {name: 1}}, {"id": 2}, wide(3, 1_700))
        made.run()
        made.topics.produce(0, {"id": 4})
        made.run()
        assert sorted(reasons(made)) == [0, 3]
        sent = [row for one in place.receiver.taken for row in (one.json if isinstance(one.json, list) else [one.json])]
        assert [row["row"]["id"] for row in sent] == [1, 2, 4]
        assert sent[0]["row"]["o"] == {name: 1}
    finally:
        place.receiver.stop()


class Pieces(_Stager):
    """Reads every range in parts, as several tasks do."""

    count = 1

    def stage(
        self, batch: Batch, columns: Columns, also: Sequence[Columns] = (), closed: Sequence[Closed] = ()
    ) -> Sequence[RangeReport]:
        job = self._shaped(batch, columns, None, also, closed)
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
        extract = loop._extract()
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
    "case in two records": ([{"o": {"a": 1, "b": 1}}, {"o": {"A": 1}}, {"o": {"c": 1}}], [0], "upper and lower case only"),
    "more columns than fit": ([{"zz": 1}, {f"a{at}": 1 for at in range(1_000)}], [1], "1,000 columns at most"),
    "more names than fit": ([{"zz": 1}, {f"a{at}": {"b": 1, "c": 2} for at in range(500)}], [1], "1,000 columns and fields"),
    "more fields than fit": (
        [{"o": {"new": 1}}, {"o": {f"k{at}": {f"j{inner}": 1 for inner in range(6)} for at in range(180)}}], [1], "1,000"
    ),
}  # fmt: skip


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


@only_duckdb
@pytest.mark.parametrize("evolution", ["evolve", "ignore", "fail"])
@pytest.mark.parametrize("kind", ["STRUCT(a BIGINT)", "STRUCT(a BIGINT)[]", "MAP(VARCHAR, STRUCT(a BIGINT))"])
def test_new_members_of_a_maps_values_are_not_lost_without_a_word(bench: Callable[..., Bench], evolution: str, kind: str) -> None:
    made = bench(columns={"id": "BIGINT", "m": f"MAP(VARCHAR, {kind})"}, schema=evolution)

    def member(**fields: int) -> Any:
        return {"k": [fields] if kind.endswith("[]") else {"j": fields} if kind.startswith("MAP") else fields}

    made.topics.produce(0, {"id": 0, "m": member(a=1)}, {"id": 1, "m": member(a=1, b=2)}, {"id": 2, "m": member(a=1), "new": 1})
    if evolution == "fail":
        with pytest.raises(Exception, match="records hold columns that the table lacks"):
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
        extract = loop._extract()
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


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_table_of_postgres_at_its_bound_takes_rows_of_every_length(bench: Callable[..., Bench]) -> None:
    made = bench(metadata=["topic", "key", "headers"])
    widest = room("postgres").columns
    made.topics.produce(0, {"id": 0})
    made.run()
    made.topics.produce(0, {"id": -1, **{f"c{at}": "x" for at in range(widest)}})
    made.run()
    texts = sorted(names(made) - {"id"})
    if not texts:  # the record was one beyond the bound
        made.topics.produce(0, *({"id": -1, f"c{at}": "x"} for at in range(widest)))
        made.run()
        texts = sorted(names(made) - {"id"})
    assert len(texts) > widest - 10
    letters = "abcdefghijklmnopqrstuvwxyz"
    rows = [{"id": size, **{name: (letters * 9)[at % 26 :][:size] for at, name in enumerate(texts)}} for size in range(1, 131)]
    made.topics.produce(0, *rows)
    made.run()
    assert set(ids(made)) >= set(range(131)) and reasons(made)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("UUID", "00000000-0000-0000-0000-000000000001"),
        ("DECIMAL(38,0)", "9" * 38),
        ("DECIMAL(38,19)", "9" * 19 + "." + "9" * 19),
        ("DECIMAL(28,1)", "9" * 27 + ".9"),
        ("HUGEINT", "1" * 38),
        ("STRUCT(a BIGINT)", {"a": 1}),
        ("JSON", [1]),
        ("JSON", "fourteen texts"),
        ("BIGINT[]", [1]),
        ("TIMESTAMP", "2026-01-01T00:00:00"),
    ],
)
def test_wide_types_at_the_bound_of_postgres(bench: Callable[..., Bench], kind: str, value: Any) -> None:
    columns = {f"c{at}": kind for at in range(room("postgres").columns - 1)}
    made = bench(metadata=["topic", "key", "headers"], columns={"id": "BIGINT", **columns})
    made.topics.produce(0, {"id": 1, **dict.fromkeys(columns, value)})
    made.run()
    assert ids(made) == [1] and not reasons(made)
