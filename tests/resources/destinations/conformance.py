"""What every destination must hold (kpipe/ports.py). Runs over each `Place`; add one to PLACES to check another."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import pytest

from kpipe import moves
from kpipe.audit import Audit, audit
from kpipe.batch import Commit, Step
from kpipe.errors import DestinationError, Fenced, LedgerMismatch, OutcomeUnknown, SchemaConflict, StagingFailed
from kpipe.ledger import LOST, SKIPPED, Lane, LaneChange, Ledger
from kpipe.offsets import Range
from kpipe.ports import Destination, ErrorLog
from kpipe.schema import Columns
from kpipe.source import TopicId
from tests.resources.destinations.place import COLUMNS, DEAD_LETTERS, Place, batch, begin, source

HOSTILE = [
    'd"; drop table tweets; --', "'; DELETE FROM kpipe_ledger; --", "ünïcödé 日本 🎉", "x" * 200, "a\nb\tc", "$1 ? %s {0}",
    "select", "order", "\\", "a.b", "%2e%2e/", "../../etc/passwd",
]  # fmt: skip


def proof(destination: Destination) -> Audit:
    return audit(destination.ledger()[1], destination.history(), destination.recount())


def positions(destination: Destination) -> dict[int, int]:
    return {where.partition: at for where, at in destination.ledger()[1].positions().items()}


def begun(place: Place, partitions: int = 2, **names: str) -> Destination:
    destination = place.open(**names)
    destination.commit(begin(names.get("pipeline", "tweets"), range(partitions)))
    return destination


def loaded(place: Place, ends: dict[int, int] | None = None, **more) -> Destination:
    destination = begun(place)
    destination.commit(batch(place, destination.ledger()[1], ends or {0: 10, 1: 5}, **more))
    return destination


class Conformance:
    """Needs a fixture `place`."""

    # -- before anything

    def test_nothing_exists_before_the_first_commit(self, place: Place) -> None:
        destination = place.open()
        uid, ledger = destination.ledger()
        assert (uid, ledger.seq, dict(ledger.lanes), ledger.dead_letters) == ("", 0, {}, 0)
        assert destination.columns() is None
        assert list(destination.history()) == list(destination.unpublished()) == list(destination.view("batches")) == []
        assert proof(destination).ok
        destination.record_state("running")
        assert destination.ledger()[0] == ""
        assert list(destination.published(["x"])) == []

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
        """The next offset and the last one are not the same: off by one, a record would be lost or doubled at each cut."""
        destination = begun(place)
        for end in range(1, 9):
            at = end - 1
            what = {"dead": [(0, at)]} if at == 3 else {"gaps": [(0, at)]} if at == 5 else {}
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

    # -- compare-and-swap

    @pytest.mark.parametrize("stale", [{0: 9}, {0: 11}, {1: 4}, {1: 6}, {0: 11, 1: 6}])
    def test_any_lane_that_differs_fences_all(self, place: Place, stale: dict[int, int]) -> None:
        destination = loaded(place)
        ledger, before = destination.ledger()[1], place.rows()
        lanes = []
        for number in (0, 1):
            lane = ledger.live(source(number))
            lanes.append(replace(lane, next=stale.get(number, lane.next)))
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
        second = batch(place, ledger.apply(first.changes), {0: 9})
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
        """Threads at a barrier: first commits, then batches; exactly one of them lands each time."""
        for make in (lambda _: begin("tweets", [0, 1]), lambda d: batch(place, d.ledger()[1], {0: 10, 1: 5})):
            racers = [place.open() for _ in range(4)]
            commits, barrier, answers = [make(racer) for racer in racers], threading.Barrier(4), []

            def run(racer: Destination, commit: Commit, barrier=barrier, answers=answers) -> None:
                barrier.wait()
                try:
                    answers.append(racer.commit(commit).seq)
                except Exception as error:
                    answers.append(type(error))

            threads = [threading.Thread(target=run, args=pair) for pair in zip(racers, commits, strict=True)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(map(str, answers))[1:] == [str(Fenced)] * 3
        assert len(place.rows()) == 15 and proof(place.open()).ok and place.open().ledger()[1].seq == 2

    def test_racing_pipelines_all_land(self, place: Place) -> None:
        """Commits that have nothing to do with each other but the tables of the ledger."""
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
        assert not errors
        for number, destination in enumerate(destinations):
            assert len(place.rows(f"t{number}")) == 6 and destination.ledger()[1].seq == 4 and proof(destination).ok

    # -- three outcomes

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
        assert destination.columns() is None
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
        for file in (*commit.files, *commit.dead_letters):
            Path(file.path).unlink()  # collected since
        assert destination.commit(commit) == first
        assert len(place.rows()) == 11 and destination.ledger()[1].seq == 3 and proof(destination).ok

    # -- decisions

    def test_jump_loss_and_backfill(self, place: Place) -> None:
        destination = loaded(place)
        where = source(0)

        def decide(kind: str, changes: tuple[LaneChange, ...]) -> None:
            destination.commit(Commit(os.urandom(8).hex(), "tweets", changes, kind=kind, note="by me"))

        decide("jump", moves.jump(destination.ledger()[1], where, 50))
        decide("loss", moves.accept_loss(destination.ledger()[1], where, 60))
        ledger = destination.ledger()[1]
        assert [(x.start, x.next, x.end, x.kind) for x in ledger.of(where)] == [
            (0, 10, 10, "read"), (10, 10, 50, "skipped"), (50, 50, 60, "lost"), (60, 60, None, "read"),
        ]  # fmt: skip
        decide("backfill", moves.backfill(ledger, where, Range(20, 30)))
        ledger = destination.ledger()[1]
        filling = next(lane for lane in ledger.of(where) if lane.start == 20)
        live = ledger.live(where)
        # Both were planned on the same ledger, and neither is in the other's way.
        old = batch(place, ledger, {0: 30}, lanes=[filling])
        new = batch(place, ledger, {0: 65}, lanes=[live])
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
        assert not commit.files
        destination.commit(commit)
        assert positions(destination)[0] == 4 and destination.columns() == COLUMNS and place.rows() == []
        destination.commit(batch(place, destination.ledger()[1], {0: 6}))
        assert len(place.rows()) == 2 and proof(destination).ok

    # -- counts

    def test_deleted_row_is_found(self, place: Place) -> None:
        destination = loaded(place)
        place.delete_row(0, 3)
        found = proof(destination)
        assert any("partition 0: the table holds 9 rows, the ledger says 10" in p for p in found.problems)
        assert any("9 rows found, 10 committed" in p for p in found.problems)

    def test_doubled_row_is_found_even_when_another_was_deleted(self, place: Place) -> None:
        destination = loaded(place)
        place.delete_row(0, 3)
        place.double_row(0, 4)
        assert proof(destination).problems == ["partition 0: 1 rows repeat an offset"]

    def test_deleted_dead_letter_is_found(self, place: Place) -> None:
        destination = loaded(place, dead=[(0, 1), (0, 2)])
        assert proof(destination).ok
        place.delete_dead_letter()
        assert proof(destination).problems == ["partition 0: 1 dead letters are kept, the ledger says 2"]

    @pytest.mark.parametrize("to", [12, 3, None])
    def test_ledger_that_was_edited_by_hand_is_no_ledger(self, place: Place, to: int | None) -> None:
        """Moved ahead it would lose records, moved back or erased it would read them twice."""
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
        if place.ledger_in_table:  # gone together: the home's memory notices (kpipe/oversight.py)
            assert destination.ledger() == ("", Ledger("tweets"))
            with pytest.raises(Fenced, match="found no lane"):
                destination.commit(commit)
            return
        for act in (destination.columns, lambda: destination.commit(commit)):
            with pytest.raises(LedgerMismatch, match="table tweets is gone"):
                act()
        assert not proof(destination).ok and destination.ledger()[1].seq == 2

    def test_offsets_that_are_read_again_on_demand(self, place: Place) -> None:
        destination = loaded(place)
        ledger = destination.ledger()[1]
        changes, done = moves.reread(ledger, source(0), 6)
        steps = tuple(Step(Lane(source(0), item.start, item.start, item.end), item.end, "reread") for item in done)
        destination.commit(Commit("again", "tweets", changes, kind="reread", steps=steps, note="reread: tweets/0"))
        assert positions(destination) == {0: 6, 1: 5}
        assert proof(destination).ok, proof(destination).problems
        destination.commit(batch(place, destination.ledger()[1], {0: 12}))
        assert [(e.source.partition, e.range, e.reread) for e in destination.history()] == [
            (0, Range(0, 10), False), (1, Range(0, 5), False), (0, Range(6, 10), True), (0, Range(6, 12), False)
        ]  # fmt: skip
        found = proof(destination)
        assert found.ok, found.problems
        assert (found.span, found.counts.rows, len(place.rows())) == (21, 21, 21)

    def test_rows_of_a_program_with_many_answers(self, place: Place) -> None:
        """Offsets may repeat, and need not be known."""
        destination = begun(place)
        ledger = destination.ledger()[1]
        for at, offset in ((0, 1), (1, None)):
            base = batch(place, ledger, {at: 2})
            where = {"_kafka_partition": at, "_kafka_offset": offset, "_kafka_timestamp": None}
            rows = [{"id": n, "text": "x", **where} for n in range(5)]
            key = base.steps[0].lane.key
            counts = replace(base.counts[key], rows=5, given=2, inserted=5)
            destination.commit(replace(base, files=(place.staged(rows),), counts={key: counts}))
        found = proof(destination)
        assert found.ok and found.counts.rows == 10

    # -- staged files

    @pytest.mark.parametrize("what", ["missing", "truncated", "other bytes", "garbage", "rows", "columns", "counts"])
    @pytest.mark.parametrize("which", ["files", "dead_letters"])
    def test_file_that_is_not_what_was_reported(self, place: Place, what: str, which: str) -> None:
        destination = loaded(place)
        ledger, rows = destination.ledger()[1], place.rows()
        commit = batch(place, ledger, {0: 20, 1: 20}, dead=[(0, 15)])
        file = getattr(commit, which)[-1]
        path, data = Path(file.path), Path(file.path).read_bytes()
        if what == "missing":
            path.unlink()
        elif what == "truncated":
            path.write_bytes(data[:-1])
        elif what == "other bytes":
            path.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
        elif what == "garbage":
            path.write_bytes(b"\x00" * len(data))
        elif what == "rows":
            commit = replace(commit, **{which: (*getattr(commit, which)[:-1], replace(file, rows=file.rows + 1))})
        elif what == "counts":
            commit = replace(commit, **{which: getattr(commit, which)[:-1]})
        elif which == "files":
            odd = place.staged(
                [{"id": 1, "odd": "x", "_kafka_partition": 1}] * file.rows, Columns.of({"id": "BIGINT", "odd": "VARCHAR"})
            )
            commit = replace(commit, files=(*commit.files[:-1], odd))
        else:
            pytest.skip("dead letters have one shape")
        with pytest.raises(StagingFailed):
            destination.commit(commit)
        assert (destination.ledger()[1], place.rows(), place.dead_letters()) == (ledger, rows, 0)
        assert proof(destination).ok

    # -- columns

    def test_every_type_comes_back_as_it_went_in(self, place: Place) -> None:
        columns = Columns.of(
            {
                "b": "BOOLEAN", "i": "INTEGER", "d": "DOUBLE", "n": "DECIMAL(20,4)", "t": "TIMESTAMP WITH TIME ZONE", "j": "JSON",
                "s": 'STRUCT(a BIGINT, "order" VARCHAR, j JSON, deep STRUCT(x DOUBLE)[])', "l": "VARCHAR[]", "y": "BLOB",
            }
        )  # fmt: skip
        values = {
            "b": True, "i": -(2**31), "d": 0.1, "n": Decimal("1234567890123456.7891"),
            "t": datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc),
            "j": '{"k":[1,null]}', "s": {"a": 2**63 - 1, "order": "", "j": "null", "deep": [{"x": 1.5}, None]},
            "l": ["a", None, ""], "y": b"\x00\xff",
        }  # fmt: skip
        destination = begun(place)
        destination.commit(batch(place, destination.ledger()[1], {0: 1}, columns, values))
        destination.commit(batch(place, destination.ledger()[1], {0: 2}, columns, dict.fromkeys(values)))
        assert destination.columns() == columns
        found, empty = place.rows()
        assert {name: found[name] for name in values} == values
        assert {name: empty[name] for name in values} == dict.fromkeys(values)

    def test_table_is_widened(self, place: Place) -> None:
        first = Columns.of({"id": "BIGINT", "s": "STRUCT(a BIGINT)", "l": "STRUCT(x BIGINT)[]"})
        added = Columns.of({"s": "STRUCT(b VARCHAR, deep STRUCT(c DATE))", "l": 'STRUCT("y z" JSON)[]', "New": "VARCHAR[]"})
        destination = begun(place)
        destination.commit(batch(place, destination.ledger()[1], {0: 1}, first, {"id": 1, "s": {"a": 1}, "l": [{"x": 1}]}))
        wide = first.merged(added)
        values = {"id": 2, "s": {"a": 1, "b": "b", "deep": {"c": None}}, "l": [{"x": 1, "y z": "[]"}], "New": ["n"]}
        place.fail_next("before")
        commit = batch(place, destination.ledger()[1], {0: 2}, wide, values)
        with pytest.raises(DestinationError):
            destination.commit(commit)
        assert destination.columns() == first
        destination.commit(commit)
        assert destination.columns() == wide
        found = next(row for row in place.rows() if row["id"] == 2)
        assert {name: found[name] for name in values} == values
        # A batch that was staged before the table was widened still lands: the columns it lacks stay empty.
        destination.commit(batch(place, destination.ledger()[1], {1: 1}, first, {"id": 3, "s": {"a": 7}, "l": [None]}))
        found = next(row for row in place.rows() if row["id"] == 3)
        assert found["s"]["a"] == 7 and found["New"] is None and proof(destination).ok

    @pytest.mark.parametrize("kind", ["VARCHAR", "BIGINT[]", "STRUCT(a BIGINT)", "JSON"])
    def test_type_that_does_not_fit(self, place: Place, kind: str) -> None:
        destination = loaded(place)
        ledger, rows = destination.ledger()[1], place.rows()
        with pytest.raises(SchemaConflict, match="column id"):
            destination.commit(batch(place, ledger, {0: 12}, Columns.of({"id": kind, "new": "BIGINT"}), {"id": None, "new": 1}))
        assert (destination.ledger()[1], place.rows(), destination.columns()) == (ledger, rows, COLUMNS)

    def test_hostile_text_is_data(self, place: Place) -> None:
        names = [name for name in HOSTILE if len(name.encode()) <= place.longest_name]
        columns = Columns(tuple((name, COLUMNS.get("text")) for name in names))
        inner = Columns.of({"s": "STRUCT(" + ", ".join('"' + n.replace('"', '""') + '" VARCHAR' for n in names) + ")"})
        columns = Columns((*columns.items, *inner.items))
        values = {**{name: name for name in names}, "s": {name: name for name in names}}
        destination = begun(place)
        destination.commit(batch(place, destination.ledger()[1], {0: 1}, columns, values))
        assert destination.columns() == columns
        assert {name: place.rows()[0][name] for name in values} == values
        letters = [place.dead(source(0), 1 + n, text.encode(), text) for n, text in enumerate(HOSTILE)]
        base = batch(place, destination.ledger()[1], {0: 1 + len(letters)}, dead=[(0, 1 + n) for n in range(len(letters))])
        destination.commit(
            replace(
                base, dead_letters=(place.file(letters, DEAD_LETTERS),), note=HOSTILE[0], version=HOSTILE[1], columns=Columns()
            )
        )
        assert {row["reason"] if "reason" in row else row["error_message"] for row in destination.view("errors")} == set(HOSTILE)
        destination.record_state("error", HOSTILE[0] + "\ud800", "TransformFailed", base_batch(base), HOSTILE[1])
        assert destination.view("errors", limit=1)[0]["error_message"].startswith(HOSTILE[0])
        assert proof(destination).ok

    # -- other pipelines, publication, state

    def test_pipelines_share_a_table_and_nothing_else(self, place: Place) -> None:
        a, b = begun(place), begun(place, pipeline="other")
        a.commit(batch(place, a.ledger()[1], {0: 10}, dead=[(0, 9)]))
        b.commit(batch(place, b.ledger()[1], {0: 10}))
        assert len(place.rows()) == 19
        assert a.ledger()[0] != b.ledger()[0] and (a.ledger()[1].dead_letters, b.ledger()[1].dead_letters) == (1, 0)
        assert proof(a).ok and proof(b).ok
        place.delete_row(0, 3)
        assert not proof(a).ok and not proof(b).ok
        assert {row["pipeline_name"] for row in a.view("batches")} == {"tweets"}

    def test_metadata_is_given_out_once(self, place: Place) -> None:
        a, b = loaded(place), place.open()
        second = batch(place, a.ledger()[1], {0: 12})
        a.commit(second)
        waiting = a.unpublished()
        assert [(p.seq, dict(p.metadata)) for p in waiting] == [
            (2, {"0": {"end_offset": 10, "rows": 10}, "1": {"end_offset": 5, "rows": 5}}),
            (3, {"0": {"end_offset": 12, "rows": 2}}),
        ]
        assert [p.seq for p in a.unpublished(limit=1)] == [2]
        ids = [p.batch for p in waiting]
        assert list(a.published([ids[0], "unknown"])) == ids[:1]
        assert list(b.published(ids)) == ids[1:]
        assert list(a.published(ids)) == list(a.published([])) == list(b.unpublished()) == []

    def test_state_and_errors_are_shown(self, place: Place) -> None:
        destination = loaded(place)
        destination.record_state("needs_operator", "tweets/0: offsets are gone", "OffsetsLost", stderr="boom")
        row = destination.view("pipelines")[0]
        assert (row["state"], row["last_error"], row["seq"]) == ("needs_operator", "tweets/0: offsets are gone", 2)
        event = destination.view("errors")[0]
        assert (event["error_type"], event["error_code"], event["std_error"]) == ("Error", "OffsetsLost", "boom")
        destination.record_state("running")
        assert destination.view("pipelines")[0]["state"] == "running" and len(destination.view("errors")) == 1

    def test_errors_are_cleared_and_dead_letters_stay(self, place: Place) -> None:
        destination = begun(place)
        if not isinstance(destination, ErrorLog):
            pytest.skip("this destination cannot")
        destination.commit(batch(place, destination.ledger()[1], {0: 10}, dead=[(0, 3)]))
        for number in range(3):
            destination.record_state("error", f"it broke {number}", "TransformFailed")
        assert (len(destination.view("errors")), place.dead_letters()) == (4, 1)
        assert destination.clear_errors() == 3
        assert [row["dead_letter"] for row in destination.view("errors")] == [True]
        assert destination.clear_errors() == 0
        destination.record_state("error", "it broke again", "TransformFailed")
        assert len(destination.view("errors")) == 2
        assert proof(destination).ok

    def test_views_newest_first(self, place: Place) -> None:
        destination = loaded(place)
        destination.commit(batch(place, destination.ledger()[1], {0: 12}))
        assert [row["seq"] for row in destination.view("batches_summary")] == [3, 2]
        assert [row["seq"] for row in destination.view("batches")] == [3, 2, 2]
        assert len(destination.view("batches", limit=1)) == 1
        cursor = destination.view("cursors")[0]
        assert (cursor["source_type"], cursor["source_partition_id"], cursor["cursor_offset"], cursor["latest_offset"]) == (
            "KAFKA",
            0,
            12,
            19,
        )
        assert cursor["successful_cursor_offset"] == 12

    def test_describe_names_the_table(self, place: Place) -> None:
        assert "tweets" in place.open().describe()


def base_batch(commit: Commit):
    from kpipe.batch import Batch

    return Batch(commit.id, commit.pipeline, commit.steps)
