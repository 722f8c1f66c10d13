"""Test that ledger and table agree: operator decisions are recorded, and changes made by hand are detected."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from kpipe.batch.batch import Batch, Commit
from kpipe.errors import DestinationError, Fenced, LedgerMismatch
from kpipe.ingest.at_most_once import claim
from kpipe.interfaces import Destination
from kpipe.ledger import transitions
from kpipe.ledger.ledger import LOST, Lane, LaneChange, Ledger
from kpipe.offsets import Range
from kpipe.topics import TopicId
from resources.testing.exchanged_rows import ExchangedRows
from resources.testing.place import COLUMNS, COORDINATES, TOPIC, Place, arrow, batch, begin, live, source
from resources.testing.state import begun, loaded, positions, proof, reread

__all__ = ["Counting", "with_topic"]


class Counting(ExchangedRows):
    """Tests of operator decisions and counts. Needs a fixture `place`."""

    def test_jump_loss_and_backfill(self, place: Place) -> None:
        destination = loaded(place)
        where = source(0)

        def decide(kind: str, changes: tuple[LaneChange, ...]) -> None:
            destination.commit(Commit(os.urandom(8).hex(), "tweets", changes, kind=kind, note="by me"))

        decide("jump", transitions.jump(destination.ledger()[1], where, 50))
        decide("loss", transitions.accept_loss(destination.ledger()[1], where, 60))
        ledger = destination.ledger()[1]
        assert [(x.start, x.next, x.end, x.kind) for x in ledger.of(where)] == [
            (0, 10, 10, "read"), (10, 10, 50, "skipped"), (50, 50, 60, "lost"), (60, 60, None, "read"),
        ]  # fmt: skip
        decide("backfill", transitions.backfill(ledger, where, Range(20, 30)))
        ledger = destination.ledger()[1]
        filling = next(lane for lane in ledger.of(where) if lane.start == 20)
        newest = live(ledger, 0)
        # Both batches were planned on the same ledger; they change different lanes, so both succeed.
        old = batch(place, ledger, {0: 30}, lanes=[filling])
        new = batch(place, ledger, {0: 65}, lanes=[newest])
        destination.commit(new)
        destination.commit(old)
        assert positions(destination) == {0: 65, 1: 5} and len(place.rows()) == 15 + 10 + 5
        assert proof(destination).ok and destination.ledger()[1].seq == 7
        with pytest.raises(Fenced):
            destination.commit(batch(place, ledger, {0: 30}, lanes=[filling]))
        cursor = next(row for row in destination.view("cursors") if row["source_partition_id"] == 0)
        assert (cursor["cursor_offset"], cursor["successful_cursor_offset"]) == (65, 10)

    @pytest.mark.parametrize("lane", [Lane(source(0), 5, 5), Lane(source(0), 3, 3, 7), Lane(source(0), 100, 100)])
    def test_overlap_is_refused(self, place: Place, lane: Lane) -> None:
        destination = loaded(place)
        ledger = destination.ledger()[1]
        with pytest.raises(DestinationError):
            destination.commit(Commit("x", "tweets", (LaneChange(None, lane),), kind="begin"))
        assert destination.ledger()[1] == ledger

    def test_changes_that_overlap_among_themselves_are_refused(self, place: Place) -> None:
        destination = place.open()
        lanes = (Lane(source(0), 0, 0, 10), Lane(source(0), 5, 5, 15))
        with pytest.raises(DestinationError, match="twice"):
            destination.commit(Commit("x", "tweets", tuple(LaneChange(None, lane) for lane in lanes), kind="begin"))
        assert destination.ledger()[0] == ""

    def test_commit_without_changes_is_recorded_once(self, place: Place) -> None:
        destination = loaded(place)
        commit = Commit("accepted", "tweets", (), kind="accept_ledger", note="accepted by me")
        assert destination.commit(commit).seq == destination.commit(commit).seq == 3
        assert destination.ledger()[1].seq == 3

    def test_empty_batch_advances(self, place: Place) -> None:
        destination = begun(place)
        commit = batch(place, destination.ledger()[1], {0: 4}, gaps=[(0, n) for n in range(4)])
        assert not commit.only.files
        destination.commit(commit)
        assert positions(destination)[0] == 4 and destination.columns() == COLUMNS and place.rows() == []
        destination.commit(batch(place, destination.ledger()[1], {0: 6}))
        assert len(place.rows()) == 2 and proof(destination).ok

    def test_deleted_row_is_found(self, place: Place) -> None:
        if not place.rows_go:
            pytest.skip("this destination cannot delete a single row")
        destination = loaded(place)
        place.delete_row(0, 3)
        found = proof(destination)
        assert any("partition 0: expected 10 rows, found 9 in the table" in p for p in found.problems)
        assert any("9 rows found, 10 committed" in p for p in found.problems)

    def test_doubled_row_is_found_even_when_another_was_deleted(self, place: Place) -> None:
        destination = loaded(place)
        if not place.rows_go:
            place.double_row(0, 4)
            assert "partition 0: 1 rows repeat an offset" in proof(destination).problems
            return
        place.delete_row(0, 3)
        place.double_row(0, 4)
        assert proof(destination).problems == ["partition 0: 1 rows repeat an offset"]

    def test_deleted_dead_letter_is_found(self, place: Place) -> None:
        destination = loaded(place, dead=[(0, 1), (0, 2)])
        assert proof(destination).ok
        place.delete_dead_letter()
        assert proof(destination).problems == ["partition 0: expected 2 dead letters, found 1"]

    @pytest.mark.parametrize("to", [12, 3, None])
    def test_ledger_that_was_edited_by_hand_is_no_ledger(self, place: Place, to: int | None) -> None:
        """A lane moved ahead would lose records; a lane moved back or deleted would read them again."""
        destination = loaded(place)
        rows = place.rows()
        if to is None:
            place.erase_lane(0)
        else:
            place.move_lane(0, to)
        for _ in range(2):
            with pytest.raises(LedgerMismatch, match="changed by hand"):
                place.open().ledger()
        place.move_lane(1, 6)
        with pytest.raises(LedgerMismatch):
            destination.ledger()
        assert place.rows() == rows

    def test_dropped_table_is_found(self, place: Place) -> None:
        destination = loaded(place)
        commit = batch(place, destination.ledger()[1], {0: 12})
        place.drop_table()
        if place.ledger_in_table:  # dropped together; kpipe/run_events.py detects it
            assert destination.ledger() == ("", Ledger("tweets"))
            with pytest.raises(Fenced, match="found no lane"):
                destination.commit(commit)
            return
        for act in (destination.columns, lambda: destination.commit(commit)):
            with pytest.raises(LedgerMismatch, match=f"table {place.name('tweets')} is missing"):
                act()
        assert not proof(destination).ok and destination.ledger()[1].seq == 2

    def test_offsets_that_are_read_again_on_demand(self, place: Place) -> None:
        destination = loaded(place)
        reread(destination, 6)
        assert positions(destination) == {0: 6, 1: 5}
        assert proof(destination).ok, proof(destination).problems
        destination.commit(batch(place, destination.ledger()[1], {0: 12}))
        assert [(e.source.partition, e.range, e.reread) for e in destination.history()] == [
            (0, Range(0, 10), False), (1, Range(0, 5), False), (0, Range(6, 10), True), (0, Range(6, 12), False)
        ]  # fmt: skip
        found = proof(destination)
        assert found.ok, found.problems
        assert (found.span, found.counts.rows, len(place.rows())) == (21, 21, 21)

    @pytest.mark.parametrize("again", [3, 4, 6, 8, 11])
    def test_a_lost_and_a_doubled_row_are_found_beside_offsets_that_were_read_again(self, place: Place, again: int) -> None:
        """The number of the partition's rows stays the same: each offset that was read once must be there once."""
        destination = loaded(place)
        reread(destination, 6)
        destination.commit(batch(place, destination.ledger()[1], {0: 9}))
        destination.commit(batch(place, destination.ledger()[1], {0: 12}))
        assert proof(destination).ok, proof(destination).problems
        place.double_row(0, again)  # two rows more of an offset that was read twice
        if place.rows_go:
            place.delete_row(0, 2)
        assert not proof(destination).ok

    def test_lost_and_doubled_rows_are_found_in_a_range_that_was_read_completely_again(self, place: Place) -> None:
        """The number of rows stays the same: each offset may be there as often as it was read."""
        destination = loaded(place)
        for _ in range(2):
            reread(destination, 0)
            destination.commit(batch(place, destination.ledger()[1], {0: 10}))
        assert proof(destination).ok, proof(destination).problems
        place.double_row(0, 4)
        if place.rows_go:
            place.delete_row(0, 1)
        assert not proof(destination).ok

    def test_a_lost_and_a_doubled_row_are_found_where_each_reading_counts(self, place: Place) -> None:
        destination = begun(place)
        whole = batch(place, destination.ledger()[1], {0: 10, 1: 5})
        destination.commit(replace(whole, kind="rows", changes=()))
        again = batch(place, destination.ledger()[1], {0: 4})
        destination.commit(replace(again, kind="rows", changes=()))
        destination.commit(Commit("a" * 32, "tweets", again.changes, kind="advance"))
        assert proof(destination).ok, proof(destination).problems
        place.double_row(0, 8)
        if place.rows_go:
            place.delete_row(0, 9)
        assert not proof(destination).ok

    def test_offsets_of_a_topic_that_was_recreated_are_not_taken_for_doubles(self, place: Place) -> None:
        destination = loaded(place)
        recreated = TopicId(TOPIC.cluster, "topic-id-2", TOPIC.name)
        destination.commit(begin("tweets", (0,), topic=recreated))
        destination.commit(batch(place, destination.ledger()[1], {0: 7}, topic=recreated))
        assert proof(destination).ok, proof(destination).problems
        if not place.fingerprints:
            return
        place.double_row(0, 9)
        if place.rows_go:
            place.delete_row(0, 8)
        assert not proof(destination).ok

    def test_a_topic_that_was_recreated_beside_another(self, place: Place) -> None:
        """Rows name their topic, which two readers have read."""
        destination, other = loaded(place), TopicId(TOPIC.cluster, "topic-id-2", "more")
        recreated = TopicId(TOPIC.cluster, "topic-id-3", TOPIC.name)
        for topic in (other, recreated):
            destination.commit(begin("tweets", (0,), topic=topic))
            with_topic(destination, place, topic, 7)
        found = proof(destination, multi_topic=True)
        assert found.ok, found.problems

    @pytest.mark.parametrize("lost", [3, 10, 102])
    def test_rows_from_before_a_topic_was_added(self, place: Place, lost: int) -> None:
        """They name no topic, and are those of the only one then."""
        destination, other = loaded(place), TopicId(TOPIC.cluster, "topic-id-2", "more")
        destination.commit(begin("tweets", (0,), at=100, topic=other))
        for topic, end in ((other, 105), (TOPIC, 12)):
            with_topic(destination, place, topic, end)
        assert proof(destination, multi_topic=True).ok, proof(destination, multi_topic=True).problems
        place.double_row(0, lost + 1)
        if place.rows_go:
            place.delete_row(0, lost)
        assert not proof(destination, multi_topic=True).ok

    def test_rows_without_a_topic_beside_those_of_a_pipeline_that_names_topics(self, place: Place) -> None:
        """They are of the topics that no row names."""
        destination, two, other = loaded(place, {0: 10}), place.open("other"), TopicId(TOPIC.cluster, "topic-id-2", "more")
        two.commit(begin("other", (0,), topic=other))
        with_topic(two, place, other, 5, "other")
        for found in (proof(destination), proof(two)):
            assert found.ok and not (place.fingerprints and found.unproven), (found.problems, found.unproven)
        if place.fingerprints:
            place.double_row(0, 8)
            if place.rows_go:
                place.delete_row(0, 7)
            assert not proof(destination).ok

    def test_rows_without_a_topic_of_a_pipeline_that_names_it_later(self, place: Place) -> None:
        """Both pipelines have written rows without a topic, at the same offsets."""
        destination, two, other = loaded(place, {0: 10}), place.open("other"), TopicId(TOPIC.cluster, "topic-id-2", "more")
        two.commit(begin("other", (0,), topic=other))
        two.commit(replace(batch(place, two.ledger()[1], {0: 5}, topic=other), pipeline="other"))
        with_topic(destination, place, TOPIC, 12)
        for found in (proof(destination), proof(two)):
            assert found.ok and not (place.fingerprints and found.unproven), (found.problems, found.unproven)

    def test_rows_that_land_before_the_ledger(self, place: Place) -> None:
        """Test `delivery: at_least_once`: rows committed without their offsets may be read again; each read is counted."""
        destination = begun(place)
        whole = batch(place, destination.ledger()[1], {0: 10, 1: 5}, dead=[(0, 3)])
        destination.commit(replace(whole, kind="rows", changes=()))
        assert positions(destination) == {0: 0, 1: 0} and len(place.rows()) == 14
        found = proof(destination)
        assert found.ok and found.repeated == ["tweets/0 [0, 10)", "tweets/1 [0, 5)"], found.problems
        again = batch(place, destination.ledger()[1], {0: 7}, dead=[(0, 3)])
        destination.commit(replace(again, kind="rows", changes=()))
        destination.commit(Commit("a" * 32, "tweets", again.changes, kind="advance"))
        found = proof(destination)
        assert positions(destination) == {0: 7, 1: 0} and len(place.rows()) == 20
        assert found.ok and found.repeated == ["tweets/0 [0, 10)", "tweets/1 [0, 5)"] and found.span == 22
        with pytest.raises(Fenced):
            place.open().commit(Commit("b" * 32, "tweets", whole.changes, kind="advance"))
        destination.commit(batch(place, destination.ledger()[1], {0: 12, 1: 5}))
        assert proof(destination).ok
        if place.rows_go:
            place.delete_row(1, 4)
            assert not proof(destination).ok

    def test_a_table_that_is_verified_while_a_run_commits(self, place: Place) -> None:
        """Ledger, history and table are compared in one state: no commit comes between."""
        destination, writer = loaded(place), place.open()

        def commit() -> None:
            for end in range(11, 17):
                writer.commit(batch(place, writer.ledger()[1], {0: end}, dead=[(0, end - 1)] if end % 2 else []))

        with ThreadPoolExecutor(1) as pool:
            committing = pool.submit(commit)
            while not committing.done():
                found = proof(destination)
                assert found.ok, found.problems
                assert sum(item["rows_found"] for item in found.partitions.values()) == found.counts.rows
            committing.result()
        assert proof(destination).counts.rows == 18

    def test_offsets_that_are_claimed_before_their_rows(self, place: Place) -> None:
        """Test `delivery: at_most_once`: claimed offsets are lost until their rows are committed; a claim ends once."""
        destination = loaded(place)
        for end, fate in ((14, "landed"), (17, "released"), (19, "landed"), (23, "lost"), (25, "landed")):
            ledger = destination.ledger()[1]
            planned = batch(place, ledger, {0: end})
            found = claim(ledger, Batch(planned.id, "tweets", planned.steps))
            destination.commit(Commit(f"{end:032}", "tweets", found.changes, kind="claim"))
            after = destination.ledger()[1]
            taken = planned.steps[0].range
            assert all(at in after.unread(source(0), LOST) for at in range(taken.start, taken.end))
            assert positions(destination)[0] == end and proof(destination).ok and proof(destination).lost
            landing = replace(planned, changes=found.landing, steps=found.batch.steps)
            landing = landing.stored({found.batch.steps[0].lane.key: planned.totals})
            if fate == "landed":
                destination.commit(landing)
            elif fate == "released":
                destination.commit(Commit(f"9{end:031}", "tweets", found.release, kind="release"))
                with pytest.raises(Fenced):
                    destination.commit(landing)
            assert proof(destination).ok, proof(destination).problems
        have = sorted(row["_kafka_offset"] for row in place.rows() if row["_kafka_partition"] == 0)
        assert have == [*range(19), 23, 24] and proof(destination).lost == ["tweets/0 [19, 23)"]

    def test_rows_of_a_program_with_many_answers(self, place: Place) -> None:
        """Rows of a program may repeat an offset or lack one."""
        destination = begun(place)
        ledger = destination.ledger()[1]
        for at, offset in ((0, 1), (1, None)):
            base = batch(place, ledger, {at: 2})
            where = {"_kafka_partition": at, "_kafka_offset": offset, "_kafka_timestamp": None}
            rows = [{"id": n, "text": "x", **where} for n in range(5)]
            key = base.steps[0].lane.key
            counts = replace(base.counts[key], rows=5, given=2, inserted=5)
            destination.commit(base.writing(files=(place.staged(rows),)).stored({key: counts}))
        found = proof(destination)
        assert found.ok and found.counts.rows == 10
        destination.commit(batch(place, destination.ledger()[1], {0: 7, 1: 7}))  # the program is removed by an edit
        assert proof(destination).ok, proof(destination).problems
        place.double_row(1, 4)
        if place.rows_go:
            place.delete_row(1, 5)
        assert not proof(destination).ok


def with_topic(destination: Destination, place: Place, topic: TopicId, end: int, pipeline: str = "tweets") -> None:
    """Commit rows of partition 0 that name their topic."""
    commit = batch(place, destination.ledger()[1], {0: end}, topic=topic)
    where, columns = commit.steps[0].range, {"_kafka_topic": pa.string(), **COORDINATES}
    rows = [
        {"id": at, "text": "x", "_kafka_topic": topic.name, "_kafka_partition": 0, "_kafka_offset": at}
        for at in range(where.start, where.end)
    ]
    file = place.file(rows, pa.schema([*((name, arrow(kind)) for name, kind in COLUMNS), *columns.items()]))
    destination.commit(replace(commit.writing(files=(file,)), pipeline=pipeline, multi_topic=True))
