"""Examples of tests/combinations/ in a DuckLake: values that updates left out, changed primary keys and new columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kpipe.errors import NotAvailable
from resources.destinations.ducklake.extension import check as available
from tests.combinations.judging import check
from tests.combinations.pinned import PINNED
from tests.combinations.sites import DuckLakeSite


@pytest.mark.chaos
@pytest.mark.parametrize(
    "name",
    [
        "duckdb: updates leave out values: debezium, VARCHAR",
        "duckdb: no row has the value that an update left out, of a column that the table does not have yet",
    ],
)
def test_an_example_of_change_events(name: str) -> None:
    try:
        available("the test", ["ducklake"])
    except NotAvailable as none:
        pytest.skip(f"{none} -> make ducklake; pytest tests/resources/destinations/test_ducklake.py")
    example = PINNED[name]

    def sites(_: str, folder: Path) -> DuckLakeSite:
        return DuckLakeSite(folder)

    check(replace(example, definition=replace(example.definition, destination="ducklake")), sites)
