"""The suites of all destinations over DuckLake. A commit takes half a second of CPU: most tests are in `make chaos`."""

from __future__ import annotations

import pytest

from resources.testing.conformance import Conformance, sampled
from resources.testing.kept_values import KeptValues
from resources.testing.keyed import KeyedConformance
from resources.testing.keyed_backfills import KeyedBackfills
from resources.testing.killed import Killed

_FEW = (
    "test_two_first_runs",
    "test_racing_commits_one_wins",
    "test_answer_lost_after_landing_is_success",
    "test_deleted_dead_letter_is_found",
    "test_every_type_comes_back_as_it_went_in",
    "test_table_is_widened",
    "test_hostile_text_is_data",
)
_EVERYWHERE = pytest.mark.parametrize(
    "place",
    ["duckdb", pytest.param("sqlite", marks=pytest.mark.chaos), pytest.param("postgres", marks=pytest.mark.chaos)],
    indirect=True,
)


@_EVERYWHERE
class TestDuckLake(sampled(Conformance, _FEW)):
    pass


@_EVERYWHERE
class TestDuckLakeKeys(sampled(KeyedConformance, ("test_deleted_and_written_again_in_one_batch",))):
    pass


@_EVERYWHERE
class TestDuckLakeBackfills(sampled(KeyedBackfills, ())):
    pass


@_EVERYWHERE
class TestDuckLakeKeptValues(sampled(KeptValues, ("test_a_truncate_deletes_all_rows_in_order",))):
    pass


@pytest.mark.chaos
@pytest.mark.parametrize("place", ["duckdb", "sqlite", "postgres"], indirect=True)
class TestDuckLakeKilled(Killed):
    pass
