"""Test commits: atomicity, compare-and-swap on the planned ledger, and recovery from lost responses."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError, Fenced, OutcomeUnknown
from kpipe.interfaces import Destination, Publication
from kpipe.ledger.ledger import LOST, SKIPPED, Lane, LaneChange
from kpipe.ledger.tail import CUT, Tail
from kpipe.offsets import Range
from kpipe.topics import TopicId
from resources.testing.place import COLUMNS, Place, batch, begin, live, read_step, source
from resources.testing.state import begun, loaded, positions, proof

__all__ = ["Commits"]


class Commits:
    """Tests of compare-and-swap and of the three outcomes of a commit. Needs a fixture `place`."""

    def test_nothing_exists_before_the_first_commit(self, place: Place) -> None:
        destination = place.open()
        uid, ledger = destination.ledger()
        assert (uid, ledger.seq, dict(ledger.lanes), ledger.dead_letters) == ("", 0, {}, 0)
        assert destination.columns() is None
        assert not destination.history() and not destination.unpublished() and not destination.view("batches")
        assert proof(destination).ok
        destination.record_state("running")
        assert destination.ledger()[0] == ""
        assert list(destination.published([Publication("x", 1, {})])) == []

    def test_first_commit_registers_and_later_ones_count(self, place: Place) -> None:
        destination = place.open()
        assert destination.commit(begin("tweets", [0, 1])).seq == 1
        uid, ledger = destination.ledger()
        assert uid and ledger.seq == 1 and positions(destination) == {0: 0, 1: 0}
        for end in (3, 6, 9):
            destination.commit(batch(place, destination.ledger()[1], {0: end}))
        again, ledger = place.open().ledger()
        assert (again, ledger.seq) == (uid, 4)

    def test_rows_and_offsets_come_together(self, place: Place) -> None:
        destination = begun(place)
        commit = batch(place, destination.ledger()[1], {0: 10, 1: 5}, dead=[(0, 3)], gaps=[(1, 4)])
        done = destination.commit(commit)
        assert (done.seq, done.commit) == (2, commit)
        assert positions(destination) == {0: 10, 1: 5}
        rows = {(r["_kafka_partition"], r["_kafka_offset"]): (r["id"], r["text"]) for r in place.rows()}
        assert len(rows) == len(place.rows()) == 13
        assert rows[1, 3] == (1_000_003, "t3") and (0, 3) not in rows
        assert place.dead_letters() == destination.ledger()[1].dead_letters == 1
        assert destination.columns() == COLUMNS
        found = proof(destination)
        assert found.ok and (found.span, found.counts.rows, found.counts.dead_letters, found.counts.gaps) == (15, 13, 1, 1)

    def test_batches_of_a_single_offset(self, place: Place) -> None:
        """Test that the next offset is exclusive: an error by one would lose or duplicate a record at each batch end."""
        destination = begun(place)
        for end in range(1, 9):
            at = end - 1
            what: dict[str, Any] = {"dead": [(0, at)]} if at == 3 else {"gaps": [(0, at)]} if at == 5 else {}
            destination.commit(batch(place, destination.ledger()[1], {0: end}, **what))
            assert positions(destination)[0] == end
        assert sorted(row["_kafka_offset"] for row in place.rows()) == [0, 1, 2, 4, 6, 7]
        assert [entry.range for entry in destination.history()] == [Range(at, at + 1) for at in range(8)]
        assert place.dead_letters() == 1 and proof(destination).ok

    def test_history_keeps_every_range(self, place: Place) -> None:
        destination = loaded(place)
        destination.commit(batch(place, destination.ledger()[1], {0: 12}))
        ranges = [(e.source.partition, e.range) for e in destination.history()]
        assert ranges == [(0, Range(0, 10)), (1, Range(0, 5)), (0, Range(10, 12))]
        assert [e.counts.rows for e in destination.history()] == [10, 5, 2]
        assert destination.history()[0].counts.bytes == 100

    @pytest.mark.parametrize("stale", [{0: 9}, {0: 11}, {1: 4}, {1: 6}, {0: 11, 1: 6}])
    def test_any_lane_that_differs_fences_all(self, place: Place, stale: dict[int, int]) -> None:
        destination = loaded(place)
        ledger, before = destination.ledger()[1], place.rows()
        lanes = []
        for number in (0, 1):
            lane = live(ledger, number)
            lanes.append(replace(lane, next=stale.get(number, lane.next), tail=None))
        with pytest.raises(Fenced, match=r"tweets/\d \(lane from 0\): expected next offset \d+, found next offset \d+"):
            destination.commit(batch(place, ledger, {0: 20, 1: 20}, lanes=lanes))
        assert (destination.ledger()[1], place.rows()) == (ledger, before)
        assert proof(destination).ok

    @pytest.mark.parametrize(
        "expect", [Lane(source(0), 0, 10, 20), Lane(source(0), 0, 10, 10, LOST), Lane(source(0), 0, 10, 10, SKIPPED)]
    )
    def test_end_and_kind_are_compared_too(self, place: Place, expect: Lane) -> None:
        destination = loaded(place)
        with pytest.raises(Fenced):
            destination.commit(Commit("x1", "tweets", (LaneChange(expect, expect),), kind="jump"))
        with pytest.raises(Fenced):
            destination.commit(Commit("x2", "tweets", (LaneChange(expect, None),), kind="jump"))
        assert destination.ledger()[1].seq == 2

    def test_fingerprints_are_stored_and_compared(self, place: Place) -> None:
        """Test that the fingerprint of the last records moves with the lane: a stale one would be an alarm about the topic."""
        destination = loaded(place)
        lane = live(destination.ledger()[1], 0)
        known = lane.tail
        assert known is not None and known == read_step(replace(lane, next=0, tail=None), 10).tail
        for tail in (None, Tail.made(10, known.records, 4), Tail.made(10, known.records[1:], 3)):
            other = replace(lane, tail=tail)
            with pytest.raises(Fenced, match="found next offset 10"):
                destination.commit(Commit("x1", "tweets", (LaneChange(other, other.advanced(11)),), kind="jump"))
        marked = replace(lane, tail=known.marked(CUT))
        destination.commit(Commit("x2", "tweets", (LaneChange(lane, marked),), kind="cut", note="cut"))
        assert live(place.open().ledger()[1], 0) == marked
        fresh = Lane(marked.source, 10, 10)
        changes = LaneChange(marked, marked.closed()), LaneChange(None, fresh)
        destination.commit(Commit("x3", "tweets", changes, kind="accept_log", note="accept_log"))
        assert place.open().ledger()[1].of(marked.source) == (marked.closed(), fresh)
        destination.commit(batch(place, destination.ledger()[1], {0: 12}))
        assert proof(place.open()).ok and list(proof(place.open()).replaced) == ["tweets/0 [0, 10)"]

    def test_another_identity_of_the_topic_is_another_lane(self, place: Place) -> None:
        destination = loaded(place)
        for topic in (TopicId("cluster-2", "topic-id-1", "tweets"), TopicId("cluster-1", "topic-id-2", "tweets")):
            lane = Lane(source(0, topic), 0, 10)
            with pytest.raises(Fenced, match="found no lane"):
                destination.commit(Commit("x", "tweets", (LaneChange(lane, lane.advanced(11)),)))

    def test_topics_without_ids_are_told_apart_by_name(self, place: Place) -> None:
        destination = place.open()
        for name in ("a", "b"):
            destination.commit(begin("tweets", [0], topic=TopicId("mock", "", name)))
        assert len(destination.ledger()[1].lanes) == 2

    def test_zombie_is_fenced(self, place: Place) -> None:
        zombie = begun(place)
        late = batch(place, zombie.ledger()[1], {0: 10, 1: 5})
        successor = place.open()
        successor.commit(batch(place, successor.ledger()[1], {0: 4}))
        with pytest.raises(Fenced, match="another run committed first"):
            zombie.commit(late)
        assert len(place.rows()) == 4 and proof(successor).ok

    def test_commits_in_the_wrong_order(self, place: Place) -> None:
        destination = begun(place)
        ledger = destination.ledger()[1]
        first = batch(place, ledger, {0: 5})
        second = batch(place, ledger.after(first.changes), {0: 9})
        with pytest.raises(Fenced):
            destination.commit(second)
        destination.commit(first)
        destination.commit(second)
        assert positions(destination) == {0: 9, 1: 0}

    def test_two_first_runs(self, place: Place) -> None:
        a, b = place.open(), place.open()
        a.commit(begin("tweets", [0, 1]))
        with pytest.raises(Fenced, match="expected no lane"):
            b.commit(begin("tweets", [0, 1]))
        with pytest.raises(Fenced, match="overlaps"):  # begun at another offset, as the log start moved meanwhile
            b.commit(begin("tweets", [0], at=3))
        assert a.ledger()[1].seq == 1

    def test_racing_commits_one_wins(self, place: Place) -> None:
        """Start threads at a barrier, first with `begin` commits, then with batches: exactly one commit succeeds each time."""
        for make in (lambda _: begin("tweets", [0, 1]), lambda d: batch(place, d.ledger()[1], {0: 10, 1: 5})):
            racers = [place.open() for _ in range(4)]
            commits, barrier = [make(racer) for racer in racers], threading.Barrier(4)
            answers: list[int | Exception] = []

            def run(racer: Destination, commit: Commit, barrier: Any = barrier, answers: list[Any] = answers) -> None:
                barrier.wait()
                try:
                    answers.append(racer.commit(commit).seq)
                except Exception as error:
                    answers.append(error)

            threads = [threading.Thread(target=run, args=pair) for pair in zip(racers, commits, strict=True)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sum(isinstance(answer, Fenced) for answer in answers) == 3, answers
            assert sum(isinstance(answer, int) for answer in answers) == 1, answers
        assert len(place.rows()) == 15 and proof(place.open()).ok and place.open().ledger()[1].seq == 2

    def test_racing_pipelines_all_land(self, place: Place) -> None:
        """Commit concurrently to pipelines that share nothing but the ledger's tables."""
        destinations = [begun(place, 1, pipeline=f"p{n}", table=f"t{n}") for n in range(4)]
        errors: list[BaseException] = []

        def run(number: int) -> None:
            try:
                for end in (2, 4, 6):
                    destinations[number].commit(batch(place, destinations[number].ledger()[1], {0: end}))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors
        for number, destination in enumerate(destinations):
            assert len(place.rows(f"t{number}")) == 6 and destination.ledger()[1].seq == 4 and proof(destination).ok

    def test_answer_lost_after_landing_is_success(self, place: Place) -> None:
        destination = begun(place)
        place.fail_next("after_landed")
        assert destination.commit(batch(place, destination.ledger()[1], {0: 10})).seq == 2
        assert len(place.rows()) == 10 and proof(destination).ok

    def test_failure_before_landing_changes_nothing_and_the_retry_lands(self, place: Place) -> None:
        destination = begun(place)
        ledger = destination.ledger()[1]
        commit = batch(place, ledger, {0: 10}, dead=[(0, 1)])
        place.fail_next("before")
        with pytest.raises(DestinationError) as caught:
            destination.commit(commit)
        assert not isinstance(caught.value, (Fenced, OutcomeUnknown))
        assert (destination.ledger()[1], place.rows(), place.dead_letters()) == (ledger, [], 0)
        assert destination.columns() is None or not place.ddl_in_transaction
        assert destination.commit(commit).seq == 2
        assert len(place.rows()) == 9

    def test_first_commit_that_fails_leaves_nothing(self, place: Place) -> None:
        destination = place.open()
        place.fail_next("before")
        with pytest.raises(DestinationError):
            destination.commit(begin("tweets", [0]))
        assert destination.ledger()[0] == ""
        assert destination.commit(begin("tweets", [0])).seq == 1

    def test_unknown_says_so_and_the_next_try_finds_out(self, place: Place) -> None:
        destination = begun(place)
        commit = batch(place, destination.ledger()[1], {0: 10})
        place.fail_next("unknown")
        with pytest.raises(OutcomeUnknown, match=commit.id):
            destination.commit(commit)
        assert destination.commit(commit).seq == 2
        assert len(place.rows()) == 10 and proof(destination).ok

    def test_committing_again_changes_nothing(self, place: Place) -> None:
        destination = begun(place)
        commit = batch(place, destination.ledger()[1], {0: 10}, dead=[(0, 0)])
        first = destination.commit(commit)
        destination.commit(batch(place, destination.ledger()[1], {0: 12}))
        for file in (*commit.only.files, *commit.dead_letters):
            Path(file.path).unlink()  # deleted by garbage collection meanwhile
        assert destination.commit(commit) == first
        assert len(place.rows()) == 11 and destination.ledger()[1].seq == 3 and proof(destination).ok
