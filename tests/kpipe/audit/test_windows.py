"""Ranges, windows and passes of an audit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.audit.windows import WINDOW, LogBounds, Window, audited_ranges, passes, windows
from kpipe.errors import InvalidPipeline

RANGES = st.dictionaries(
    st.integers(0, 9), st.tuples(st.integers(0, 500), st.integers(0, 500)).map(lambda pair: (min(pair), max(pair))), max_size=5
)


@given(RANGES, st.integers(1, 90), st.integers(1, 300))
def test_windows_cover_the_ranges_once_and_passes_keep_all_of_them(
    ranges: dict[int, tuple[int, int]], size: int, most: int
) -> None:
    cut = list(windows(ranges, size))
    offsets = [(window.partition, at) for window in cut for at in range(window.start, window.end)]
    assert offsets == [(number, at) for number, (start, end) in sorted(ranges.items()) for at in range(start, end)]
    assert all(0 < len(window) <= size for window in cut)
    groups = list(passes(cut, most))
    assert [window for group in groups for window in group] == cut
    assert all(sum(map(len, group)) <= most or len(group) == 1 for group in groups)


def test_a_range_begins_at_the_first_row_or_the_log_start_whichever_is_lower() -> None:
    bounds = {0: LogBounds(100, 200, 210), 1: LogBounds(100, 200, 200), 2: LogBounds(0, 50, 50)}
    rows = {0: (60, 40, 160), 1: (10, 150, 159)}
    assert audited_ranges(bounds, rows) == {0: (40, 200), 1: (100, 200), 2: (0, 50)}
    assert audited_ranges(bounds, rows, "log-start", "last-row") == {0: (100, 161), 1: (100, 160), 2: (0, 0)}
    assert audited_ranges(bounds, rows, {0: 120}, {0: 150, 1: 160}) == {0: (120, 150), 1: (100, 160), 2: (0, 0)}


def test_a_last_row_beyond_the_log_does_not_extend_the_range() -> None:
    assert audited_ranges({0: LogBounds(0, 10, 10)}, {0: (3, 0, 99)}, end="last-row") == {0: (0, 10)}


@pytest.mark.parametrize(
    ("begin", "end", "problem"),
    [
        ("first-row", {0: 11}, "beyond the last stable offset 10"),
        ("first-row", {7: 1}, "partition 7 is not audited or does not exist"),
        ({7: 1}, "end", "partition 7 is not audited or does not exist"),
    ],
)
def test_an_impossible_range_is_an_error(begin: str | dict[int, int], end: str | dict[int, int], problem: str) -> None:
    with pytest.raises(InvalidPipeline, match=problem):
        audited_ranges({0: LogBounds(0, 10, 12)}, {}, begin, end)


def test_one_wrong_row_far_below_the_log_does_not_cause_an_endless_scan() -> None:
    far = 100 * WINDOW
    with pytest.raises(InvalidPipeline, match="--from log-start"):
        audited_ranges({0: LogBounds(far, far + 10, far + 10)}, {0: (11, 0, far + 9)})
    assert audited_ranges({0: LogBounds(far, far + 10, far + 10)}, {0: (11, 0, far + 9)}, "log-start") == {0: (far, far + 10)}


def test_a_window_has_a_length() -> None:
    assert len(Window(0, 5, 9)) == 4
