"""What destinations report about an offset: never something else than what became of it, whatever was read before and since."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.errors import InvalidPipeline
from kpipe.ledger import transitions
from kpipe.ledger.ledger import Lane, LaneChange, Step
from kpipe.offsets import Range
from kpipe.provenance.explain import DEAD_LETTER, FILTERED, GAP, ROW, Answer, explain, sources
from kpipe.provenance.facts import Traceable
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from kpipe.verification.clearing import Clearing
from resources.testing.place import COLUMNS, TOPIC, Place, batch, begin, live, source
from resources.testing.state import begun, proof
from tests.resources.destinations.databases import database
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace, ParquetPlace

pytestmark = pytest.mark.drawn(2)

LAKES: dict[str, type[Place]] = {"delta": DeltaPlace, "iceberg": IcebergPlace, "parquet": ParquetPlace}
DATABASES = ("duckdb", "postgres", "mysql")
RECREATED = TopicId(TOPIC.cluster, "topic-id-2", TOPIC.name)


@pytest.fixture(params=[*LAKES, *DATABASES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield LAKES[request.param](tmp_path) if request.param in LAKES else database(request, tmp_path)
    failpoints.arm(None)


def made(
    place: Place,
    ledger: Any,
    fates: Mapping[int, str],
    step: tuple[Lane, int],
    topic: TopicId = TOPIC,
) -> Commit:
    """A batch of one range, in which each offset becomes what `fates` says: a row by default."""
    lane, end = step
    number = lane.source.partition
    chosen = {offset: fates.get(offset, ROW) for offset in range(lane.next, end)}
    dead = {(number, offset) for offset, fate in chosen.items() if fate == DEAD_LETTER}
    none = {(number, offset) for offset, fate in chosen.items() if fate in (GAP, FILTERED)}
    commit = batch(place, ledger, {number: end}, dead=dead, gaps=none, topic=topic, lanes=[lane])
    filtered = sum(fate == FILTERED for fate in chosen.values())
    counts = {
        key: replace(found, gaps=found.gaps - filtered, filtered=filtered, messages=found.messages + filtered)
        for key, found in commit.counts.items()
    }
    return commit.stored(counts)


def answers(destination: Any, partition: int, offset: int, topic: str = TOPIC.name) -> list[Answer]:
    assert isinstance(destination, Traceable)
    facts = destination.trace(topic, partition, offset)
    return [explain(facts, found, offset) for found in sources(facts, topic, partition)]


def answer(destination: Any, partition: int, offset: int) -> Answer:
    (found,) = answers(destination, partition, offset)
    return found


def decisions(destination: Any, partition: int, offsets: Sequence[int]) -> list[tuple[str, ...]]:
    return [tuple(fate.decision or "?" for fate in answer(destination, partition, offset).fates) for offset in offsets]


def decide(destination: Any, kind: str, changes: Sequence[LaneChange], note: str, steps: Sequence[Step] = ()) -> None:
    destination.commit(Commit(uuid.uuid4().hex, "tweets", tuple(changes), kind=kind, note=note, steps=tuple(steps), started_ms=1))


def test_each_decision_is_found(place: Place) -> None:
    destination = begun(place)
    fates = {1: DEAD_LETTER, 2: GAP}
    commit = made(place, destination.ledger()[1], fates, (live(destination.ledger()[1], 0), 4))
    destination.commit(commit)
    destination.commit(made(place, destination.ledger()[1], {5: FILTERED}, (live(destination.ledger()[1], 0), 6)))
    assert [(entry.seq, entry.range) for entry in destination.history()] == [(2, Range(0, 4)), (3, Range(4, 6))]
    assert decisions(destination, 0, range(7)) == [
        (ROW,), (DEAD_LETTER,), (GAP,), (ROW,), (ROW,), (FILTERED,), ()
    ]  # fmt: skip
    found = answer(destination, 0, 1)
    (fate,) = found.fates
    assert fate.reading.commit.seq == 2 and fate.reading.commit.batch == commit.id
    assert (fate.reading.commit.kind, fate.reading.commit.run_id, fate.reading.commit.version) == ("batch", "run-1", "v1")
    assert fate.reading.commit.committed is not None
    (letter,) = fate.reading.letters
    assert (letter.stage, letter.reason, fate.retried) == ("parse", "not JSON", "no")
    assert answer(destination, 0, 0).fates[0].rows == {"tweets": 1}
    waiting = answer(destination, 0, 9)
    assert (waiting.state, waiting.pending, waiting.behind) == ("not_read", True, 3)
    assert answer(destination, 1, 0).state == "not_read"
    assert answers(destination, 7, 0) == [] and answers(destination, 0, 0, "tweet") == []
    assert proof(destination).ok


def test_filtered_records_and_gaps_of_one_range_are_not_distinguished(place: Place) -> None:
    destination = begun(place)
    ledger = destination.ledger()[1]
    destination.commit(made(place, ledger, {1: GAP, 2: FILTERED}, (live(ledger, 0), 4)))
    assert decisions(destination, 0, range(4)) == [(ROW,), ("?",), ("?",), (ROW,)]
    assert set(answer(destination, 0, 1).fates[0].possible) == {GAP, FILTERED}


def test_a_row_deleted_by_others_is_not_called_filtered(place: Place) -> None:
    destination = begun(place)
    ledger = destination.ledger()[1]
    destination.commit(made(place, ledger, {1: FILTERED}, (live(ledger, 0), 4)))
    destination.commit(made(place, destination.ledger()[1], {}, (live(destination.ledger()[1], 0), 6)))
    place.delete_row(0, 2)
    place.delete_row(0, 5)
    assert set(answer(destination, 0, 1).fates[0].possible) == {ROW, FILTERED}, "rows of the range are missing"
    assert set(answer(destination, 0, 2).fates[0].possible) == {ROW, FILTERED}
    (gone,) = answer(destination, 0, 5).fates
    assert (gone.decision, gone.outcome, gone.rows) == (ROW, "missing", {})


def test_lanes_that_are_not_read(place: Place) -> None:
    destination = place.open()
    lanes = transitions.begin(source(0), 20, 10)
    decide(destination, "begin", lanes, "begin: tweets/0 from 20")
    ledger = destination.ledger()[1]
    destination.commit(made(place, ledger, {}, (live(ledger, 0), 24)))
    decide(destination, "jump", transitions.jump(destination.ledger()[1], source(0), 30), "jump: tweets/0 from 24 to 30; me")
    decide(destination, "jump", transitions.jump(destination.ledger()[1], source(0), 31), "jump: tweets/01 from 1; x.tweets/0 y")
    loss = transitions.accept_loss(destination.ledger()[1], source(0), 40)
    decide(destination, "loss", loss, "lost: tweets/0 [31, 40)")
    decide(destination, "skip", transitions.skip(live(destination.ledger()[1], 0), 42), "skip: tweets/0 [40, 42)")
    states = {offset: answer(destination, 0, offset).state for offset in (5, 10, 19, 20, 24, 29, 31, 39, 40, 41, 42, 99)}
    assert states == {
        5: "before_start", 10: "skipped", 19: "skipped", 20: "read", 24: "skipped", 29: "skipped", 31: "lost", 39: "lost",
        40: "tried", 41: "tried", 42: "not_read", 99: "not_read",
    }  # fmt: skip
    notes = [commit.note for commit in answer(destination, 0, 24).decisions]
    assert notes[0].startswith("skip") and "jump: tweets/0 from 24 to 30; me" in notes
    assert not any("tweets/01" in note for note in notes), "neither another partition nor another topic"
    decide(destination, "backfill", transitions.backfill(destination.ledger()[1], source(0), Range(12, 15)), "backfill: tweets/0")
    waiting = answer(destination, 0, 14)
    assert (waiting.state, waiting.pending, waiting.behind) == ("not_read", True, 2)
    assert waiting.lane is not None and not waiting.lane.open
    lane = next(item for item in destination.ledger()[1].of(source(0)) if item.start == 12)
    destination.commit(made(place, destination.ledger()[1], {13: GAP}, (lane, 15)))
    assert decisions(destination, 0, (11, 12, 13, 14, 15)) == [(), (ROW,), (GAP,), (ROW,), ()]
    assert answer(destination, 0, 11).state == answer(destination, 0, 15).state == "skipped"


def reread(destination: Any, to: int) -> None:
    changes, again = transitions.reread(destination.ledger()[1], source(0), to)
    steps = [Step(Lane(source(0), x.start, x.start, x.end), x.end, "reread") for x in again]
    decide(destination, "reread", changes, f"reread: tweets/0 from {to}", steps)


def test_offsets_that_were_read_twice_name_both_batches(place: Place) -> None:
    destination = begun(place)
    first = made(place, destination.ledger()[1], {1: DEAD_LETTER}, (live(destination.ledger()[1], 0), 4))
    destination.commit(first)
    reread(destination, 1)
    pending = answer(destination, 0, 2)
    assert (pending.state, pending.pending, len(pending.rereads)) == ("read", True, 1)
    second = made(place, destination.ledger()[1], {2: FILTERED}, (live(destination.ledger()[1], 0), 6))
    destination.commit(second)
    once, twice = answer(destination, 0, 1), answer(destination, 0, 3)
    assert [fate.reading.entry.batch for fate in twice.fates] == [first.id, second.id]
    assert once.fates[0].decision == DEAD_LETTER
    # One row of offset 2: it may be of either batch, and the counts of the second do not exclude that it was filtered.
    found = answer(destination, 0, 2)
    assert [fate.decision for fate in found.fates] == [ROW, ""]
    assert set(found.fates[1].possible) == {ROW, FILTERED}
    assert found.fates[0].unattributed == {"tweets": 1} and not found.fates[0].rows
    assert decisions(destination, 0, (0, 5)) == [(ROW,), (ROW,)]


def test_two_topics_of_the_same_name_are_kept_apart(place: Place) -> None:
    destination = begun(place)
    old = made(place, destination.ledger()[1], {1: FILTERED}, (live(destination.ledger()[1], 0), 4))
    destination.commit(old)
    new = source(0, RECREATED)
    destination.commit(begin("tweets", [0], topic=RECREATED))
    ledger = destination.ledger()[1]
    destination.commit(made(place, ledger, {2: FILTERED}, (live(ledger, 0, RECREATED), 4), RECREATED))
    by_source = {item.source: item for item in answers(destination, 0, 1)}
    assert set(by_source) == {source(0), new}
    # Offset 1 has a row, but rows do not name the topic's id: it may be of either.
    assert set(by_source[source(0)].fates[0].possible) == set(by_source[new].fates[0].possible) == {ROW, FILTERED}
    assert [len(item.fates) for item in answers(destination, 0, 9)] == [0, 0]


def test_rows_of_another_pipeline_are_not_taken_for_own_ones(place: Place) -> None:
    destination = begun(place)
    other = place.open(pipeline="other")
    other.commit(begin("other", [0]))
    destination.commit(made(place, destination.ledger()[1], {1: FILTERED}, (live(destination.ledger()[1], 0), 3)))
    other.commit(made(place, other.ledger()[1], {}, (live(other.ledger()[1], 0), 2)))
    (fate,) = answer(destination, 0, 1).fates
    assert set(fate.possible) == {ROW, FILTERED} and fate.unattributed == {"tweets": 1}
    assert answer(destination, 0, 2).fates[0].decision == ROW, "the other pipeline has not read so far"


def test_a_row_of_another_pipeline_does_not_replace_a_deleted_one(place: Place) -> None:
    destination, other = begun(place), place.open(pipeline="other")
    other.commit(begin("other", [0], at=1))
    destination.commit(made(place, destination.ledger()[1], {1: FILTERED}, (live(destination.ledger()[1], 0), 4)))
    other.commit(made(place, other.ledger()[1], {}, (live(other.ledger()[1], 0), 2)))
    place.delete_row(0, 2)  # as many rows and offsets as before
    assert set(answer(destination, 0, 2).fates[0].possible) == {ROW, FILTERED}


def test_a_lost_table_or_renamed_coordinates_decide_nothing(place: Place) -> None:
    if not isinstance(place, (DeltaPlace, IcebergPlace, ParquetPlace)):
        destination = begun(place)
        destination.commit(made(place, destination.ledger()[1], {1: FILTERED}, (live(destination.ledger()[1], 0), 3)))
        place.drop_table()
        (fate,) = answer(destination, 0, 1).fates
        assert set(fate.possible) == {ROW, FILTERED} and not fate.rows


def test_cleared_rows_are_not_read(place: Place) -> None:
    destination = begun(place)
    destination.commit(made(place, destination.ledger()[1], {1: DEAD_LETTER}, (live(destination.ledger()[1], 0), 4)))
    if not isinstance(destination, Clearing):
        pytest.skip("the destination clears no tables")
    destination.clear(["tweets"], "me")
    found = answer(destination, 0, 2)
    assert (found.state, [fate.cleared for fate in found.fates]) == ("tried", [True])
    assert (found.fates[0].decision == "" and ROW in found.fates[0].possible) or found.fates[0].decision == ROW
    assert answer(destination, 0, 1).fates[0].decision == DEAD_LETTER
    assert [commit.kind for commit in found.decisions][:1] == ["clear"]
    changes, _ = transitions.reread(destination.ledger()[1], source(0), 0)
    decide(destination, "rewind", changes, "rewind: tweets/0 from 0")
    destination.commit(made(place, destination.ledger()[1], {2: FILTERED}, (live(destination.ledger()[1], 0), 4)))
    again = answer(destination, 0, 2)
    assert again.state == "read" and [(fate.cleared, fate.decision) for fate in again.fates][1] == (False, FILTERED)
    assert answer(destination, 0, 1).fates[1].rows == {"tweets": 1}


@pytest.mark.crossed
@pytest.mark.parametrize("seed", range(6))
def test_no_answer_is_wrong_in_a_random_history(place: Place, seed: int) -> None:
    """Batches, rereads, jumps, backfills, clearings, another pipeline, a recreated topic, and rows deleted by others."""
    rng = random.Random(seed)
    destination, other = begun(place, 1), place.open(pipeline="other")
    other.commit(begin("other", [0]))
    truth: dict[tuple[PartitionId, int], list[tuple[str, str]]] = {}
    cleared: set[str] = set()
    topics = [TOPIC]
    for _ in range(14):
        ledger = destination.ledger()[1]
        act = rng.choice(["batch"] * 6 + ["reread", "jump", "backfill", "clear", "other", "topic", "delete"])
        topic = rng.choice(topics)
        lanes = [lane for lane in ledger.of(source(0, topic)) if not lane.finished]
        if act == "batch" and lanes:
            lane = rng.choice(lanes)
            end = lane.next + rng.randint(1, 4)
            end = end if lane.end is None else min(end, lane.end)
            kinds = rng.choice(
                [[ROW], [ROW, FILTERED], [ROW, GAP], [ROW, DEAD_LETTER, GAP], [FILTERED, GAP], [GAP], [DEAD_LETTER, ROW]]
            )
            fates = {offset: rng.choice(kinds) for offset in range(lane.next, end)}
            commit = made(place, ledger, fates, (lane, end), topic)
            destination.commit(commit)
            for offset, fate in fates.items():
                truth.setdefault((lane.source, offset), []).append((commit.id, fate))
        elif act == "reread" and topic == TOPIC and any(lane.open for lane in ledger.of(source(0))):
            reread(destination, rng.randint(0, 6))
        elif act == "jump" and ledger.live(source(0, topic)).open:
            to = ledger.live(source(0, topic)).next + rng.randint(1, 3)
            decide(destination, "jump", transitions.jump(ledger, source(0, topic), to), f"jump: tweets/0 to {to}")
        elif act == "backfill":
            changes = transitions.backfill(ledger, source(0, topic), Range(rng.randint(0, 4), 20))
            if changes:
                decide(destination, "backfill", changes, "backfill: tweets/0")
        elif act == "clear" and isinstance(destination, Clearing):
            destination.clear(["tweets"], "me")
            cleared |= {id for items in truth.values() for id, _ in items}
            changes, _ = transitions.reread(destination.ledger()[1], source(0), 0)
            if changes and rng.random() < 0.7:
                decide(destination, "rewind", changes, "rewind: tweets/0 from 0")
        elif act == "other":
            theirs = other.ledger()[1]
            if any(not lane.finished for lane in theirs.of(source(0))):
                lane = live(theirs, 0)
                if lane.open:
                    other.commit(made(place, theirs, {}, (lane, lane.next + rng.randint(1, 3))))
        elif act == "topic" and RECREATED not in topics:
            destination.commit(begin("tweets", [0], topic=RECREATED))
            topics.append(RECREATED)
        elif act == "delete" and (rows := place.rows()):
            row = rng.choice(rows)
            place.delete_row(row["_kafka_partition"], row["_kafka_offset"])
            if rng.random() < 0.3 and (rows := place.rows()):  # as many rows as before
                row = rng.choice(rows)
                place.double_row(row["_kafka_partition"], row["_kafka_offset"])
    for offset in range(30):
        for found in answers(destination, 0, offset):
            expected = truth.get((found.source, offset), [])
            assert [fate.reading.entry.batch for fate in found.fates] == [id for id, _ in expected]
            for fate, (id, what) in zip(found.fates, expected, strict=True):
                assert what in fate.possible, (offset, what, fate)
                assert fate.cleared == (id in cleared)
                assert not fate.rows or what == ROW
            standing = [id for id, _ in expected if id not in cleared]
            assert (found.state == "read") == bool(standing)


def test_rows_are_found_by_values_that_are_never_part_of_a_statement(place: Place) -> None:
    destination = begun(place)
    assert isinstance(destination, Traceable)
    destination.commit(batch(place, destination.ledger()[1], {0: 3, 1: 2}))
    hostile = {"id": 7, "text": "' OR 1=1 -- \\ \" é\U0001f600"}
    lane = live(destination.ledger()[1], 1)
    destination.commit(batch(place, destination.ledger()[1], {1: 3}, COLUMNS, hostile, lanes=[lane]))

    def found(**where: str) -> list[tuple[int | None, int | None]]:
        return sorted((row.partition, row.offset) for row in destination.rows_at("tweets", where, 10))

    assert found(id="2") == [(0, 2)] and found(ID="7") == [(1, 2)]
    assert found(text=hostile["text"]) == [(1, 2)]
    assert found(text="' OR 1=1 --") == [] and found(text="t0", id="1000000") == [(1, 0)]
    assert found(_kafka_partition="1", _kafka_offset="1") == [(1, 1)]
    assert found(_kafka_timestamp="1970-01-01 00:00:00.000002Z") == [(0, 2), (1, 2)]
    assert len(destination.rows_at("tweets", {}, 4)) == 4
    for where in ({"id": "2.5"}, {"id": "2 OR 1"}, {"id": ""}, {"nope": "1"}, {'id"': "1"}, {"_kafka_timestamp": "today"}):
        with pytest.raises(InvalidPipeline):
            destination.rows_at("tweets", where, 10)
    with pytest.raises(InvalidPipeline, match="no table"):
        destination.rows_at("kpipe_batches", {}, 10)


TYPED = Columns.of(
    {
        "flag": "BOOLEAN", "small": "SMALLINT", "huge": "HUGEINT", "exact": "DECIMAL(20,4)", "real": "DOUBLE",
        "raw": "BLOB", "day": "DATE", "moment": "TIMESTAMP WITH TIME ZONE", "plain": "TIMESTAMP", "clock": "TIME",
        "items": "BIGINT[]",
    }
)  # fmt: skip
TEXTS = {
    "flag": ("true", "1e"), "small": ("-7", "-7.0"), "huge": (str(2**100), str(2**130)),
    "exact": ("1234567890123456.7891", "1234567890123456.78911"),
    "real": ("0.25", "x"), "raw": ("ab", "\\x0"), "day": ("2026-11-26", "2026-11-26 10:00:00"),
    "moment": ("2026-11-26 08:00:00.123456+00", "2026-11-26 08:00:00.1234567+00"), "plain": ("2026-11-26T08:00:00.5", "now"),
    "clock": ("23:59:59.000001", "24:59"),
}  # fmt: skip


def test_rows_are_found_by_values_of_each_type(place: Place) -> None:
    values = {
        "id": 1, "text": "t", "flag": True, "small": -7, "huge": str(2**100),
        "exact": Decimal("1234567890123456.7891"), "real": 0.25, "raw": b"ab",
        "day": 20_783, "moment": 1_795_680_000_123_456, "plain": 1_795_680_000_500_000, "clock": 86_399_000_001, "items": [1],
    }  # fmt: skip
    columns = Columns((*COLUMNS, *(item for item in TYPED if item[0] in values)))
    destination = begun(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 1}, columns, values))
    destination.commit(batch(place, destination.ledger()[1], {0: 2}))
    for name, (text, wrong) in TEXTS.items():
        if name == "clock" and isinstance(place, DeltaPlace):  # stored as text
            with pytest.raises(InvalidPipeline, match="clock"):
                destination.rows_at("tweets", {name: text}, 10)
            continue
        assert [row.offset for row in destination.rows_at("tweets", {name: text}, 10)] == [0], name
        with pytest.raises(InvalidPipeline, match=name):
            destination.rows_at("tweets", {name: wrong}, 10)
    with pytest.raises(InvalidPipeline, match="cannot be compared"):
        destination.rows_at("tweets", {"items": "[1]"}, 10)
