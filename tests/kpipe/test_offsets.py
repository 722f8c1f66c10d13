"""Ranges and sets of them, against sets of integers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.offsets import Overlap, Range, RangeSet
from tests.cases import each_case

ranges = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda x: Range(x[0], x[0] + x[1]))


def offsets(items: RangeSet | Range | tuple[Range, ...]) -> set[int]:
    if isinstance(items, Range):
        return set(range(items.start, items.end))
    return {offset for item in items for offset in range(item.start, item.end)}


def filled(items: list[Range]) -> tuple[RangeSet, set[int]]:
    """A set made range by range, and its model; ranges that overlap are refused and change nothing."""
    have, model = RangeSet(), set()
    for item in items:
        if model & offsets(item):
            with pytest.raises(Overlap):
                have.add(item)
        else:
            have = have.add(item)
            model |= offsets(item)
    return have, model


@given(st.lists(ranges))
def test_a_range_set_holds_what_a_set_of_integers_holds(items: list[Range]) -> None:
    have, model = filled(items)
    assert offsets(have) == model
    assert len(have) == len(model)
    assert bool(have) == bool(model)
    assert {offset for offset in range(-1, 60) if offset in have} == model


@given(st.lists(ranges))
def test_ranges_of_a_set_are_ascending_apart_and_never_empty(items: list[Range]) -> None:
    have, _ = filled(items)
    assert all(len(item) for item in have)
    assert all(a.end < b.start for a, b in pairwise(have.ranges))


@given(st.lists(ranges), ranges)
def test_what_is_missing_is_the_complement_within_the_range(items: list[Range], within: Range) -> None:
    have, model = filled(items)
    missing = have.missing(within)
    assert offsets(missing) == offsets(within) - model
    assert list(missing) == sorted(missing)
    for gap in missing:
        have = have.add(gap)
    assert have.missing(within) == ()


@given(st.lists(ranges), st.integers(0, 60))
def test_the_cursor_is_the_first_offset_that_is_not_in_the_set(items: list[Range], start: int) -> None:
    have, model = filled(items)
    assert have.cursor(start) == next(offset for offset in range(start, 200) if offset not in model)


@given(st.lists(ranges), st.randoms())
def test_the_order_in_which_ranges_are_added_does_not_matter(items: list[Range], random: object) -> None:
    have, _ = filled(items)
    shuffled = list(have)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert RangeSet.of(shuffled) == have


@given(st.lists(ranges), ranges)
def test_adding_a_range_that_shares_an_offset_is_refused(items: list[Range], more: Range) -> None:
    have, model = filled(items)
    if model & offsets(more):
        with pytest.raises(Overlap):
            RangeSet.of([*have, more])
    else:
        assert offsets(RangeSet.of([*have, more])) == model | offsets(more)


@given(ranges, ranges)
def test_two_ranges_overlap_exactly_when_they_share_an_offset(a: Range, b: Range) -> None:
    assert a.overlaps(b) == b.overlaps(a) == bool(offsets(a) & offsets(b))


@given(ranges, st.integers(0, 9), st.integers(0, 5))
def test_pieces_of_a_range_adjoin_cover_it_and_are_not_too_small(whole: Range, pieces: int, smallest: int) -> None:
    parts = whole.split(pieces, smallest)
    assert parts[0].start == whole.start
    assert parts[-1].end == whole.end
    assert all(a.end == b.start for a, b in pairwise(parts))
    assert 1 <= len(parts) <= max(1, pieces)
    assert len(parts) == 1 or min(map(len, parts)) >= max(1, smallest)


@each_case(("start", "end"), [(-1, 3), (4, 3)])
def test_a_range_that_runs_backwards_or_begins_below_zero_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a range"):
        Range(start, end)


def test_the_end_of_a_range_is_exclusive() -> None:
    assert 4 in Range(2, 5)
    assert 5 not in Range(2, 5)
    assert len(Range(2, 5)) == 3
    assert not Range(2, 5).overlaps(Range(5, 6))
    assert str(Range(2, 5)) == "[2, 5)"
