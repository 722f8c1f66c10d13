"""Read the position of Iceberg's Kafka Connect sink, and check that the table contains all that was read.

The sink's tasks commit source offsets to the connect group in the transaction that sends the names of their files to the control
topic. The coordinator commits the files to the table later, and stores in the snapshot, as
`kafka.connect.offsets.CONTROL_TOPIC.GROUP`, how far it has read the control topic: `{"0": 4}`. These are not offsets of the
source. So the group is ahead of the table while the control topic contains files beyond those offsets.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from kpipe.adoption.positions import Positions
from kpipe.definition.pipeline import Source
from kpipe.errors import InvalidPipeline
from kpipe.topics import PartitionId
from resources.adoption.consumer_group import ConsumerGroup
from resources.adoption.control_topic import waiting_files
from resources.adoption.json_document import json_document
from resources.audit.sources import open_table
from resources.audit.table_address import TableAddress

__all__ = ["control_offsets", "iceberg_sink"]

PREFIX = "kafka.connect.offsets."


def iceberg_sink(source: Source, group: str, address: TableAddress, partitions: Collection[PartitionId]) -> Positions:
    """Return the offsets of the sink's group; files that are not in the table yet are a problem.

    Args:
        source: of the pipeline.
        group: the sink's connect group, `connect-NAME`; for Tabular's sink `cg-control-NAME`.
        address: of the table, type `iceberg`.
        partitions: of the pipeline's topics.

    Raises:
        InvalidPipeline: the table has no snapshot of this sink, or the group has no offsets.
        KpipeError: brokers or table cannot be read.
    """
    if address.type != "iceberg":
        raise InvalidPipeline("--from iceberg-sink: expected --type iceberg", "name the table that the connector loads")
    # The group first: files that are committed afterwards can only bring the table closer.
    found = ConsumerGroup(source, group).positions(partitions)
    with open_table(address) as table:
        control, offsets = control_offsets(table, group)
    waiting = waiting_files(source, control, group, offsets)
    notes, problems = list(found.notes), list(found.problems)
    if waiting.written:
        problems.append(
            f"control topic {control}/{waiting.partition}, offset {waiting.offset}: the first of {waiting.written:,} with files"
            f" that the table does not contain: group {group} is ahead of the table; start the connector, and stop it after a"
            " commit without new records"
        )
    elif waiting.expired:
        problems.append(
            f"control topic {control}: Kafka has deleted events that the table's snapshot has not recorded: compare with the"
            " table's own offsets: --from table"
        )
    else:
        notes.append(f"control topic {control}: the table contains all files that tasks have reported")
    return replace(found, origin=f"Iceberg's sink, {found.origin}", notes=notes, problems=problems)


def control_offsets(table: Any, group: str) -> tuple[str, dict[int, int]]:
    """Return the control topic, and how far the newest snapshot of this group has read it.

    Raises:
        InvalidPipeline: no snapshot is of this group.
    """
    others: set[str] = set()
    for summary in table.summaries():
        for key, value in summary.items():
            if not key.startswith(PREFIX):
                continue
            if not key.endswith(f".{group}"):
                others.add(key.removeprefix(PREFIX))
                continue
            topic = key.removeprefix(PREFIX).removesuffix(f".{group}")
            try:
                return topic, {int(number): int(at) for number, at in json_document(value).items()}
            except (ValueError, AttributeError, TypeError):
                raise InvalidPipeline(f"{table.name}: {key}: expected offsets by partition, found {value[:60]!r}") from None
    hint = (
        f"snapshots have {', '.join(sorted(others))} (TOPIC.GROUP)"
        if others
        else "the connector has committed none to this table"
    )
    raise InvalidPipeline(f"{table.name}: no snapshot has offsets of group {group}", hint)
