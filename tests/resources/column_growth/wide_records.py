"""Records with very many columns, and the tables that they go to."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe.batch.batch import Batch
from kpipe.ingest.loop import Ingest
from kpipe.ingest.staging import StagedBatch
from tests.resources.several import Bench

FIELDS: dict[str, Any] = {"select": None, "also": [], "columns": {}, "into": {"table": "t"}}


only_duckdb = pytest.mark.parametrize("place", ["duckdb"], indirect=True)


def staged_batch(loop: Ingest) -> StagedBatch:
    """Plan and stage the next batch without a commit."""
    observed = loop.reconcile(loop.observe())
    batch = loop.plan(observed)
    assert isinstance(batch, Batch)
    return loop.stage(observed, batch)


def wide(number: int, count: int, prefix: str = "m") -> dict[str, Any]:
    return {"id": number, **{f"{prefix}{at}": at for at in range(count)}}


def reasons(made: Bench) -> dict[int, str]:
    proof = made.proof()
    assert proof.ok, proof.problems
    return {row["offset"]: row["error_message"] for row in made.destination.view("errors")}


def ids(made: Bench) -> list[Any]:
    return [number for (number,) in made.table("t", "id")]


def names(made: Bench) -> set[str]:
    columns = made.destination.columns()
    assert columns is not None
    return {name for name in columns.names() if not name.startswith("_kafka_")}
