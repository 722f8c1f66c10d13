"""Compare a checkpoint with the table: which batches the table contains, and whether both are of the same moment."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from kpipe.errors import InvalidPipeline
from kpipe.topics import PartitionId
from resources.adoption.delta_transactions import last_transaction
from resources.adoption.streaming_checkpoint import Batches
from resources.adoption.table_offsets import TableColumns, table_offsets
from resources.audit.table_address import TableAddress

__all__ = ["compared"]


def compared(
    batches: Batches,
    address: TableAddress,
    columns: TableColumns,
    partitions: Collection[PartitionId],
    stated: bool | None = None,
) -> tuple[bool | None, str]:
    """Return whether the table contains all planned batches, or none of them, and why the checkpoint must not be used.

    The sink's own log decides: Delta's `txn` action of the query, with the number of its last batch, or the file sink's
    `_spark_metadata`. Both sinks log each batch, also an empty one. Without a log, the operator decides, else the highest
    offsets of the table, if rows have offsets.

    Args:
        batches: of the checkpoint.
        address: of the table.
        columns: of the table.
        partitions: of the pipeline.
        stated: whether the operator states that the table contains planned batches; None: unknown.

    Returns:
        Whether the planned batches are in the table (None: neither is certain), and a problem, empty if there is none.

    Raises:
        DestinationError: the table cannot be read.
    """
    logged = last_transaction(batches.query, address)
    if logged is None:
        logged = _file_sink(address)
    if logged is None:
        return (stated if stated is not None else _by_offsets(batches, address, columns, partitions)), ""
    if problem := _mismatch(batches, logged, address.table or address.database):
        return None, problem
    included = True if logged == batches.planned else False if logged == batches.committed else None
    if included is not None and stated not in (None, included) and batches.planned is not None:
        option = "included" if stated else "excluded"
        return None, (
            f"table {address.table or address.database} ends at batch {logged} of the query, which contradicts"
            f" --planned-batch {option}: remove the option"
        )
    return included, ""


def _mismatch(batches: Batches, logged: int, table: str) -> str:
    """Return why table and checkpoint are not of the same moment; empty if they are."""
    newest = batches.committed if batches.planned is None else batches.planned
    end = f"the checkpoint ends at batch {newest}" if newest >= 0 else "the checkpoint has no batch"
    if logged > newest:
        return (
            f"table {table} has batch {logged} of the query, {end}: it is an older copy, or the query still runs:"
            " stop the query, then copy the checkpoint again"
        )
    if logged < batches.committed:
        found = f"ends at batch {logged} of the query" if logged >= 0 else "has no batch of the query"
        return (
            f"table {table} {found}, the checkpoint has committed batch {batches.committed}: the table was restored, or it is"
            " another table: use the checkpoint of the same moment, or the offsets of the table: --from table"
        )
    return ""


def _by_offsets(
    batches: Batches, address: TableAddress, columns: TableColumns, partitions: Collection[PartitionId]
) -> bool | None:
    """Return whether the highest offsets of the table are the ends of the planned batches; None: neither is certain."""
    if batches.planned is None:
        return None
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
