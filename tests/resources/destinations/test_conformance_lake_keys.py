"""The conformance suite for keys, over table formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources.testing.conformance import sampled
from resources.testing.kept_values import KeptValues
from resources.testing.keyed import RULES, KeyedConformance
from resources.testing.keyed_backfills import KeyedBackfills
from resources.testing.place import Place
from tests.resources.destinations.test_conformance_lakes import PLACES

# The others go the way of DuckDB, whose merge this is.
QUICK = (
    "test_any_history_ends_as_the_writes_one_by_one",
    "test_expressions_take_and_give_every_value",
    "test_deleted_and_written_again_in_one_batch",
    "test_duplicates_are_errors_where_nothing_else_is_said",
    "test_duplicates_are_kept_whole",
    "test_verify_sees_what_others_change",
    "test_a_row_that_is_missing_before_the_key_stays_missing",
    "test_a_table_that_holds_a_key_twice_is_refused",
    "test_key_of_the_rule_or_nothing",
)
# The others differ in the catalogue or the store.
_ALWAYS = ("iceberg", "delta")
_KEYED = [name for name, (place, _) in PLACES.items() if place.keyed]


@pytest.fixture(params=[name if name in _ALWAYS else pytest.param(name, marks=pytest.mark.chaos) for name in _KEYED])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made, servers = PLACES[request.param]
    return made(tmp_path, *map(request.getfixturevalue, servers))


class TestLakeBackfills(sampled(KeyedBackfills, ["test_an_older_range_does_not_overwrite_what_came_later"])):  # type: ignore[misc]
    pass


class TestLakeKeys(sampled(KeyedConformance, QUICK)):  # type: ignore[misc]
    # Both merge with the same code: each history on one of them, in turn, and on all in `make chaos`.
    @pytest.mark.parametrize(
        ("place", "name"),
        [
            pytest.param(lake, rule, marks=[] if lake == _ALWAYS[at % 2] else pytest.mark.chaos)
            for lake in _KEYED
            for at, rule in enumerate(RULES)
        ],
        indirect=["place"],
    )
    def test_any_history_ends_as_the_writes_one_by_one(self, place: Place, name: str) -> None:
        super().test_any_history_ends_as_the_writes_one_by_one(place, name)


# test_change_events.py compares random histories with DuckDB.
_KEPT = ("test_a_truncate_deletes_all_rows_in_order", "test_a_value_that_no_row_has_is_refused")


class TestLakeKeptValues(sampled(KeptValues, _KEPT)):  # type: ignore[misc]
    pass
