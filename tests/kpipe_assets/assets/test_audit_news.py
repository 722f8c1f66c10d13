"""Results of `into.audit` that a sensor publishes, over a stand-in for the table: no Kafka, no Iceberg."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import dagster as dg
import pytest

from kpipe.batch_audit import Audited
from kpipe.definition.pipeline import Pipeline
from kpipe.interfaces import Destination
from kpipe_assets.assets.audit_checks import audit_news
from tests.kpipe_assets.fakes import PIPELINE

KEY = dg.AssetKey("tweets")
TEXT = "amount >= 0"


class Table:
    """A table without waiting rows."""

    def __init__(self, since: dict[str, int]) -> None:
        self.since = since

    def held_back(self) -> str:
        return ""

    def audited(self) -> Audited | None:
        return None

    def passed_since(self) -> dict[str, int]:
        return self.since


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def news(instance: dg.DagsterInstance, since: dict[str, int]) -> list[dg.AssetCheckEvaluation]:
    """The results that a tick publishes."""
    into = PIPELINE.into.model_copy(update={"audit": {"amounts": TEXT}})
    pipeline: Pipeline = PIPELINE.model_copy(update={"into": into})
    events = audit_news(instance, pipeline, cast(Destination, Table(since)), KEY)
    for event in events:
        instance.report_runless_asset_event(event)
    return events


@pytest.mark.parametrize("since", [{}, {"amounts": 7}])
def test_a_result_of_an_earlier_version_is_replaced(instance: dg.DagsterInstance, since: dict[str, int]) -> None:
    """It claimed that every published batch had passed an expression, with which no batch may have been checked."""
    metadata: dict[str, Any] = {"kpipe/expression": TEXT}
    if since:
        metadata["kpipe/passed_since_commit"] = since["amounts"]
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=KEY,
            check_name="audit_amounts",
            passed=True,
            metadata=metadata,
            description="no rows wait: every published batch passed",
            blocking=True,
        )
    )
    (event,) = news(instance, since)
    summary = (
        "each batch since commit 7 of this pipeline" if since else "the table does not record that a batch passed this check"
    )
    assert event.passed and (event.description or "").startswith(f"no rows wait: {summary}")
    assert not news(instance, since), "it is current now"
    (event,) = news(instance, {"amounts": 9})
    assert "since commit 9" in (event.description or "")
