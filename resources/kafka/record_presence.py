"""Check whether Kafka has a committed record at one offset."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kpipe.definition.pipeline import Source
from kpipe.errors import SourceError
from kpipe.offsets import Range
from kpipe.topics import PartitionId
from resources.kafka.client_config import admin_config, client_config, operation_timeout_s
from resources.kafka.range_reader import RangeReader
from resources.kafka.rare_requests import cleanup_policy, may_compact

__all__ = ["has_record", "is_compacted"]


def has_record(source: Source, where: PartitionId, offset: int) -> bool:
    """Read one offset, and return whether it has a committed record. Its content is discarded.

    The offset must be at or above the log start and below the last stable offset. The topic is addressed by its name: compare
    its identity afterwards.

    Raises:
        SourceError: it cannot be read in time.
    """
    span, timeout = Range(offset, offset + 1), operation_timeout_s(source)
    with RangeReader(
        client_config(source), where.topic.name, where.partition, span, stall_timeout_s=timeout, of_batch=False
    ) as reader:
        return any(len(block.offsets) for block, _ in reader.blocks())


def is_compacted(source: Source, topic: str) -> bool:
    """Return whether Kafka may remove records of the topic between others; True if its settings cannot be read."""
    try:
        return may_compact(cleanup_policy(AdminClient(admin_config(client_config(source))), topic, operation_timeout_s(source)))
    except (KafkaException, KeyError, ValueError, SourceError):
        return True
