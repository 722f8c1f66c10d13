"""Build OpenLineage's events of a run. Importing this module imports the client library."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import attr
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    InputDatasetFacet,
    RunFacet,
    column_lineage_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
)

from kpipe import __version__
from kpipe.definition.pipeline import Pipeline
from kpipe.expressions.column_lineage import Dependency, column_lineage
from kpipe.schema.columns import Columns, ListOf, Struct, Type, parse_type
from kpipe.tables.field_tables import of_table
from kpipe.tables.topic_tables import topic_parts
from kpipe_assets.telemetry.lineage_datasets import source_namespace, table_dataset
from kpipe_assets.telemetry.lineage_progress import Progress, Read, Written
from kpipe_assets.telemetry.run_log import utc
from resources.home import Home

__all__ = ["PRODUCER", "SCHEMA", "Moment", "run_event", "run_uuid"]

#: URI of the code that makes the events.
PRODUCER = f"urn:kpipe:{__version__}"
#: Identifier of the schema of kpipe's own facets: docs/openlineage-facets.schema.json.
SCHEMA = "urn:kpipe:openlineage-facets:1"
_COORDINATES = {
    "partition": "INTEGER",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "topic": "VARCHAR",
    "key": "BLOB",
    "headers": "STRUCT(name VARCHAR, value BLOB)[]",
}


@attr.define
class KafkaOffsets(InputDatasetFacet):
    """The offsets of a topic that the run has read; ends are exclusive."""

    partitions: list[dict[str, Any]] = attr.field(factory=list)

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA}#/$defs/KafkaOffsetsInputDatasetFacet"


@attr.define
class Batches(RunFacet):
    """The batches that the run has committed."""

    run: str = ""
    batches: int = 0
    lastBatch: str | None = None
    lastCommit: int | None = None

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA}#/$defs/BatchesRunFacet"


@dataclass(frozen=True)
class Moment:
    """The state of a run at an event.

    Attributes:
        state: `START`, `RUNNING`, `COMPLETE`, `FAIL` or `ABORT`.
        time: wall clock, seconds since 1970 UTC.
        run: id of the run, as in the ledger.
        uuid: id of the run in lineage.
        continuous: whether the run waits for more records.
        progress: what it has read and written.
        error: class of the error that ended it.
    """

    state: str
    time: float
    run: str
    uuid: str
    continuous: bool
    progress: Progress
    error: str = ""


def run_uuid(run: str) -> str:
    """Return the id of a run in lineage, which must be a UUID: Dagster's run id, or a new one."""
    try:
        return str(uuid.UUID(run))
    except ValueError:
        return str(uuid.uuid4())


def run_event(pipeline: Pipeline, home: Home, moment: Moment, namespace: str) -> RunEvent:
    """Build an event. It contains names, types, numbers and classes of errors, and no record or secret.

    Args:
        pipeline: the definition.
        home: contains the default destination.
        moment: the state of the run.
        namespace: namespace of the job.
    """
    progress, own = moment.progress, {"producer": PRODUCER}
    source = source_namespace(pipeline.source)
    topics = sorted({*pipeline.source.names, *progress.topics})
    batches = Batches(moment.run, progress.batches, progress.batch or None, progress.seq or None, **own)
    engine = processing_engine_run.ProcessingEngineRunFacet(__version__, "kpipe", **own)
    parts = topic_parts(pipeline, topics)
    if pipeline.into.by_field:
        parts = [(of_table(pipeline, name), topics) for name in sorted(progress.tables)]
    facets: dict[str, Any] = {"processing_engine": engine, "kpipe_batches": batches}
    if moment.error:
        text = f"{moment.error}: see kpipe logs {pipeline.name}"
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(text, "python", **own)
    type = job_type_job.JobTypeJobFacet("STREAMING" if moment.continuous else "BATCH", "KPIPE", "PIPELINE", producer=PRODUCER)
    return RunEvent(
        eventTime=utc(moment.time),
        eventType=RunState(moment.state),
        run=Run(moment.uuid, facets),
        job=Job(namespace, pipeline.name, {"jobType": type}),
        inputs=[_input(source, name, progress.topics.get(name)) for name in topics],
        outputs=[
            _output(
                part,
                table_dataset(pipeline, part.into.table, home),
                progress.tables.get(part.into.table, Written()),
                [(source, name) for name in mine],
            )
            for part, mine in parts
        ],
        **own,
    )


def _input(namespace: str, topic: str, read: Read | None) -> InputDataset:
    if read is None:
        return InputDataset(namespace, topic)
    partitions = [
        {"partition": number, "ranges": [{"start": item.start, "end": item.end} for item in ranges]}
        for number, ranges in sorted(read.ranges.items())
    ]
    statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(read.records, read.bytes, producer=PRODUCER)
    offsets = KafkaOffsets(partitions, producer=PRODUCER)
    return InputDataset(namespace, topic, inputFacets={"kpipe_offsets": offsets, "inputStatistics": statistics})


def _output(part: Pipeline, dataset: tuple[str, str], written: Written, topics: list[tuple[str, str]]) -> OutputDataset:
    if not written.columns:
        return OutputDataset(*dataset)
    columns = written.columns.joined(
        Columns(tuple((f"_kafka_{name}", parse_type(_COORDINATES[name])) for name in part.coordinates))
    )
    lineage = column_lineage(part, columns.names())
    fields = {
        name: column_lineage_dataset.Fields([_source(item, topic) for item in items for topic in topics])
        for name, items in lineage.columns.items()
    }
    rows = [_source(item, topic) for item in lineage.rows for topic in topics]
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(written.rows, producer=PRODUCER)
    return OutputDataset(
        *dataset,
        facets={
            "schema": schema_dataset.SchemaDatasetFacet(
                [_field(name, kind, at) for at, (name, kind) in enumerate(columns, 1)], producer=PRODUCER
            ),
            "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(fields, rows, producer=PRODUCER),
        },
        outputFacets={"outputStatistics": statistics},
    )


def _source(item: Dependency, topic: tuple[str, str]) -> column_lineage_dataset.InputField:
    direct = item.how in ("IDENTITY", "TRANSFORMATION")
    how = column_lineage_dataset.Transformation("DIRECT" if direct else "INDIRECT", item.how)
    return column_lineage_dataset.InputField(*topic, item.field, [how])


def _field(name: str, kind: Type, position: int | None = None) -> schema_dataset.SchemaDatasetFacetFields:
    inner = kind.item if isinstance(kind, ListOf) else kind
    nested = [_field(*member) for member in inner.fields] if isinstance(inner, Struct) else []
    return schema_dataset.SchemaDatasetFacetFields(name, str(kind), ordinal_position=position, fields=nested)
