"""Messages between runs and service: all that a job contains arrives, and nothing that runs code does."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kpipe.batch.batch import Batch
from kpipe.batch.host_stats import HostWork, Work
from kpipe.definition.lookups import Version
from kpipe.definition.pipeline import Pipeline
from kpipe.ledger.ledger import Lane, Step
from kpipe.schema.columns import Columns, Scalar
from kpipe.topics import PartitionId, TopicId
from resources.destinations.value_limits import limits_of
from resources.duckdb_engine.expression_checks import checked_selection
from resources.lookups.reference_table import Here, Reference, packed
from resources.object_store.config import StoreAccess
from resources.schema_registry.config import Access
from resources.secrets import Secret
from resources.sources.open_source import connector_of
from resources.spark.service import data_pickle
from resources.spark.service.protocol import Answer, Request
from resources.spark.task.projection_plan import shaped
from resources.spark.task.task_spec import Failure, JobSpec, ProgramSpec, TableSpec


class Calls:
    """Runs a function when it is unpickled."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Any:
        return self._call


@pytest.mark.parametrize(
    "harm",
    [
        Calls(os.system, "true"),
        Calls(subprocess.Popen, ["true"]),
        Calls(eval, "1"),
        Calls(Path.unlink, Path("x")),
        os.system,
        Calls,
        data_pickle.loads,
    ],
    ids=["system", "process", "eval", "delete", "function", "class of another package", "function of kpipe"],
)
def test_what_runs_code_is_refused(harm: Any) -> None:
    with pytest.raises(pickle.UnpicklingError, match="is not data"):
        data_pickle.loads(data_pickle.dumps({"batch": harm}))


@pytest.mark.parametrize(
    "name", ["resources.home os", "resources.home os.system", "resources.home Path.unlink", "resources.home close", "kpipe x"]
)
def test_what_a_module_of_kpipe_imports_is_refused(name: str) -> None:
    module, _, member = name.partition(" ")
    with pytest.raises(pickle.UnpicklingError, match="is not data"):
        data_pickle.loads(f"c{module}\n{member}\n.".encode())


SOURCES: dict[str, dict[str, Any]] = {
    "files": {"files": {"path": "/data/*.csv", "header": True}},
    "objects": {
        "files": "s3://bucket/*.jsonl",
        "credentials": {"access.key.id": "{{ env('CANARY') }}", "secret.access.key": "{{ env('CANARY') }}"},
    },
    "postgres": {
        "table": {"type": "postgres", "database": "postgresql://u@h/d", "name": "t", "column": "id"},
        "credentials": {"password": "{{ env('CANARY') }}"},
    },
    "duckdb": {"table": {"type": "duckdb", "database": "/data/x.duckdb", "name": "t", "column": "id"}},
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_each_source_arrives_as_it_was(name: str) -> None:
    pipeline = Pipeline.model_validate(
        {"name": "p", "source": SOURCES[name], "into": {"type": "kafka", "brokers": "b", "topic": "t"}, "format": {"type": "csv"}}
    )
    connector = connector_of(pipeline, {"CANARY": "canary"})
    assert connector is not None
    found = data_pickle.loads(data_pickle.dumps(connector))
    assert type(found) is type(connector) and "canary" not in repr(found)
    assert (found.place, found.pattern, list(found.secrets)) == (connector.place, connector.pattern, list(connector.secrets))


FORMATS: dict[str, dict[str, Any]] = {
    "json": {"format": {"type": "json", "mapping": {"a": "b/c"}}},
    "csv": {"format": {"type": "csv", "fields": ["a", "b"], "delimiter": ";"}, "key_format": {"type": "json"}},
    "raw": {"format": {"type": "raw"}, "columns": {"a": "DECIMAL(10,2)", "b": "STRUCT(x BIGINT, y VARCHAR[])"}},
    "avro": {"format": {"type": "avro", "schema": '{"type":"record","name":"r","fields":[{"name":"a","type":"long"}]}'}},
    "expressions": {
        "set": {"b": "upper(a)", "c": "place(a).name"}, "where": "a > 1", "lookups": {"place": {"path": "x.csv", "key": "k"}},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_a_job_arrives_as_it_was(name: str) -> None:
    pipeline = Pipeline.model_validate(
        {"name": "p", "source": {"brokers": "b", "topic": "t"}, "into": {"table": "t"}, **FORMATS[name]}
    )
    columns = Columns((("a", Scalar("BIGINT")), ("b", Scalar("VARCHAR"))))
    rows = packed(pa.table({"k": [1], "name": ["x"]}))
    source = PartitionId(TopicId("cluster", "id", "t"), 0)
    job = JobSpec(
        batch="0" * 32,
        config={"bootstrap.servers": "b", "sasl.password": Secret("canary")},
        staging="/staging",
        format=pipeline.format,
        tables=(TableSpec(columns, shape=shaped(pipeline, checked_selection(pipeline), columns, lambda: columns)),),
        key=pipeline.key_format,
        access=Access(username=Secret("u"), password=Secret("p")),
        program=ProgramSpec("/p", None, "sha", env={"A": "b"}, secrets=("b",)),
        poison_records={source: {7: "why"}},
        lookups={"place": Here(Reference("place", 1, columns, False, Version("sha", 1, 2), rows))},
        limits=limits_of(pipeline),
        store=StoreAccess(None, "eu", (("session.token", Secret("s")),)),
    )
    request = Request(Batch(job.batch, "p", (Step(Lane(source, 0, 0), 5),)), job)
    found = data_pickle.loads(data_pickle.dumps(request))
    assert isinstance(found.job.config["sasl.password"], Secret) and "canary" not in repr(found.job)
    sent, received = request.job.lookups["place"].value, found.job.lookups["place"].value
    assert received.table == sent.table and received.version == sent.version
    assert found.batch == request.batch
    assert {**vars(found.job), "lookups": None} == {**vars(job), "lookups": None}


def test_other_values_arrive() -> None:
    values = [datetime(2026, 1, 1, tzinfo=timezone.utc), Decimal("1.50"), frozenset({1}), {2}, Path("/a"), b"x", None, 1.5]
    assert data_pickle.loads(data_pickle.dumps(values)) == values
    answer = Answer((), Work("app", "", {"host": HostWork(1)}), Failure("WorkerLost", "x"))
    assert data_pickle.loads(data_pickle.dumps(answer)) == answer
