"""Find the times of records by the brokers' time index, without reading records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["NEWEST", "RecordTimes", "search"]

#: Query for the record with the highest timestamp (KIP-734), instead of a time.
NEWEST = -3
# Rounds of the search: enough for a millisecond in a log of a year, 3.2e10 ms.
_ROUNDS = 36
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class RecordTimes:
    """Times of a partition's records, in milliseconds since 1970.

    Attributes:
        committed: highest timestamp of the committed records that are still in the log; None without such records.
        unread: timestamp of the first unread record with a higher timestamp than all committed ones; None without one.
    """

    committed: int | None = None
    unread: int | None = None


def search(
    positions: Mapping[_Key, int], query: Callable[[Mapping[_Key, int]], Mapping[_Key, tuple[int, int]]]
) -> dict[_Key, RecordTimes]:
    """Return the times of each partition's records before and after a position.

    A partition that is caught up needs one query, another one some thirty. Each query is one request to each broker.

    Args:
        positions: by partition, the next offset to read.
        query: takes a time by partition, and returns offset and timestamp of the first record at or after it, -1 and -1
            without one; for `NEWEST`, those of the record with the highest timestamp.
    """
    newest = query(dict.fromkeys(positions, NEWEST))
    result: dict[_Key, RecordTimes] = {}
    low: dict[_Key, int] = {}
    for key, (offset, moment) in newest.items():
        if offset < 0 or offset < positions[key]:
            result[key] = RecordTimes(moment if offset >= 0 else None)
    oldest = query({key: 0 for key in positions if key not in result})
    for key, (offset, moment) in oldest.items():
        if offset < 0 or offset >= positions[key]:  # no committed record is left in the log
            result[key] = RecordTimes(None, moment if offset >= 0 else None)
        else:
            low[key] = moment
    # A committed record has timestamp `low`; none has `high` or a later one.
    high = {key: newest[key][1] + 1 for key in low}
    unread = {key: newest[key][1] for key in low}
    for _ in range(_ROUNDS):
        middle = {key: (low[key] + high[key]) // 2 for key in low if high[key] - low[key] > 1}
        if not middle:
            break
        for key, (offset, moment) in query(middle).items():
            if 0 <= offset < positions[key]:
                low[key] = max(moment, middle[key])
            else:
                high[key] = middle[key]
                unread[key] = moment if offset >= 0 else unread[key]
    # Without a middle, no query has found the first later record.
    for key, (offset, moment) in query({key: low[key] + 1 for key in low}).items():
        result[key] = RecordTimes(low[key], moment if offset >= 0 else unread[key])
    return result
