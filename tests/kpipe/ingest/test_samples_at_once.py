"""Columns of several new tables by topic are inferred at the same time, those of existing tables not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kpipe.batch.batch import Batch
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import StagingFailed
from kpipe.ingest.staging import staged_for
from kpipe.ledger.ledger import Lane, Step
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId

ID = Columns.of({"id": "BIGINT"})


class Tables:
    """Tables by topic, of which only that of topic `b` exists."""

    def columns_of(self, tables: Sequence[str]) -> Sequence[Columns | None]:
        return [ID if table == "b" else None for table in tables]

    def rows_of_tables(self) -> dict[str, int]:
        return {}

    def topics_written(self) -> dict[str, str]:
        return {}

    def topics_of_tables(self) -> dict[str, list[str]]:
        return {}


class Stager:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def sample(self, batch: Batch, tables: Sequence[int]) -> None:
        self.calls.append(("sample", list(tables)))

    def columns(self, batch: Batch, table: int) -> Columns:
        self.calls.append(("columns", table))
        return ID

    def stage(self, batch: Batch, tables: Sequence[Columns], closed: Any = ()) -> Any:
        self.calls.append(("stage", list(tables)))
        raise StagingFailed("enough")


@pytest.mark.parametrize(
    ("topics", "calls"),
    [
        (["a", "b", "c"], [("sample", [0, 2]), ("columns", 0), ("columns", 2)]),
        (["a", "b"], [("columns", 0)]),
        (["b"], []),
    ],
)
def test_new_tables_are_sampled_together(topics: list[str], calls: list[Any]) -> None:
    pipeline = Pipeline.model_validate(
        {"name": "web", "source": {"brokers": "b:9092", "topic_pattern": "."}, "into": {"table": "{topic}"}}
    )
    steps = tuple(Step(Lane(PartitionId(TopicId("c", name, name), 0), 0, 0), 5) for name in topics)
    stager: Any = Stager()
    with pytest.raises(StagingFailed):
        staged_for(pipeline, Tables(), stager, Batch("1" * 32, "web", steps), lambda _: None)  # type: ignore[arg-type]
    assert stager.calls == [*calls, ("stage", [ID] * len(topics))]
