"""Sample tests that many parameters or destinations multiply. The cases that `make test` leaves out get the mark `chaos`.

`@pytest.mark.crossed`: the test has several `parametrize`, of destinations and faults for example, and each case takes a tenth
of a second or more. `make test` runs as many cases as it takes for each value of each parameter to occur.

`pytestmark = pytest.mark.drawn(2)`: the tests of a module run on several destinations. `make test` runs each test on two of
them, the next test on the next two, so that each destination has its share.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Hashable, Sequence

import pytest


def covering(cases: Sequence[Sequence[Hashable]]) -> set[int]:
    """Return the positions of cases in which each value of each parameter occurs.

    Args:
        cases: the values of one case after the other.
    """
    wanted = {pair for values in cases for pair in enumerate(values)}
    chosen: set[int] = set()
    while wanted:
        best = max(range(len(cases)), key=lambda at: (len(wanted & {*enumerate(cases[at])}), -at))
        chosen.add(best)
        wanted -= {*enumerate(cases[best])}
    return chosen


DESTINATIONS = {"delta", "duckdb", "iceberg", "kafka", "mysql", "parquet", "postgres", "webhook"}


def drawn(test: str, destinations: Sequence[str], count: int) -> set[str]:
    """Return the destinations on which `make test` runs a test, the same ones each time.

    Args:
        test: its id.
        destinations: all of them.
        count: how many.
    """
    known = sorted(set(destinations))
    first = zlib.crc32(test.encode())
    return {known[(first + at) % len(known)] for at in range(min(count, len(known)))}


def _destination(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    return next((name for name in callspec._idlist if name in DESTINATIONS), "") if callspec else ""


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the mark `chaos` to cases that `make test` leaves out."""
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("crossed") or item.get_closest_marker("drawn"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for test, cases in tests.items():
        if cases[0].get_closest_marker("crossed"):
            chosen = covering([item.callspec._idlist for item in cases])  # type: ignore[attr-defined]
        else:
            mark = cases[0].get_closest_marker("drawn")
            assert mark is not None
            names = [_destination(item) for item in cases]
            some = drawn(test, names, *mark.args)
            chosen = {at for at, name in enumerate(names) if name in some}
        for at, item in enumerate(cases):
            if at not in chosen:
                item.add_marker(pytest.mark.chaos)
