"""The conformance suite: what every destination must guarantee (kpipe/interfaces), run on a `Place`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import FunctionType
from typing import Any

import pytest

from kpipe import failpoints
from resources.testing.commits import Commits
from resources.testing.counting import Counting
from resources.testing.publication import Publication
from resources.testing.tables import Tables

__all__ = ["QUICK", "Conformance", "sampled"]


class Conformance(Commits, Counting, Tables, Publication):
    """All tests for destinations without keys. Needs a fixture `place`."""

    @pytest.fixture(autouse=True)
    def _disarmed(self) -> Iterator[None]:
        yield
        failpoints.arm(None)


def sampled(suite: type, quick: Collection[str]) -> type:
    """Mark all tests but the quick ones for `make chaos`: for a destination whose tests are slow."""
    tests = {name: getattr(suite, name) for name in dir(suite) if name.startswith("test_")}
    assert set(quick) <= set(tests), set(quick) - set(tests)
    rest = {name: pytest.mark.chaos(_copy(function)) for name, function in tests.items() if name not in quick}
    return type(suite.__name__, (suite,), rest)


def _copy(function: Any) -> Any:
    """Copy a function: a mark on the original would apply to every destination."""
    made = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    made.__dict__.update({**vars(function), "pytestmark": list(getattr(function, "pytestmark", ()))})
    made.__kwdefaults__ = function.__kwdefaults__
    return made


#: One test of each kind: atomicity, fencing, lost responses, verification, values.
QUICK = (
    "test_first_commit_registers_and_later_ones_count",
    "test_rows_and_offsets_come_together",
    "test_any_lane_that_differs_fences_all",
    "test_zombie_is_fenced",
    "test_racing_commits_one_wins",
    "test_answer_lost_after_landing_is_success",
    "test_failure_before_landing_changes_nothing_and_the_retry_lands",
    "test_unknown_says_so_and_the_next_try_finds_out",
    "test_jump_loss_and_backfill",
    "test_empty_batch_advances",
    "test_deleted_row_is_found",
    "test_deleted_dead_letter_is_found",
    "test_ledger_that_was_edited_by_hand_is_no_ledger",
    "test_every_type_comes_back_as_it_went_in",
    "test_table_is_widened",
    "test_hostile_text_is_data",
)
