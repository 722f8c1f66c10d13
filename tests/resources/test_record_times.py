"""Times of records before and after a position, found by queries of a time index."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from resources.kafka.record_times import NEWEST, RecordTimes, search


class Log:
    """Timestamps by offset, queried as a broker answers ListOffsets."""

    def __init__(self, stamps: Mapping[int, int]) -> None:
        self.stamps, self.queries = stamps, 0

    def ask(self, moments: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        self.queries += bool(moments)
        return dict.fromkeys(moments, (-1, -1)) | {key: self.found(moment) for key, moment in moments.items()}

    def found(self, moment: int) -> tuple[int, int]:
        if moment == NEWEST:
            return max(((at, stamp) for at, stamp in self.stamps.items()), key=lambda item: item[1], default=(-1, -1))
        return next(((at, stamp) for at, stamp in sorted(self.stamps.items()) if stamp >= moment), (-1, -1))


def times(stamps: Mapping[int, int], position: int) -> tuple[RecordTimes, int]:
    log = Log(stamps)
    return search({"p": position}, log.ask)["p"], log.queries


def expected(stamps: Mapping[int, int], position: int) -> RecordTimes:
    committed = max((stamp for at, stamp in stamps.items() if at < position), default=None)
    later = [stamp for at, stamp in sorted(stamps.items()) if at >= position and (committed is None or stamp > committed)]
    return RecordTimes(committed, later[0] if later else None)


def test_a_partition_that_is_caught_up_needs_one_query() -> None:
    assert times({0: 1000, 1: 5000}, 2) == (RecordTimes(5000), 1)
    assert times({}, 0) == (RecordTimes(), 1)


def test_without_a_committed_record_in_the_log_only_the_unread_one_is_known() -> None:
    assert times({5: 1000, 6: 2000}, 5)[0] == RecordTimes(None, 1000)


def test_a_search_over_a_year_ends() -> None:
    year = 365 * 86_400_000
    found, queries = times({0: 1, 1: 777, 2: year, 3: year + 1}, 2)
    assert found == RecordTimes(777, year) and queries < 40


def test_random_logs_with_gaps_and_increasing_times() -> None:
    random = Random(7)
    for _ in range(300):
        offsets = sorted(random.sample(range(30), random.randint(1, 12)))
        stamps = dict(zip(offsets, sorted(random.choices(range(1, 10_000), k=len(offsets))), strict=True))
        position = random.randint(0, 30)
        found = times(stamps, position)[0]
        due = expected(stamps, position)
        # Records of one timestamp on both sides: the unread ones are as old as the newest committed one.
        assert found.committed == due.committed
        assert found.unread == due.unread or (due.unread is None and found.unread == due.committed)
