"""A topic as a destination keeps the order of each source partition, whatever files its rows were staged in, and proves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from kpipe.batch.batch import Commit, Counts, StagedFile, TableWrite
from kpipe.errors import DestinationError
from kpipe.interfaces import Destination
from kpipe.ledger import transitions
from kpipe.ledger.ledger import Lane, LaneChange, Step
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from kpipe.testing.commits import commit_to
from kpipe.topics import PartitionId, TopicId
from resources.testing.place import COLUMNS, COORDINATES, arrow, begin, live, source
from resources.testing.state import begun, loaded, proof
from tests.resources.destinations.kafka_place import KafkaPlace

KEY = Columns.of({"id": "BIGINT"})


@pytest.fixture
def place(tmp_path: Path, brokers: str) -> Iterator[KafkaPlace]:
    made = KafkaPlace(tmp_path, brokers, partitions=1)
    yield made
    made.close()


def staged(place: KafkaPlace, at: Sequence[tuple[int, int]], columns: Columns = COLUMNS, key: int | None = None) -> StagedFile:
    """Write a file of rows of these partitions and offsets, in this order."""
    fields = [(name, arrow(kind)) for name, kind in columns] + list(COORDINATES.items())
    rows = [
        {"id": n if key is None else key, "text": f"t{n}", "_kafka_partition": p, "_kafka_offset": n, "_kafka_timestamp": n}
        for p, n in at
    ]
    rows = [{name: value for name, value in row.items() if name in dict(fields)} for row in rows]
    return place.file(rows, pa.schema(fields))


def commit(
    destination: Destination,
    ends: dict[int, int],
    rows: Sequence[StagedFile],
    deletes: Sequence[StagedFile] = (),
    gone: Mapping[int, int] = {},
    lanes: Sequence[Lane] = (),
) -> None:
    """Commit staged files of the live lanes, or those given, up to these ends; `gone` counts the tombstones among the offsets."""
    lanes = lanes or [live(destination.ledger()[1], number) for number in ends]
    steps = tuple(Step(lane, end) for lane, end in zip(lanes, ends.values(), strict=True))
    counts = {}
    for step in steps:
        span, deleted = len(step.range), gone.get(step.source.partition, 0)
        counts[step.lane.key] = Counts(messages=span, rows=span - deleted, deletes=deleted, inserted=span - deleted)
    changes, name = tuple(step.change for step in steps), f"batch-{destination.ledger()[1].seq}"
    write = TableWrite(columns=COLUMNS, files=tuple(rows), deletes=tuple(deletes))
    destination.commit(commit_to(write, counts, id=name, pipeline="tweets", changes=changes, steps=steps))


def written(place: KafkaPlace) -> dict[str, list[int]]:
    """Offsets that a consumer reads, by the source partition that each record names."""
    found: dict[str, list[int]] = {}
    for message in place.records(place.name("tweets")):
        said = {name: value.decode() for name, value in message.headers()}
        found.setdefault(f"{said['kpipe.topic']}/{said['kpipe.partition']}", []).append(int(said["kpipe.offset"]))
    return found


@pytest.mark.parametrize("many", [10_000, pytest.param(100_000, marks=pytest.mark.chaos)])
def test_short_ranges_that_share_a_file_with_a_part_of_a_long_one(place: KafkaPlace, many: int) -> None:
    """3, 7 and many records in three partitions, as two tasks stage them: the first file begins with partition 0."""
    destination, half = begun(place, 3), many // 2
    first = staged(place, [*((0, n) for n in range(3)), *((2, n) for n in range(half, many))])
    second = staged(place, [*((1, n) for n in range(7)), *((2, n) for n in range(half))])
    commit(destination, {0: 3, 1: 7, 2: many}, (first, second))
    found = written(place)
    assert [found[f"tweets/{n}"] == list(range(end)) for n, end in enumerate((3, 7, many))] == [True, True, True]
    assert proof(destination).ok


def test_a_deleted_key_stays_deleted(place: KafkaPlace) -> None:
    """Each offset of partition 1 writes the key or deletes it; the last one deletes. Its files are shared with partition 0."""
    destination = place.open(rule=KeyRule(("id",), deletes=True), key=["id"], on_null="delete")
    destination.commit(begin("tweets", range(2)))
    rows = [
        staged(place, [(0, 0), *((1, n) for n in range(20, 40, 2))], key=7),
        staged(place, [(0, 1), *((1, n) for n in range(0, 20, 2))], key=7),
    ]
    gone = [
        staged(place, [(0, 2), *((1, n) for n in range(1, 40, 4))], KEY, key=7),
        staged(place, [(0, 3), *((1, n) for n in range(3, 40, 4))], KEY, key=7),
    ]
    commit(destination, {0: 4, 1: 40}, rows, gone, gone={0: 2, 1: 20})
    assert written(place) == {"tweets/0": list(range(4)), "tweets/1": list(range(40))}
    last = [m for m in place.records(place.name("tweets")) if dict(m.headers())["kpipe.partition"] == b"1"][-1]
    assert (last.key(), last.value()) == (b"7", None)
    assert proof(destination).ok


def test_pieces_of_a_range_lie_in_turns_in_two_files(place: KafkaPlace) -> None:
    destination = begun(place, 1)
    first = staged(place, [(0, n) for n in (*range(100), *range(200, 300))])
    second = staged(place, [(0, n) for n in (*range(300, 400), *range(100, 200))])
    commit(destination, {0: 400}, (second, first))
    assert written(place) == {"tweets/0": list(range(400))}


def test_rows_of_several_topics_name_their_own(place: KafkaPlace) -> None:
    """Two topics have a partition 0, and share a file."""
    topics = [TopicId("cluster-1", f"id-{name}", name) for name in ("m_a", "m_b", "m_c")]
    destination = place.open()
    lanes = [Lane(PartitionId(topic, 0), 0, 0) for topic in topics]
    destination.commit(Commit("begin", "tweets", tuple(LaneChange(None, lane) for lane in lanes), kind="begin"))
    fields = [(name, arrow(kind)) for name, kind in COLUMNS] + [*COORDINATES.items(), ("_kafka_topic", pa.string())]
    rows = [
        {"id": n, "text": "t", "_kafka_partition": 0, "_kafka_offset": n, "_kafka_timestamp": n, "_kafka_topic": topic.name}
        for topic in topics
        for n in range(5)
    ]
    steps = tuple(Step(lane, 5) for lane in lanes)
    counts = {lane.key: Counts(messages=5, rows=5, inserted=5) for lane in lanes}
    changes, files = tuple(step.change for step in steps), (place.file(rows, pa.schema(fields)),)
    write = TableWrite(columns=COLUMNS, files=files)
    destination.commit(commit_to(write, counts, id="b", pipeline="tweets", changes=changes, steps=steps, multi_topic=True))
    assert written(place) == {f"{topic.name}/0": list(range(5)) for topic in topics}
    assert proof(destination).ok


# What verification says of a topic in another order


def test_a_record_in_another_order_is_not_proven(place: KafkaPlace) -> None:
    """A record of the pipeline that stands in the log once more, behind later ones; the same for its tombstones."""
    destination = loaded(place, {0: 10, 1: 5})
    assert proof(destination).ok
    place.double_row(0, 3)
    problems = " ".join(proof(destination).problems)
    assert f"tweets/0: offset 3 comes behind offset 9 at {place.name('tweets')}/0 offset " in problems
    place.produce(place.name("tweets"), partition=0, key=b"7", headers=tombstone(1, 4))
    problems = " ".join(proof(destination).problems)
    assert f"tweets/1: topic {place.name('tweets')}: expected 0 tombstones, found 1" in problems


def tombstone(partition: int, offset: int) -> list[tuple[str, str | bytes | None]]:
    """Headers that the pipeline gives to a tombstone."""
    said = {"kind": "delete", "pipeline": "tweets", "topic": "tweets", "partition": str(partition), "offset": str(offset)}
    return [(f"kpipe.{name}", value.encode()) for name, value in said.items()]


def test_order_is_checked_where_compaction_leaves_nothing_to_count(place: KafkaPlace) -> None:
    destination = loaded(place, {0: 10})
    place.configure(place.name("tweets"), "cleanup.policy", "compact")
    with pytest.raises(DestinationError, match="rows cannot be recounted; the remaining records are in order"):
        destination.recount()
    place.produce(place.name("tweets"), partition=0, key=b"7", headers=tombstone(0, 2))
    with pytest.raises(DestinationError, match="remaining records are out of order: tweets/0: offset 2 comes behind offset 9"):
        destination.recount()


def test_what_was_skipped_and_read_later_is_in_order(place: KafkaPlace) -> None:
    """So is what was read again on purpose: older offsets stand behind newer ones, as the ledger says."""
    destination = begun(place, 1)
    ledger = destination.ledger()[1]
    destination.commit(Commit("jump", "tweets", transitions.jump(ledger, source(0), 10), kind="jump"))
    commit(destination, {0: 15}, [staged(place, [(0, n) for n in range(10, 15)])])
    ledger = destination.ledger()[1]
    destination.commit(Commit("fill", "tweets", transitions.backfill(ledger, source(0), Range(0, 10)), kind="backfill"))
    (lane,) = (lane for lane in destination.ledger()[1].of(source(0)) if not lane.finished and not lane.open)
    commit(destination, {0: 10}, [staged(place, [(0, n) for n in range(10)])], lanes=[lane])
    assert written(place) == {"tweets/0": [*range(10, 15), *range(10)]}
    assert proof(destination).ok
    changes, done = transitions.reread(destination.ledger()[1], source(0), 5)
    again = tuple(Step(Lane(source(0), found.start, found.start, found.end), found.end, "reread") for found in done)
    destination.commit(Commit("again", "tweets", changes, kind="reread", steps=again))
    commit(destination, {0: 15}, [staged(place, [(0, n) for n in range(5, 15)])])
    assert written(place) == {"tweets/0": [*range(10, 15), *range(10), *range(5, 15)]}
    assert proof(destination).ok, proof(destination).problems
