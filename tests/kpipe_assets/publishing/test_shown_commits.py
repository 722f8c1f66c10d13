"""Commits that Dagster's event log contains already."""

from __future__ import annotations

import pytest

from kpipe.interfaces import Publication
from kpipe_assets.publishing.shown_commits import Shown, without_shown


@pytest.mark.parametrize("batch", ["named", ""])
def test_commits_of_one_number_are_told_apart(batch: str) -> None:
    """Two runs commit to different tables by topic of a lake at the same time."""
    publications = [
        Publication("x", 6, {"a:0": {}}),
        Publication("y", 6, {"b:0": {}}),
        Publication("z", 7, {"a:0": {}, "b:0": {}}),
    ]
    shown = {"a:0": Shown(6, batch and "x"), "b:0": Shown(6, batch and "y")}
    assert [[*item.metadata] for item in without_shown(publications, shown)] == [[], [], ["a:0", "b:0"]]


def test_a_number_of_another_ledger_covers_nothing() -> None:
    (left,) = without_shown([Publication("x", 6, {"a:0": {}})], {"a:0": Shown(6, "of another ledger")})
    assert [*left.metadata] == ["a:0"]
