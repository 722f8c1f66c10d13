"""A bounded definition that was not edited is never reported as changed, whatever has happened; an edited one is."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe import failpoints
from kpipe.batch.batch import Batch
from kpipe.errors import InvalidPipeline, RecordRejected
from kpipe.ledger.ledger import LOST, READ, SKIPPED
from kpipe.offsets import Range
from kpipe.planning.seek import backfills, set_offsets
from kpipe.run_events import Decisions
from tests.kpipe.conftest import World
from tests.kpipe.planning.test_seek import decide, lanes

END = 10
DECIDED = Decisions(on_data_loss="record", on_new_topic="begin", who="a test")


class Killed(BaseException):
    """Stands for SIGKILL."""


class Course:
    """A bounded pipeline and what happens to it; after each event the definition is looked at as it always was."""

    def __init__(self, folder: Path, start: dict[str, int] | None, delivery: str) -> None:
        self.world, self.bad = World(folder), set[tuple[int, int]]()
        source = {"end": {"0": END, "1": END - 2}, **({"start": start} if start else {})}
        limits = {"max_offsets_per_partition": 3, "max_retries": 0}
        self.fields: dict[str, Any] = {"source": source, "delivery": delivery, "batch": limits, "errors": {"batch": "skip"}}
        self.world.stager.before = self._reject
        for partition in (0, 1):
            self.world.topics.numbered(partition, END)
            self.world.topics.expire(partition, 1)

    def _reject(self, batch: Batch) -> None:
        for step in batch.steps:
            for partition, offset in self.bad:
                if partition == step.source.partition and offset in step.range:
                    raise RecordRejected(f"{step.source} offset {offset}")

    def look(self) -> None:
        self.world.ingest(self.fields, decisions=DECIDED).survey.look()

    def run(self, batches: int | None = None) -> None:
        self.world.run(self.fields, max_batches=batches, decisions=DECIDED)

    def skip(self, partition: int, offset: int) -> None:
        self.bad.add((partition, offset))
        self.run()
        self.bad.clear()

    def kill(self, point: str, number: int) -> None:
        left = number

        def die(reached: str) -> None:
            nonlocal left
            left -= reached == point
            if reached == point and left == 0:
                raise Killed

        loop = self.world.ingest(self.fields, decisions=DECIDED)
        loop.delivery.give_back = lambda: None  # type: ignore[method-assign]
        failpoints.arm(die)
        try:
            list(loop.run())
        except Killed:
            pass
        finally:
            failpoints.arm(None)

    def lose(self, partition: int, to: int) -> None:
        self.world.topics.expire(partition, to)

    def backfill(self, start: int, length: int) -> None:
        wanted = Range(start, start + length)
        decide(self.world, lambda *both: backfills(*both, wanted=wanted)[0], pipeline=self.fields)

    def back(self, partition: int, to: int) -> None:
        state = self.world.topics.snapshot().partitions[self.world.topics.source(partition)]
        live = self.world.table.held.live(self.world.topics.source(partition))
        if live is not None and state.log_start <= to < live.next:
            where = {self.world.topics.source(partition): to}
            decide(self.world, set_offsets, where, reread=True, pipeline=self.fields)

    def grow(self) -> None:
        self.world.topics.add_partitions()
        self.world.topics.numbered(2, 3)

    def recreate(self) -> None:
        self.world.topics.recreate(2)
        for partition in (0, 1):
            self.world.topics.numbered(partition, END)

    def prove(self) -> None:
        self.look()
        report = self.world.audit()
        assert report.ok, report.problems


_partition, _offset = st.integers(0, 1), st.integers(0, END - 1)
events = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(1, 3)),
        st.tuples(st.just("skip"), _partition, _offset),
        st.tuples(st.just("kill"), st.sampled_from(["collect.all", "plan.frozen", "publish.before"]), st.integers(1, 4)),
        st.tuples(st.just("lose"), _partition, _offset),
        st.tuples(st.just("backfill"), _offset, st.integers(1, END)),
        st.tuples(st.just("back"), _partition, _offset),
        st.tuples(st.just("grow")),
        st.tuples(st.just("recreate")),
    ),
    max_size=8,
)
starts = st.sampled_from([None, {"0": 1, "1": 1}, {"0": 1}, {"0": 4, "1": 7}, {"1": 8}, {"0": END, "1": 8}])
deliveries = st.sampled_from(["exactly_once", "at_most_once", "at_least_once"])


@given(starts, deliveries, events)
def test_a_definition_is_not_taken_for_an_edited_one(start: dict[str, int] | None, delivery: str, course: Any) -> None:
    with TemporaryDirectory() as folder:
        made = Course(Path(folder), start, delivery)
        made.look()
        for name, *arguments in course:
            getattr(made, name)(*arguments)
            made.look()
        made.run()
        made.prove()
        where = made.world.topics.source(0)
        edited = {**made.fields, "source": {**made.fields["source"]}}
        for end in ({"0": END - 1, "1": END - 2}, {"0": END, "1": END}, None):
            edited["source"]["end"] = end
            with pytest.raises(InvalidPipeline, match=r"source\.(end|start)"):
                made.world.ingest(edited, decisions=DECIDED).survey.look()
        edited["source"]["end"] = made.fields["source"]["end"]
        boundaries = {lane.start for lane in made.world.table.held.of(where)}
        again = any(name == "recreate" for name, *_ in course)
        others = set(range(made.world.topics.snapshot().partitions[where].log_start, END + 1)) - boundaries
        for other in [] if again else sorted(others)[-1:]:
            edited["source"]["start"] = {"0": other}
            with pytest.raises(InvalidPipeline, match=rf"source\.start: tweets/0 was begun at \d+, not at {other}"):
                made.world.ingest(edited, decisions=DECIDED).survey.look()


def course(tmp_path: Path, start: dict[str, int] | None = None, delivery: str = "exactly_once") -> Course:
    return Course(tmp_path, start, delivery)


@pytest.mark.parametrize("offset", [1, 5, END - 1])
def test_after_a_batch_was_skipped(tmp_path: Path, offset: int) -> None:
    made = course(tmp_path, {"0": 1, "1": 1})
    made.skip(0, offset)
    made.prove()
    assert (offset, offset + 1, offset + 1, SKIPPED) in lanes(made.world)


@pytest.mark.parametrize("to", [3, END])
def test_after_a_loss(tmp_path: Path, to: int) -> None:
    made = course(tmp_path, {"0": 1, "1": 1})
    made.look()
    made.lose(0, to)
    made.run()
    made.prove()
    assert (1, 1, to, LOST) in lanes(made.world)


@pytest.mark.parametrize("number", [1, 3])
def test_after_at_most_once_was_killed_in_the_first_or_last_batch(tmp_path: Path, number: int) -> None:
    made = course(tmp_path, {"0": 1, "1": 1}, "at_most_once")
    made.kill("collect.all", number)
    made.run()
    made.prove()
    assert any(kind == LOST for *_, kind in lanes(made.world))


def test_after_what_lay_before_the_start_was_read_and_claimed(tmp_path: Path) -> None:
    made = course(tmp_path, {"0": 4, "1": 7}, "at_most_once")
    made.run(1)
    made.backfill(1, 3)
    made.run()
    made.prove()
    assert {lane[0] for lane in lanes(made.world)} >= {1, 4}


def test_after_offsets_from_before_the_start_on_were_read_again(tmp_path: Path) -> None:
    made = course(tmp_path, {"0": 4, "1": 7})
    made.run()
    made.back(0, 2)
    made.run()
    made.prove()
    assert lanes(made.world) == [(1, 1, 2, SKIPPED), (2, 4, 4, READ), (4, 10, 10, READ)]


@pytest.mark.parametrize("start", [0, 2, 3])
def test_an_edit_back_over_what_was_left_out_is_reported(tmp_path: Path, start: int) -> None:
    made = course(tmp_path, {"0": 4, "1": 7})
    if start == 0:
        made.world.topics = type(made.world.topics)(2)
        made.world.stager.topics = made.world.topics
        for partition in (0, 1):
            made.world.topics.numbered(partition, END)
    made.skip(0, 4)
    made.fields["source"]["start"] = {"0": start, "1": 7}
    with pytest.raises(InvalidPipeline, match=rf"source\.start: tweets/0 was begun at 4, not at {start}"):
        made.look()
