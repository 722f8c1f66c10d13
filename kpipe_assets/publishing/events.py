"""Store and read Dagster events of many partitions at once.

Dagster's public calls handle one partition each, which is too slow for a thousand partitions. This module uses private
parts of Dagster; tests/kpipe_assets/publishing/test_many_partitions.py checks them.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import dagster as dg
import sqlalchemy
from dagster._core.events import (
    AssetObservationData,
    DagsterEvent,
    DagsterEventBatchMetadata,
    DagsterEventType,
    StepMaterializationData,
    generate_event_batch_id,
)
from dagster._core.execution.context.metadata_logging import AssetMetadataHandle, OutputMetadataAccumulator
from dagster._core.instance.utils import RUNLESS_JOB_NAME, RUNLESS_RUN_ID
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage

__all__ = ["describe", "newest", "newest_values", "publish_events", "publish_in_run"]

# Events or ids in one query: each id is a parameter of SQL, and Dagster's own limit is ten times as high.
_AT_ONCE = 1000
_Event = TypeVar("_Event")


def publish_events(instance: dg.DagsterInstance, events: Sequence[dg.AssetMaterialization | dg.AssetObservation]) -> None:
    """Store events without a run, in order, as `report_runless_asset_event` does for each. Returns after they are stored."""
    for event, batch in _batch(events):
        event_type, data = (
            (DagsterEventType.ASSET_MATERIALIZATION, StepMaterializationData(event))
            if isinstance(event, dg.AssetMaterialization)
            else (DagsterEventType.ASSET_OBSERVATION, AssetObservationData(event))
        )
        entry = DagsterEvent(event_type_value=event_type.value, event_specific_data=data, job_name=RUNLESS_JOB_NAME)
        instance.report_dagster_event(entry, run_id=RUNLESS_RUN_ID, batch_metadata=batch)


def publish_in_run(context: dg.AssetExecutionContext, events: Sequence[dg.AssetMaterialization | dg.AssetObservation]) -> None:
    """Store events of the current run, in order, as if each were yielded. Returns after they are stored."""
    step = context.get_step_execution_context()
    for event, batch in _batch(events):
        if isinstance(event, dg.AssetObservation):
            DagsterEvent.asset_observation(step, event, batch)
        else:
            DagsterEvent.asset_materialization(step, event, batch)


def describe(context: dg.AssetExecutionContext, asset: dg.AssetKey, events: Mapping[str, Mapping[str, Any]]) -> None:
    """Add metadata of many partitions, as `context.add_asset_metadata` does for one.

    That method reads all partition keys from Dagster's database on each call.
    """
    step = context.get_step_execution_context()
    metadata = dict(step._metadata_accumulator.per_output_metadata)
    for key, event in events.items():
        metadata[AssetMetadataHandle(asset_key=asset, partition_key=key)] = event
    step._metadata_accumulator = OutputMetadataAccumulator(per_output_metadata=metadata)


def newest(
    instance: dg.DagsterInstance, asset: dg.AssetKey, keys: Collection[str], observed: bool = False
) -> dict[str, dg.EventLogRecord]:
    """Return the newest materialization, or observation, of each partition that has one.

    The newest events of the asset include each partition with frequent events. Other partitions are queried together.
    """
    fetch = instance.fetch_observations if observed else instance.fetch_materializations
    event_type = DagsterEventType.ASSET_OBSERVATION if observed else DagsterEventType.ASSET_MATERIALIZATION
    records: dict[str, dg.EventLogRecord] = {}
    if not keys:
        return records
    for record in fetch(asset, limit=min(len(keys), _AT_ONCE)).records:
        records.setdefault(str(record.partition_key), record)
    missing = [key for key in keys if key not in records]
    for start in range(0, len(missing), _AT_ONCE):
        chunk = {*missing[start : start + _AT_ONCE]}
        ids = list(instance.get_latest_storage_id_by_partition(asset, event_type, chunk).values())
        if ids:
            query = dg.AssetRecordsFilter(asset_key=asset, storage_ids=ids)
            records.update((str(record.partition_key), record) for record in fetch(query, limit=len(ids)).records)
    return records


def newest_values(
    instance: dg.DagsterInstance, asset: dg.AssetKey, keys: Collection[str], names: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return values from the metadata of each partition's newest materialization, by partition key and name.

    Reads the stored JSON of the events: Dagster would create some 80 objects for each of them.
    """
    storage, values = instance.event_log_storage, dict[str, dict[str, Any]]()
    if not isinstance(storage, SqlEventLogStorage):
        for key, record in newest(instance, asset, keys).items():
            event = record.asset_materialization
            if event is not None:
                values[key] = {name: event.metadata[name].value for name in names if name in event.metadata}
        return values
    table, event_type, ordered = SqlEventLogStorageTable.c, DagsterEventType.ASSET_MATERIALIZATION, list(keys)
    for start in range(0, len(ordered), _AT_ONCE):  # in chunks below SQLite's limit of parameters
        ids = instance.get_latest_storage_id_by_partition(asset, event_type, {*ordered[start : start + _AT_ONCE]}).values()
        with storage.index_connection() as connection:
            query = sqlalchemy.select(table.partition, table.event).where(table.id.in_(list(ids)))
            texts = connection.execute(query).fetchall()
        for key, text in texts:
            entries = json.loads(text)["dagster_event"]["event_specific_data"]["materialization"]["metadata_entries"]
            values[key] = {entry["label"]: _value(entry["entry_data"]) for entry in entries if entry["label"] in names}
    return values


def _value(data: Mapping[str, Any]) -> Any:
    """Return the value of a stored metadata entry; a text has another name than a number."""
    return data["value"] if "value" in data else data.get("text")


def _batch(events: Sequence[_Event]) -> Iterator[tuple[_Event, DagsterEventBatchMetadata]]:
    """Yield events with batch metadata: Dagster stores all of them when it receives the last one."""
    name = generate_event_batch_id()
    for at, event in enumerate(events, 1):
        yield event, DagsterEventBatchMetadata(name, at == len(events))
