"""When a result proves something, and when it does not."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.offsets import Range
from kpipe.topics import PartitionId, PartitionState, TopicId, TopicSnapshot
from kpipe_assets.chaos import session
from kpipe_assets.chaos.campaign import Finding
from kpipe_assets.chaos.faults import Fault, Injected
from kpipe_assets.chaos.report import INCONCLUSIVE, INTERRUPTED, NOT_PROVEN, PROVEN
from kpipe_assets.chaos.window import Window

PART = PartitionId(TopicId("c", "1", "orders"), 0)
DIFFERS, MISSING = Finding("differs", "c1", "x"), Finding("not_proven", "c1", "y")


class Topics:
    """A topic whose log starts at an offset."""

    def __init__(self, log_start: int) -> None:
        self._state = PartitionState(log_start, 20, 20)

    def snapshot(self) -> TopicSnapshot:
        return TopicSnapshot({PART: self._state})


class Campaign:
    """A finished campaign."""

    window = Window({PART: Range(5, 10)})

    def __init__(self, *findings: Finding, hit: bool = True) -> None:
        self.findings = list(findings)
        self.faults = [Injected(Fault(at, "pause"), "c1", 1.0, hit and at == 2) for at in (1, 2)]
        fields = {"name": "orders", "source": {"brokers": "b:1", "topic": "orders"}, "into": {"table": "t"}}
        self.workspace = type("Workspace", (), {"pipeline": Pipeline.model_validate(fields)})


def verdict(campaign: Any, log_start: int = 0, interrupted: bool = False) -> tuple[str, str]:
    return session._verdict(campaign, Topics(log_start), interrupted)  # type: ignore[arg-type]


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found = ["delete"]
    admin = type("Admin", (), {"__init__": lambda self, source: None, "cleanup_policy": lambda self: found[0]})
    monkeypatch.setattr(session, "TopicAdmin", admin)
    return found


def test_proven_needs_a_fault_that_took_effect() -> None:
    assert verdict(Campaign()) == (PROVEN, "")
    assert verdict(Campaign(hit=False))[0] == INCONCLUSIVE
    assert verdict(Campaign(), interrupted=True)[0] == INTERRUPTED


def test_a_topic_that_lost_the_offsets_proves_nothing() -> None:
    found, reason = verdict(Campaign(MISSING), log_start=6)
    assert (found, "the log starts at 6" in reason) == (INCONCLUSIVE, True)
    assert verdict(Campaign(MISSING), log_start=5) == (NOT_PROVEN, "")


def test_compaction_explains_differences_but_no_missing_record(policy: list[str]) -> None:
    assert verdict(Campaign(DIFFERS)) == (NOT_PROVEN, "")
    policy[0] = "compact,delete"
    found, reason = verdict(Campaign(DIFFERS))
    assert (found, "cleanup.policy of orders is compact" in reason) == (INCONCLUSIVE, True)
    assert verdict(Campaign(DIFFERS, MISSING)) == (NOT_PROVEN, "")
