"""Records with very many new columns, through real decoders into real tables: dead letters, and all others load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kpipe.ingest.staging import staged
from kpipe.interfaces import Destination
from kpipe.schema.growth_limits import room
from resources.destinations import open_destination
from resources.home import Home
from tests.resources.column_growth.wide_records import FIELDS, ids, names, only_duckdb, reasons, staged_batch, wide
from tests.resources.destinations.webhook_place import WebhookPlace
from tests.resources.several import Bench

pytestmark = pytest.mark.drawn(1)


class Sending(Bench):
    """Into a destination that is no table."""

    @property
    def destination(self) -> Destination:
        return open_destination(self.pipeline, self.home)


@pytest.mark.crossed
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
    assert (
        list(found) == [offset]
        and "members without a column, found " in found[offset]
        and " (m0, m1" in found[offset]
        and "declare" in found[offset]
    )
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


@pytest.mark.crossed
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
    assert len(found) == 1 and "not a valid column name" in next(iter(found.values()))
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
        extract = staged_batch(loop)
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
        with pytest.raises(Exception, match="records have columns that the table lacks") as caught:
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
