"""Read offsets in the `txn` actions of a Delta table, as kafka-delta-ingest writes them: application `APP-PARTITION`, version =
offset of the last record.

Structured Streaming writes `txn` actions, too, but their version is the number of a batch. It gives no offset; it does decide
whether a planned batch is in the table (`planned_batch.py`).
"""

from __future__ import annotations

from collections.abc import Collection

from kpipe.adoption.positions import Positions
from kpipe.errors import InvalidPipeline
from kpipe.topics import PartitionId
from resources.audit.sources import open_table
from resources.audit.table_address import TableAddress

__all__ = ["delta_transactions", "last_transaction"]


def delta_transactions(application: str, address: TableAddress, partitions: Collection[PartitionId]) -> Positions:
    """Return the offsets after the last records that an application has committed.

    Raises:
        InvalidPipeline: the pipeline has several topics, or the table has no such action, or one without an offset.
        DestinationError: the table cannot be read.
    """
    if address.type != "delta":
        raise InvalidPipeline("--from delta-txn: expected --type delta", "name the table that the application loads")
    topics = sorted({source.topic.name for source in partitions})
    if len(topics) != 1:
        raise InvalidPipeline(
            f"--from delta-txn: the actions name no topic, and the pipeline has {len(topics)}",
            "adopt one topic for each pipeline",
        )
    with open_table(address) as table:
        assert hasattr(table, "transaction")
        versions = {source: table.transaction(f"{application}-{source.partition}") for source in partitions}
        name, snapshot = table.name, table.snapshot
    for source, version in versions.items():
        if version is not None and version < 0:
            raise InvalidPipeline(
                f"{name}: txn action {application}-{source.partition}: version {version} is not an offset", "use --from table"
            )
    offsets = {(source.topic.name, source.partition): version + 1 for source, version in versions.items() if version is not None}
    if not offsets:
        raise InvalidPipeline(
            f"{name}: no txn action of {application}-PARTITION",
            "Structured Streaming's actions contain no offsets: use --from checkpoint:FOLDER",
        )
    return Positions(f"txn actions of {application} in {name}, {snapshot}", offsets)


def last_transaction(application: str, address: TableAddress) -> int | None:
    """Return the version of an application's newest `txn` action; None: it has none, or the table is of another type."""
    if address.type != "delta" or not application:
        return None
    with open_table(address) as table:
        assert hasattr(table, "transaction")
        found: int | None = table.transaction(application)
        return found
