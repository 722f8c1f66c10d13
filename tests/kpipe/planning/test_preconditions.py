"""The topics after a batch was read are those of its plan."""

from __future__ import annotations

import copy

import pytest

from kpipe.errors import SourceIdentityChanged
from kpipe.ledger import transitions
from kpipe.planning.planner import check_source
from kpipe.planning.preconditions import check_still_there
from kpipe.testing.topics import FakeTopics
from tests.kpipe.planning.test_planner import after, begun, planned


def moved() -> tuple[FakeTopics, FakeTopics]:
    """Topics in two clusters, with the same names and contents."""
    here = FakeTopics(2)
    here.numbered(0, 5)
    there = copy.deepcopy(here)
    there.fail_over("cluster-2")
    return here, there


def test_another_cluster_that_the_ledger_has_read_answers_while_a_batch_is_read() -> None:
    here, there = moved()
    ledger = begun(here)
    for source in there.snapshot().partitions:
        ledger = ledger.after(transitions.begin(source, 0, 0))
    batch = planned(ledger, here)
    check_still_there(here, ledger, batch)
    check_source(ledger, there.snapshot())
    with pytest.raises(SourceIdentityChanged, match="expected topic-1 in cluster-1, found topic-1 in cluster-2") as raised:
        check_still_there(there, ledger, batch)
    assert "nothing was committed" in str(raised.value) and "run it again" in raised.value.hint
    ledger = after(ledger, batch)
    check_still_there(there, ledger, planned(ledger, there))


def test_another_cluster_that_answers_once_fails_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that leads to either cluster may have led the tasks to the other one, too."""
    here, there = moved()
    ledger = begun(here)
    batch = planned(ledger, here)
    monkeypatch.setattr(here, "present", there.present)
    with pytest.raises(SourceIdentityChanged, match="expected topic-1 in cluster-1, found topic-1 in cluster-2"):
        check_still_there(here, ledger, batch)


def test_a_topic_that_is_not_listed_once_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a broker that has just started may do, if topics are found by a pattern."""
    topics = FakeTopics({"web.x": 1, "web.y": 1}, pattern="^web")
    topics.numbered(0, 5)
    ledger = begun(topics)
    batch = planned(ledger, topics)
    monkeypatch.setattr(topics, "present", lambda: [topics.source(0, "web.y")])
    check_still_there(topics, ledger, batch)
