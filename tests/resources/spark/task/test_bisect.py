"""The search for records that make a program fail, with programs that are functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log2
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpipe.errors import ReadStalled, TransformFailed
from kpipe.offsets import Range
from resources.spark.task.bisect import Bounds, Search, Trial
from tests.cases import each_case

WHOLE = Range(0, 1000)
FAILED = TransformFailed("transform p (t/0 [0, 1000)): it exited with status 3; stderr: boom", "", "work")


def search(trial: Callable[[Range], Trial], span: Range = WHOLE, **more: object) -> Search:
    return Search("t/0", span, FAILED, lambda part, _: trial(part), **more)  # type: ignore[arg-type]


def program(dies_of: Callable[[int], bool], offsets: Sequence[int], ahead: int = 50) -> Callable[[Range], Trial]:
    """One that treats each record by itself; it has been given some more when it dies."""

    def trial(part: Range) -> Trial:
        held = [offset for offset in offsets if offset in part]
        first = next((at for at, offset in enumerate(held) if dies_of(offset)), None)
        if first is None:
            return Trial(None, held)
        return Trial(TransformFailed(f"died of {held[first]}", "", "work"), held[: first + 1 + ahead])

    return trial


def refused(found: Search) -> str:
    with pytest.raises(TransformFailed) as caught:
        found.run()
    assert caught.value.what.startswith(FAILED.what)
    assert caught.value.hint
    return caught.value.what


@given(
    offsets=st.lists(st.integers(0, 400), unique=True, min_size=1).map(sorted),
    guilty=st.sets(st.integers(0, 400), max_size=12),
    ahead=st.integers(0, 80),
    since=st.integers(0, 400),
)
@settings(max_examples=2 * settings.default.max_examples)
def test_exactly_the_guilty_are_found_whatever_the_gaps(offsets: list[int], guilty: set[int], ahead: int, since: int) -> None:
    there = [offset for offset in offsets if offset in guilty]
    if not there:
        return
    tried = search(program(guilty.__contains__, offsets, ahead), Range(0, 401))
    # What had been answered before the first failure cannot hold one, or the program would have died earlier.
    FAILED.unanswered = min(since, there[0])
    try:
        found = tried.run()
    except TransformFailed as error:  # the first, the middle and the last of more than 16 happened to be guilty
        assert "fails on everything" in error.what and len(there) >= 3
        return
    finally:
        FAILED.unanswered = None
    assert list(found) == there
    assert all(f"died of {offset}" in reason and "alone" in reason for offset, reason in found.items())
    assert tried.tries <= 5 + sum(4 + 2 * ceil(log2(len(offsets) + 1)) for _ in there) + len(there)


def test_one_in_a_million_takes_some_forty_tries_and_the_answered_are_not_read_again() -> None:
    parts: list[Range] = []
    dies = program((777_777).__eq__, range(1_000_000), ahead=60_000)

    def trial(part: Range) -> Trial:
        parts.append(part)
        return dies(part)

    failed = TransformFailed("died", "", "work")
    failed.unanswered = 770_000
    found = Search("t/0", Range(0, 1_000_000), failed, lambda part, _: trial(part), first_only=True)
    assert list(found.run()) == [777_777]
    assert found.tries < 45
    assert min(part.start for part in parts if len(part)) == 770_000
    assert sum(map(len, parts[2:])) < 4 * 67_777  # what was given once is read some three times, not once for each try


def test_first_only_ends_with_the_first_one() -> None:
    found = search(program({300, 700}.__contains__, range(1000)), first_only=True)
    assert list(found.run()) == [300]


def test_a_program_that_fails_without_records_ends_after_one_try() -> None:
    tried = search(lambda part: Trial(FAILED, [part.start] if len(part) else []))
    assert "fails without any record, too (1 try)" in refused(tried)
    assert tried.tries == 1


def test_a_program_that_fails_on_every_record_ends_after_five_tries() -> None:
    tried = search(program(lambda _: True, range(0, 1000, 7)))
    assert "each of three records alone (offsets 0, 175, 350): it fails on everything" in refused(tried)
    assert tried.tries == 5


def test_of_few_records_all_may_be_guilty() -> None:
    assert len(search(program(lambda _: True, range(16)), Range(0, 16)).run()) == 16


def test_a_failure_that_does_not_come_back_blames_nobody() -> None:
    assert "second run over the same records did not fail" in refused(search(lambda _: Trial()))


@each_case("seed", range(20))
def test_a_program_that_fails_by_chance_ends_soon(seed: int) -> None:
    chance = Random(seed)
    tried = search(lambda part: Trial(FAILED if len(part) and chance.random() < 0.5 else None, list(range(part.start, part.end))))
    try:
        found = tried.run()  # one record may fail alone twice; the next staging fails then, and ends it
        assert len(found) < 10
    except TransformFailed as error:
        assert "second run" in error.what or "none of them alone" in error.what or "everything" in error.what
    assert tried.tries < 120


def test_a_program_that_dies_of_the_number_of_records_blames_none() -> None:
    tried = search(lambda part: Trial(FAILED if len(part) > 600 else None, list(range(part.start, part.end))))
    assert "none of them alone" in refused(tried)
    assert tried.tries < 20


def test_a_pair_that_only_kills_together_blames_none() -> None:
    def trial(part: Range) -> Trial:
        return Trial(FAILED if 10 in part and 900 in part else None, list(range(part.start, part.end)))

    assert "none of them alone" in refused(search(trial))


def test_too_many_are_refused_and_some_are_named() -> None:
    tried = search(program(lambda offset: offset % 3 == 1, range(1000)), bounds=Bounds(records=10))
    what = refused(tried)
    assert "more than 10 records make it fail" in what and "first at offset 1 " in what
    assert "poison records so far: 1, 4, 7" in what


def test_the_time_is_bounded() -> None:
    now = iter(range(0, 100_000, 60))
    tried = search(program((5).__eq__, range(1000)), bounds=Bounds(seconds=300), clock=lambda: float(next(now)))
    assert "ended after 300 s" in refused(tried)
    assert tried.tries == 6


def test_what_no_record_can_be_the_reason_for_passes_through() -> None:
    def trial(_: Range) -> Trial:
        raise ReadStalled("no record for 60 s")

    with pytest.raises(ReadStalled):
        search(trial).run()


def test_it_says_beforehand_how_long_it_may_take_and_what_it_found() -> None:
    said: list[str] = []
    search(program((5).__eq__, range(1000)), idle_s=7, on_progress=said.append).run()
    assert "at most 27 tries" in said[0] and "7 s without progress" in said[0] and "1200 s in all" in said[0]
    assert "t/0 offset 5 makes the program fail: died of 5 (alone, 2 times; found in" in said[1]
    assert len(said) == 2


def test_only_the_proof_is_given_all_the_time() -> None:
    asked: list[tuple[int, bool]] = []
    dies = program((500).__eq__, range(1000))

    def trial(part: Range, alone: bool) -> Trial:
        asked.append((len(part), alone))
        return dies(part)

    Search("t/0", Range(0, 1000), FAILED, trial).run()
    assert [size for size, alone in asked if alone] == [1, 1]
