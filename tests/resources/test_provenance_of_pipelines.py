"""What became of each offset of real pipelines over real databases: several tables, keys, retries, deliveries."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.errors import KpipeError
from kpipe.provenance.explain import DEAD_LETTER, DELETE, FILTERED, GAP, ROW, Answer, explain, sources
from kpipe.provenance.facts import Traceable
from resources.home import Home
from resources.testing.place import Place
from tests.resources.destinations.databases import database
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace
from tests.resources.several import Bench, order

pytestmark = pytest.mark.drawn(1)

ASIDE = {"constraint": "dead_letter"}
KEYED = {
    "columns": {"id": "BIGINT", "n": "BIGINT"}, "select": None, "also": [],
    "into": {"table": "orders", "key": ["id"], "on_conflict": "replace", "on_null": "delete"},
}  # fmt: skip


@pytest.fixture(params=["duckdb", "postgres", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    yield database(request, tmp_path)
    failpoints.arm(None)


@pytest.fixture
def bench(place: Place, tmp_path: Path) -> Any:
    return lambda **fields: Bench(place, Home.at(tmp_path / "home"), **fields)


def answers(made: Bench, partition: int) -> dict[int, Answer]:
    """The explanation of every offset of a partition, and of some more."""
    destination = made.destination
    assert isinstance(destination, Traceable)
    result = {}
    for offset in range(made.topics.snapshot().partitions[next(iter(made.topics.present()))].high + 2):
        facts = destination.trace("orders", partition, offset)
        for source in sources(facts, "orders", partition):
            result[offset] = explain(facts, source, offset)
    return result


def in_tables(made: Bench, partition: int, *tables: str) -> dict[str, Counter[int]]:
    return {
        name: Counter(row["_kafka_offset"] for row in made.place.rows(name) if row["_kafka_partition"] == partition)
        for name in tables
    }


def test_each_offset_of_two_tables(bench: Any) -> None:
    made: Bench = bench(select="SELECT id, customer FROM records WHERE id <> 3", errors=ASIDE)
    made.topics.produce(0, order(1, 5, 6), order(2, 7), None, order(3, 1), order(3))
    made.topics.produce(0, {}, bad=True)
    made.topics.produce(0, order(4, 1, discount="x"), order(5))
    made.run()
    assert made.proof().ok
    found, rows = answers(made, 0), in_tables(made, 0, "orders", "order_lines")
    decisions = [found[offset].fates[0].decision for offset in range(8)]
    assert decisions == [ROW, ROW, FILTERED, ROW, FILTERED, DEAD_LETTER, DEAD_LETTER, ROW]
    for offset in range(8):
        expected = {name: counts[offset] for name, counts in rows.items() if counts[offset]}
        assert found[offset].fates[0].rows == expected
    assert found[3].fates[0].rows == {"order_lines": 1}, "a row in the further table only"
    assert found[6].fates[0].reading.letters[0].stage == "constraint"
    # A corrected definition, and a retry: the record's rows are found; the other dead letter has failed again.
    corrected: Bench = bench(select="SELECT id, customer FROM records WHERE id <> 3", errors=ASIDE)
    line = "SELECT id, number, line.sku AS sku, CAST(line.quantity AS INTEGER) AS quantity"
    also = [{"table": "order_lines", "select": f"{line} FROM records, UNNEST(lines) WITH ORDINALITY AS t(line, number)"}]
    corrected.pipeline = corrected.pipeline.model_validate({**corrected.pipeline.to_dict(), "name": "shop", "also": also})
    corrected.topics = made.topics
    assert corrected.retry()["answered"] == 1
    after = answers(corrected, 0)
    assert after[6].fates[0].rows == {"orders": 1, "order_lines": 1} and after[6].fates[0].retried == "unknown"
    assert after[5].fates[0].decision == DEAD_LETTER and after[5].fates[0].retried in ("unknown", "failed_again")
    assert [after[offset].fates[0].decision for offset in (0, 2, 4, 7)] == [ROW, FILTERED, FILTERED, ROW]


@pytest.mark.crossed
@pytest.mark.parametrize("seed", range(4))
def test_rows_with_a_key_are_where_the_table_has_them(bench: Any, seed: int) -> None:
    rng = random.Random(seed)
    made: Bench = bench(**KEYED)
    truth: list[str] = []
    for _ in range(4):
        for _ in range(rng.randint(1, 6)):
            value = rng.choice([{"id": rng.randint(0, 3), "n": len(truth)}] * 3 + [None])
            bad = value is not None and rng.random() < 0.2
            made.topics.produce(0, {} if bad else value, bad=bad)
            truth.append(DEAD_LETTER if bad else FILTERED if value is None else ROW)
        made.run()
    found, rows = answers(made, 0), in_tables(made, 0, "orders")["orders"]
    for offset, what in enumerate(truth):
        (fate,) = found[offset].fates
        # A tombstone of a record without a key names no row: it is a dead letter, filtered, or a delete.
        assert what in fate.possible or (what == FILTERED and {DELETE, DEAD_LETTER} & {*fate.possible}), (offset, what, fate)
        assert fate.rows == ({"orders": 1} if rows[offset] else {})
        if fate.decision == ROW and not rows[offset]:
            assert fate.outcome in ("superseded", "unknown")


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_deliveries_with_two_commits(bench: Any, delivery: str) -> None:
    made: Bench = bench(delivery=delivery, also=[], columns={"id": "BIGINT"}, select=None)
    made.topics.produce(0, {"id": 0}, {"id": 1})
    made.run()
    made.topics.produce(0, {"id": 2}, {"id": 3})
    reached: list[str] = []

    def fail(point: str) -> None:
        # The second commit of the batch: that of the lanes, or that of the rows.
        reached.append(point)
        if reached.count("commit.before") == 2:
            raise KeyboardInterrupt

    failpoints.arm(fail)
    with pytest.raises((KeyboardInterrupt, KpipeError)):
        made.run()
    failpoints.arm(None)
    between = answers(made, 0)
    rows = in_tables(made, 0, "orders")["orders"]
    assert [bool(between[offset].fates) for offset in range(4)] == [bool(rows[offset]) for offset in range(4)]
    if delivery == "at_least_once":
        assert between[2].state == "read" and between[2].pending, "rows are there, and will be read again"
        made.run()
        assert [len(answers(made, 0)[offset].fates) for offset in range(4)] == [1, 1, 2, 2]
        assert answers(made, 0)[2].fates[0].decision == ROW
    else:
        assert between[2].state in ("lost", "not_read"), "claimed, or given back"


@pytest.mark.parametrize("kind", [DeltaPlace, IcebergPlace])
def test_gaps_of_a_lake_from_a_log_with_transactions(kind: Any, tmp_path: Path) -> None:
    made = Bench(kind(tmp_path), Home.at(tmp_path / "home"), also=[], columns={"id": "BIGINT"}, select=None, where="id <> 2")
    made.topics.produce(0, {"id": 0}, {"id": 1}, {"id": 2})
    made.topics.mark(0, 2)  # a record that was aborted, and the marker
    made.topics.produce(0, {"id": 3}, {"id": 4})
    made.topics.compact(0, 6)
    made.run()
    truth = [ROW, ROW, FILTERED, GAP, GAP, ROW, GAP]
    found = answers(made, 0)
    for offset, what in enumerate(truth):
        (fate,) = found[offset].fates
        assert what in fate.possible and (fate.decision == ROW) == (what == ROW)
        assert fate.reading.snapshot is not None
    assert found[7].state == "not_read"
