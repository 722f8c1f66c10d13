"""A loader stops anywhere; a pipeline that takes over its position loads each remaining record once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from kpipe.adoption.judge import compare, judge
from kpipe.adoption.positions import Positions
from kpipe.testing.memory import MemoryTable
from kpipe.testing.topics import RECORD
from tests.kpipe.conftest import World

PARTITIONS = 3
logs = st.lists(st.sampled_from(["record", "record", "record", "marker", "hole", "tombstone"]), max_size=12)


def fill(world: World, number: int, kinds: list[str]) -> None:
    for at, kind in enumerate(kinds):
        if kind == "marker":
            world.topics.mark(number)
        else:
            world.topics.produce(number, None if kind == "tombstone" else {"id": at})
    for at, kind in enumerate(kinds):
        if kind == "hole":
            world.topics.compact(number, at)


def records(world: World) -> Counter[tuple[int, int]]:
    """All records with a value that the logs contain."""
    return Counter(
        (number, offset)
        for number, log in enumerate(world.topics._topics["tweets"].logs)
        for offset, slot in enumerate(log.slots)
        if slot.kind == RECORD and slot.value is not None
    )


def old_loader(world: World, stops: list[int]) -> Positions:
    """Rows of all records below the stops, as another program writes them, and its offsets; 0: it never saw the partition."""
    rows = world.table.store.tables.setdefault("tweets", MemoryTable()).rows
    rows += [{"_kafka_partition": number, "_kafka_offset": at, "id": at} for number, at in records(world) if at < stops[number]]
    return Positions("group old", {("tweets", number): at for number, at in enumerate(stops) if at})


@given(data=st.data(), kinds=st.lists(logs, min_size=PARTITIONS, max_size=PARTITIONS), limit=st.integers(1, 5))
def test_each_record_is_loaded_once(data: st.DataObject, kinds: list[list[str]], limit: int) -> None:
    with TemporaryDirectory() as folder:
        world = World(Path(folder), PARTITIONS)
        for number, each in enumerate(kinds):
            fill(world, number, each)
        stops = [data.draw(st.integers(0, len(each))) for each in kinds]
        positions = old_loader(world, stops)
        ingest = world.ingest()
        snapshot, ledger = ingest.survey.observe()
        adoption = judge(positions, snapshot)
        if not positions.offsets:
            assert adoption.problems
            return
        assert not adoption.problems
        assert ledger.seq == 0
        ingest.survey.decide("adopt", adoption.changes, adoption.note)
        committed = world.run({"batch": {"max_offsets_per_partition": limit}})
        for source, start in ((start.source, start) for start in adoption.starts):
            first = next((step.range.start for item in committed for step in item.commit.steps if step.source == source), None)
            assert first in (None, start.offset), "the first batch begins exactly there"
        assert Counter((row["_kafka_partition"], row["_kafka_offset"]) for row in world.table.rows) == records(world)
        found = world.audit()
        assert found.ok, found.problems
        assert not found.skipped
        assert sorted(found.adopted) == [f"tweets/{number} [0, {at})" for number, at in enumerate(stops) if at]


@given(data=st.data(), kinds=st.lists(logs, min_size=1, max_size=1))
def test_a_position_beside_the_table_is_found(data: st.DataObject, kinds: list[list[str]]) -> None:
    """The position of the group is not that of the table: if a record is between them, the comparison names the range."""
    with TemporaryDirectory() as folder:
        world = World(Path(folder), 1)
        fill(world, 0, kinds[0])
        stop, claimed = (data.draw(st.integers(1, max(1, len(kinds[0])))) for _ in range(2))
        offsets = [at for (_, at) in records(world) if at < stop]
        table = Positions("table", {("tweets", 0): max(offsets) + 1} if offsets else {})
        adoption = judge(Positions("group old", {("tweets", 0): min(claimed, len(kinds[0]))}), world.topics.snapshot())
        wrong = compare(adoption, table)
        between = [at for (_, at) in records(world) if min(stop, claimed) <= at < max(stop, claimed)]
        named = [at for item in wrong for at in between if at in item.range]
        assert named == between
        assert all(item.ahead == (claimed > stop) for item in wrong if any(at in item.range for at in between))
