"""Decide from the table whether it contains a batch that a checkpoint has planned and not committed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from kpipe.errors import InvalidPipeline
from kpipe.topics import PartitionId
from resources.adoption.delta_transactions import last_transaction
from resources.adoption.streaming_checkpoint import Batches
from resources.adoption.table_offsets import TableColumns, table_offsets
from resources.audit.table_address import TableAddress

__all__ = ["is_included"]


def is_included(
    batches: Batches, address: TableAddress, columns: TableColumns, partitions: Collection[PartitionId]
) -> bool | None:
    """Return whether the table contains all planned batches, or none of them; None: neither is certain.

    The sink's own log decides: Delta's `txn` action of the query, with the number of its last batch, or the file sink's
    `_spark_metadata`. Without one, the highest offsets of the table decide, if rows have offsets.

    Raises:
        DestinationError: the table cannot be read.
    """
    if batches.planned is None:
        return None
    logged = last_transaction(batches.query, address)
    if logged is None:
        logged = _file_sink(address)
    if logged is not None:
        return True if logged >= batches.planned else False if logged <= batches.committed else None
    try:
        found = table_offsets(address, columns, partitions).offsets
    except InvalidPipeline:  # rows without offsets
        return None
    moved = {key: (batches.ends.get(key, 0), end) for key, end in batches.planned_ends.items() if end > batches.ends.get(key, 0)}
    if moved and all(found.get(key, 0) == end for key, (_, end) in moved.items()):
        return True
    if all(found.get(key, 0) <= start for key, (start, _) in moved.items()):
        return False
    return None


def _file_sink(address: TableAddress) -> int | None:
    """Return the number of the last batch that Structured Streaming's file sink has committed; None: no such sink."""
    if address.type != "parquet" or "://" in address.database:
        return None
    log = Path(address.database).expanduser() / address.table / "_spark_metadata"
    if not log.is_dir():
        return None
    names = (path.name.partition(".")[0] for path in log.iterdir())
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=-1)
