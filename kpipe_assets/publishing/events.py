"""Events of many partitions: told to Dagster at once, and the newest of each found at once.

Dagster's own calls are for one partition each; with a thousand of them they read and write everything a thousand times. The
parts of Dagster that are used here have no public names; tests/kpipe_assets/test_many.py holds them to what we want of them.
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

__all__ = ["describe", "newest", "numbers", "tell", "tell_in_run"]

# Dagster gives no more than ten times as many at once; a list of ids becomes a parameter each.
_AT_ONCE = 1000
_Event = TypeVar("_Event")


def tell(instance: dg.DagsterInstance, events: Sequence[dg.AssetMaterialization | dg.AssetObservation]) -> None:
    """Store events without a run, in order, as `report_runless_asset_event` does for each. They are stored when this returns."""
    for event, batch in _batch(events):
        kind, data = (
            (DagsterEventType.ASSET_MATERIALIZATION, StepMaterializationData(event))
            if isinstance(event, dg.AssetMaterialization)
            else (DagsterEventType.ASSET_OBSERVATION, AssetObservationData(event))
        )
        told = DagsterEvent(event_type_value=kind.value, event_specific_data=data, job_name=RUNLESS_JOB_NAME)
        instance.report_dagster_event(told, run_id=RUNLESS_RUN_ID, batch_metadata=batch)


def tell_in_run(context: dg.AssetExecutionContext, events: Sequence[dg.AssetMaterialization | dg.AssetObservation]) -> None:
    """Store events of the run at work, in order, as if each were yielded. They are stored when this returns."""
    step = context.get_step_execution_context()
    for event, batch in _batch(events):
        if isinstance(event, dg.AssetObservation):
            DagsterEvent.asset_observation(step, event, batch)
        else:
            DagsterEvent.asset_materialization(step, event, batch)


def describe(context: dg.AssetExecutionContext, asset: dg.AssetKey, events: Mapping[str, Mapping[str, Any]]) -> None:
    """As `context.add_asset_metadata` for each of these partitions, which reads all keys from Dagster's database each time."""
    step = context.get_step_execution_context()
    told = dict(step._metadata_accumulator.per_output_metadata)
    for key, event in events.items():
        told[AssetMetadataHandle(asset_key=asset, partition_key=key)] = event
    step._metadata_accumulator = OutputMetadataAccumulator(per_output_metadata=told)


def newest(
    instance: dg.DagsterInstance, asset: dg.AssetKey, keys: Collection[str], observed: bool = False
) -> dict[str, dg.EventLogRecord]:
    """The newest materialization, or observation, of each of these partitions; of some there may be none.

    The newest events of the asset have every partition that is told of steadily; those of others are looked up together.
    """
    fetch = instance.fetch_observations if observed else instance.fetch_materializations
    kind = DagsterEventType.ASSET_OBSERVATION if observed else DagsterEventType.ASSET_MATERIALIZATION
    found: dict[str, dg.EventLogRecord] = {}
    if not keys:
        return found
    for record in fetch(asset, limit=min(len(keys), _AT_ONCE)).records:
        found.setdefault(str(record.partition_key), record)
    missing = [key for key in keys if key not in found]
    for at in range(0, len(missing), _AT_ONCE):
        ids = list(instance.get_latest_storage_id_by_partition(asset, kind, {*missing[at : at + _AT_ONCE]}).values())
        if ids:
            asked = dg.AssetRecordsFilter(asset_key=asset, storage_ids=ids)
            found.update((str(record.partition_key), record) for record in fetch(asked, limit=len(ids)).records)
    return found


def numbers(instance: dg.DagsterInstance, asset: dg.AssetKey, keys: Collection[str], name: str) -> dict[str, int]:
    """A whole number of the metadata of each partition's newest materialization; of some there may be none.

    Dagster makes some 80 objects of an event, a thousand times; here the event's text is read for one number.
    """
    storage, found = instance.event_log_storage, dict[str, int]()
    if not isinstance(storage, SqlEventLogStorage):
        for key, record in newest(instance, asset, keys).items():
            event = record.asset_materialization
            value = event.metadata[name].value if event is not None and name in event.metadata else None
            found.update({key: value} if isinstance(value, int) else {})
        return found
    table, kind, wanted = SqlEventLogStorageTable.c, DagsterEventType.ASSET_MATERIALIZATION, list(keys)
    for at in range(0, len(wanted), _AT_ONCE):  # each key is a parameter, of which SQLite takes so many
        ids = instance.get_latest_storage_id_by_partition(asset, kind, {*wanted[at : at + _AT_ONCE]}).values()
        with storage.index_connection() as connection:
            asked = sqlalchemy.select(table.partition, table.event).where(table.id.in_(list(ids)))
            texts = connection.execute(asked).fetchall()
        for key, text in texts:
            entries = json.loads(text)["dagster_event"]["event_specific_data"]["materialization"]["metadata_entries"]
            value = next((entry["entry_data"].get("value") for entry in entries if entry["label"] == name), None)
            found.update({key: value} if isinstance(value, int) else {})
    return found


def _batch(events: Sequence[_Event]) -> Iterator[tuple[_Event, DagsterEventBatchMetadata]]:
    """Each with what Dagster stores it by: all when the last one has come."""
    name = generate_event_batch_id()
    for at, event in enumerate(events, 1):
        yield event, DagsterEventBatchMetadata(name, at == len(events))
