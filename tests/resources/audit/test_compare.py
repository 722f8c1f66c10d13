"""The comparison against an oracle that looks at one offset at a time."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.audit.outcomes import EXPLAINED, ROWS, Outcome, State
from kpipe.audit.windows import Window
from resources.audit.compare import MOST, Counts, Rules, compare, runs_of, tally

STATES = st.sampled_from(list(State))
OFFSETS = st.lists(st.tuples(STATES, st.integers(0, 3), st.booleans()), min_size=1, max_size=60)
RULES = st.builds(Rules, st.booleans(), st.booleans(), st.booleans())


def oracle(state: State, rows: int, declared: bool, rules: Rules) -> Outcome:
    """What an auditor would write down for one offset."""
    if rows > 1:
        return Outcome.DUPLICATE
    if declared:
        if rows:
            return Outcome.DECLARED_ROW
        if state == State.NONE:
            return Outcome.DECLARED if rules.compacted else Outcome.DECLARED_ROW
        if state == State.ABORTED:
            return Outcome.DECLARED if rules.uncommitted else Outcome.ABORTED
        return Outcome.DECLARED
    if state == State.EXPIRED:
        return Outcome.EXPIRED_ROW if rows else Outcome.EXPIRED
    if state == State.NONE:
        if rows:
            return Outcome.COMPACTED_ROW if rules.compacted else Outcome.ROW_WITHOUT_RECORD
        return Outcome.NO_RECORD
    if state == State.ABORTED:
        if rows:
            return Outcome.ABORTED_ROW
        return Outcome.MISSING_ABORTED if rules.uncommitted else Outcome.ABORTED
    if rows:
        return Outcome.MATCHED
    if state == State.TOMBSTONE:
        return Outcome.TOMBSTONE if rules.skips_tombstones else Outcome.MISSING_TOMBSTONE
    return Outcome.MISSING


@given(OFFSETS, RULES, st.integers(0, 10**15))
def test_outcomes_runs_and_totals_equal_the_oracles(offsets: list[tuple[State, int, bool]], rules: Rules, start: int) -> None:
    expected = [oracle(*offset, rules) for offset in offsets]
    rows = np.array([count for _, count, _ in offsets], np.uint16)
    states = np.array([state for state, _, _ in offsets], np.uint8)
    declared = np.array([marked for _, _, marked in offsets])
    found = compare(rows, states, rules, declared)
    assert [Outcome(code) for code in found] == expected
    assert tally(found) == Counter(expected)
    runs = runs_of(found, start, Outcome.MATCHED, rows)
    spread = {
        at: code
        for first, end, code in zip(runs.starts.tolist(), runs.ends.tolist(), runs.codes.tolist(), strict=True)
        for at in range(first, end)
    }
    assert spread == {start + at: item for at, item in enumerate(expected) if item != Outcome.MATCHED}
    unmatched = [count for (_, count, _), item in zip(offsets, expected, strict=True) if item != Outcome.MATCHED]
    assert int(runs.rows.sum()) == sum(unmatched)


@given(OFFSETS, RULES)
def test_no_fault_is_explained_and_no_correct_table_is_a_problem(offsets: list[tuple[State, int, bool]], rules: Rules) -> None:
    """Stated without the rules of the code: what a table must and must not contain."""
    explained = EXPLAINED["read_uncommitted" if rules.uncommitted else "read_committed"]
    for state, rows, _ in offsets:
        code = Outcome(int(compare(np.array([rows], np.uint16), np.array([state], np.uint8), rules)[0]))
        wanted = {State.VALUE, *([State.ABORTED] if rules.uncommitted else [])}
        if rows > 1:
            assert code not in explained
        elif state in wanted:
            assert (code in explained) == (rows == 1)
        elif state == State.ABORTED:
            assert (code in explained) == (rows == 0)
        elif state == State.TOMBSTONE:
            assert (code in explained) == (rows == 1 or rules.skips_tombstones)
        elif state == State.EXPIRED:
            assert (code in explained) == (rows == 1)
        else:
            assert (code in explained) == (rows == 0 or rules.compacted)
        assert rows == 0 or code in ROWS | {Outcome.DECLARED_ROW}


ROWS_READ = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=200)


@given(ROWS_READ, st.lists(st.integers(0, 40), min_size=2, max_size=6, unique=True))
def test_counts_of_adjacent_windows_equal_the_oracles(rows: list[tuple[int, int]], edges: list[int]) -> None:
    edges.sort()
    windows = [Window(number, first, end) for number in (1, 3) for first, end in pairwise(edges)]
    counts = Counts(windows)
    for first in range(0, len(rows), 50):
        some = rows[first : first + 50]
        counts.add(np.array([p for p, _ in some], np.int64), np.array([o for _, o in some], np.int64))
    expected = Counter(rows)
    for at, window in enumerate(windows):
        wanted = [expected[window.partition, offset] for offset in range(window.start, window.end)]
        assert counts.of(at).tolist() == wanted
        assert counts.totals[at] == sum(wanted)


@pytest.mark.parametrize("copies", [1, 2, MOST, MOST + 1, 65_535, 65_536, 65_537, 200_000])
def test_any_number_of_copies_counts_as_duplicates(copies: int) -> None:
    """A counter of 16 bits must never wrap to 0 or 1."""
    counts = Counts([Window(0, 0, 3)])
    counts.add(np.zeros(copies, np.int64), np.ones(copies, np.int64))
    found = counts.of(0)
    assert counts.totals == [copies]
    assert found[0] == found[2] == 0
    assert found[1] == copies if copies <= MOST else found[1] >= MOST


def test_windows_that_are_not_adjacent_are_refused() -> None:
    with pytest.raises(ValueError, match="not adjacent"):
        Counts([Window(0, 0, 3), Window(0, 4, 5)])
