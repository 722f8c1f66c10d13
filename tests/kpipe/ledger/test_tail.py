"""The fingerprint of the last records before an offset: what it contains, how it is stored, and what it notices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kpipe.ledger import transitions
from kpipe.ledger.ledger import LOST, Lane, LaneChange, Ledger, checksum
from kpipe.ledger.tail import ACCEPTED, BYTES, CUT, RECORDS, SPAN, Difference, Tail, record_hash
from kpipe.offsets import Range, RangeSet
from kpipe.topics import PartitionId, TopicId

SOURCE = PartitionId(TopicId("c", "t", "tweets"), 0)
TAIL = Tail.made(20, ((15, "a"), (16, "b"), (19, "c")), 3)


def nothing_missing() -> int:
    raise AssertionError("the log is only queried if records are missing")


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        ({15: "a", 16: "b", 19: "c"}, None),
        ({15: "a", 16: "b", 19: "d"}, Difference(19, "c", "d")),
        ({15: "a", 16: "x", 17: "y", 19: "c"}, Difference(16, "b", "x")),
        ({15: "a", 16: "b", 17: "new", 19: "c"}, Difference(17, "", "new")),
        ({15: "a", 16: "b", 19: "c", 20: "lost"}, None),
    ],
)
def test_another_record_is_a_difference_whatever_the_cleanup_policy_is(
    found: dict[int, str], difference: Difference | None
) -> None:
    assert TAIL.difference(found, nothing_missing) == difference


@pytest.mark.parametrize(
    ("required", "difference"),
    [(0, Difference(15, "a", "")), (15, Difference(15, "a", "")), (16, Difference(16, "b", "")), (20, None)],
)
def test_a_missing_record_is_one_unless_the_log_starts_behind_it_or_is_compacted(
    required: int, difference: Difference | None
) -> None:
    for epoch in (-1, 2, 4):
        assert TAIL.difference({}, lambda: required, epoch) == difference


@pytest.mark.parametrize("found", [{19: "c"}, {15: "a", 19: "c"}, {16: "b", 19: "c", 20: "new"}])
def test_a_missing_record_before_an_unchanged_one_is_none(found: dict[int, str]) -> None:
    """The policy may have had compact only between two runs."""
    assert TAIL.difference(found, nothing_missing, 4) is None
    first = next(offset for offset, _ in TAIL.records if offset not in found)
    assert TAIL.difference(found, lambda: 0, compacted=False) == Difference(first, dict(TAIL.records)[first], "")


@pytest.mark.parametrize("found", [{15: "a", 16: "b"}, {15: "a"}, {16: "b"}, {}])
def test_missing_last_records_depend_on_an_election(found: dict[int, str]) -> None:
    first = next(offset for offset, _ in TAIL.records if offset > max(found, default=0))
    assert TAIL.difference(found, nothing_missing, TAIL.epoch) is None
    for tail, epoch in ((TAIL, 4), (TAIL, -1), (Tail.made(20, TAIL.records), -1), (Tail.made(20, TAIL.records), 0)):
        assert tail.difference(found, lambda: 0, epoch) == Difference(first, dict(TAIL.records)[first], "")
        assert tail.difference(found, lambda: 20, epoch) is None
    assert TAIL.difference({**found, 18: "new"}, nothing_missing, TAIL.epoch) == Difference(18, "", "new")


def test_it_contains_the_last_records_that_are_near_the_end() -> None:
    many = [(at, str(at)) for at in range(100)]
    found = Tail.of(100, many, 7)
    assert found is not None
    assert found.records == tuple(many[-RECORDS:]) and found.epoch == 7 and found.start == 100 - RECORDS
    assert Tail.of(99 + SPAN, many) == Tail.made(99 + SPAN, ((99, "99"),))
    assert Tail.of(100 + SPAN, many) is None
    assert Tail.of(5, []) is None
    assert BYTES >= 1 << 16


@pytest.mark.parametrize("tail", [TAIL, Tail.made(7, state=ACCEPTED), TAIL.marked(CUT), Tail.made(9, TAIL.records)])
def test_its_text_is_read_back(tail: Tail) -> None:
    assert Tail.read(tail.text, tail.end) == tail == Tail.made(tail.end, tail.records, tail.epoch, tail.state)
    assert Tail.read(None, 5) is None
    assert (TAIL.text, TAIL.marked(CUT).text) == ("3 - 15:a 16:b 19:c", "3 cut 15:a 16:b 19:c")


def test_a_record_is_hashed_with_everything_that_a_reader_gets() -> None:
    record = (7, 1000, b"k", b"v", b"h")
    others = [
        (8, 1000, b"k", b"v", b"h"), (7, 1001, b"k", b"v", b"h"), (7, 1000, b"kv", b"", b"h"), (7, 1000, b"", b"kv", b"h"),
        (7, 1000, None, b"v", b"h"), (7, 1000, b"k", None, b"h"), (7, 1000, b"k", b"v", None), (7, 1000, b"k", b"v", b""),
    ]  # fmt: skip
    assert len({record_hash(*one) for one in (record, *others)}) == 1 + len(others)
    assert len(record_hash(*record)) == 8


def test_only_what_the_log_still_contains_is_compared() -> None:
    assert TAIL.comparable(0) == TAIL
    assert TAIL.comparable(16) == Tail.made(20, TAIL.records[1:], 3)
    assert TAIL.comparable(20) is None
    assert TAIL.marked(CUT).comparable(0) is not None
    assert TAIL.marked(ACCEPTED).comparable(0) is None


def test_a_log_that_was_found_cut_must_show_a_known_record_again() -> None:
    """Otherwise compaction, or retention, of the other log's records would end the alarm without a decision."""
    cut = TAIL.marked(CUT)
    nothing = Difference(20, "", "", found_before=True)
    assert cut.difference({}, nothing_missing) == cut.difference({}, nothing_missing, TAIL.epoch) == nothing
    assert "none of the records that were read before offset 20" in str(cut.error("tweets/0", nothing))
    assert cut.difference({16: "b"}, lambda: 20) is None, "the old log is back"
    assert cut.difference({16: "x"}, nothing_missing) == Difference(16, "b", "x")
    expired = cut.comparable(20)
    assert expired is not None and (expired.start, expired.state) == (20, CUT)
    assert expired.difference({}, nothing_missing) == nothing


def test_a_lane_without_one_has_the_checksum_of_earlier_versions() -> None:
    lane = Lane(SOURCE, 0, 20)
    assert lane.checksum == 4969227471490533439
    assert checksum([replace(lane, tail=TAIL)]) != checksum([lane])


def test_a_lane_has_only_its_own() -> None:
    for lane in ({"next": 19}, {"next": 20, "end": 20, "kind": LOST}):
        with pytest.raises(ValueError, match="not the fingerprint of this lane"):
            Lane(SOURCE, 0, tail=TAIL, **lane)  # type: ignore[arg-type]


def ledger(*lanes: Lane) -> Ledger:
    return Ledger("tweets", 1, {lane.key: lane for lane in lanes})


def test_it_is_found_in_the_lane_or_in_one_not_far_below() -> None:
    own = Lane(SOURCE, 0, 20, tail=TAIL)
    before, fresh = Lane(SOURCE, 0, 20, 20, tail=TAIL), Lane(SOURCE, 20, 20)
    assert ledger(own).tail(own) == TAIL
    assert ledger(before, fresh).tail(fresh) == TAIL
    assert ledger(replace(before, tail=None), fresh).tail(fresh) is None
    moved, far = Lane(SOURCE, 30, 30), Lane(SOURCE, 16 + SPAN, 16 + SPAN)
    lost = Lane(SOURCE, 20, 20, 30, LOST)
    assert ledger(before, moved).tail(moved) == ledger(before, lost, moved).tail(moved) == TAIL
    assert ledger(before, far).tail(far) is None
    assert ledger(moved, replace(before, start=10)).tail(Lane(SOURCE, 5, 5, 10)) is None


LIVE = Lane(SOURCE, 0, 20, tail=TAIL.marked(CUT))


def test_every_decision_accepts_a_log_that_was_cut_and_keeps_the_mark() -> None:
    held = ledger(LIVE)
    for changes in (
        transitions.jump(held, SOURCE, 30), transitions.accept_loss(held, SOURCE, 30), transitions.retire(held, SOURCE),
        transitions.accept_log(held, SOURCE), transitions.reread(held, SOURCE, 10)[0],
    ):  # fmt: skip
        after = held.after(changes)
        first = after.of(SOURCE)[0]
        assert first.tail is not None and first.tail.state == ACCEPTED and first.finished, changes
        tails = [after.tail(lane) for lane in after.of(SOURCE) if not lane.finished]
        assert not [tail for tail in tails if tail is not None and tail.comparable(0) is not None]
    assert transitions.accept_log(ledger(replace(LIVE, tail=TAIL)), SOURCE) == ()
    assert transitions.accept_log(held, SOURCE, [LIVE.key]) == ()


@pytest.mark.parametrize("state", ["", CUT, ACCEPTED])
def test_rows_that_are_cleared_leave_the_mark_and_the_fingerprint_to_the_others(state: str) -> None:
    """To clear one of two tables does not decide about the log: the next read compares again."""
    held = ledger(replace(LIVE, tail=TAIL.marked(state)))
    former = held.after(transitions.clear(held, SOURCE, RangeSet.of([Range(0, 5), Range(8, 12)])))
    live = former.live(SOURCE)
    assert live == Lane(SOURCE, 20, 20) and former.tail(live) == TAIL.marked(state)
    assert [(lane.start, lane.tail and lane.tail.state) for lane in former.of(SOURCE)] == [
        (0, None), (5, state or None), (8, None), (12, state), (20, None)
    ]  # fmt: skip
    current = held.after(transitions.clear(held, SOURCE, RangeSet.of([Range(10, 20)])))
    assert [(lane.start, lane.tail and lane.tail.state) for lane in current.of(SOURCE)] == [
        (0, state or None), (10, None), (20, None)
    ]  # fmt: skip
    whole = held.after(transitions.clear(held, SOURCE, RangeSet.of([Range(0, 20)])))
    assert not any(lane.tail for lane in whole.of(SOURCE))


def test_a_lane_is_marked_once() -> None:
    held = ledger(replace(LIVE, tail=TAIL))
    (change,) = transitions.mark_cut(held, SOURCE, 16, "b")
    assert change == LaneChange(replace(LIVE, tail=TAIL), LIVE)
    assert transitions.mark_cut(held, SOURCE, 14, "") == ()
    assert transitions.mark_cut(held, SOURCE, 16, "x") == ()  # it was read again since
    assert transitions.mark_cut(held, SOURCE, 17, "") == (change,)
    assert transitions.mark_cut(held.after([change]), SOURCE, 16, "b") == ()
