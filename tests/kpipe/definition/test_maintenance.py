"""Rules of `into.maintenance`."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kpipe.definition.lakehouse_options import Maintenance
from kpipe.definition.pipeline import Pipeline


def pipeline(**into: Any) -> Pipeline:
    source = {"brokers": "127.0.0.1:1", "topic": "tweets"}
    return Pipeline.model_validate({"name": "tweets", "source": source, "into": {"table": "tweets", **into}})


def test_nothing_is_maintained_unless_asked() -> None:
    assert pipeline(type="iceberg").into.maintenance is None
    found = pipeline(type="delta", maintenance={}).into.maintenance
    assert found == Maintenance() and found.cron is None and found.retention_hours is None


@pytest.mark.parametrize("cron", ["0 3 * * *", "*/15 8-18 * * MON-FRI", "@daily", "0 0 1,15 * 0"])
def test_a_schedule_has_five_parts(cron: str) -> None:
    found = pipeline(type="iceberg", maintenance={"cron": cron, "retention_hours": 168}).into.maintenance
    assert found is not None and found.cron == cron


@pytest.mark.parametrize(
    ("into", "text"),
    [
        ({"type": "iceberg", "maintenance": {"cron": "daily"}}, "invalid schedule"),
        ({"type": "iceberg", "maintenance": {"cron": "0 3 * *"}}, "invalid schedule"),
        ({"type": "iceberg", "maintenance": {"cron": "0 3 * * *\n; x"}}, "invalid schedule"),
        ({"type": "iceberg", "maintenance": {"min_input_files": 1}}, "greater than or equal to 2"),
        ({"type": "delta", "maintenance": {"delete_ratio": 0}}, "greater than 0"),
        ({"type": "delta", "maintenance": {"retention_hours": 0}}, "greater than or equal to 1"),
        ({"type": "delta", "maintenance": {"every": 1}}, "every"),
        ({"type": "duckdb", "maintenance": {}}, "maintenance belongs to type: delta or iceberg"),
    ],
    ids=str,
)
def test_invalid_rules_are_named(into: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        pipeline(**into)
