"""Topics of Debezium whose records name transactions of the source, for `batch.cut: transaction`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kpipe.definition.formats import Format
from kpipe.definition.source import Source
from kpipe.offsets import Range
from kpipe.topics import PartitionId
from kpipe.transaction_log import Boundary, Change
from resources.decode.debezium.transaction_fields import TransactionFields
from resources.decode.debezium.transaction_records import TransactionRecords
from resources.kafka.client_config import client_config, registry_access
from resources.kafka.range_reader import RangeReader
from resources.kafka.record_block import RecordBlock
from resources.kafka.topic_metadata import KafkaTopics

__all__ = ["TransactionTopics"]


class TransactionTopics(KafkaTopics):
    """`Topics` and `TransactionLog` (kpipe/transaction_log.py) over Kafka.

    Args:
        source, environ, timeout_s: see `KafkaTopics`.
        kind: the format; None: JSON.
    """

    def __init__(
        self,
        source: Source,
        environ: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        kind: Format | None = None,
    ) -> None:
        super().__init__(source, environ, timeout_s)
        self._reading, self._kind = (source, environ), kind
        self._alone = len(source.names) < 3
        self._records: dict[PartitionId, TransactionRecords] = {}

    def entries(self, source: PartitionId, span: Range) -> Iterator[Boundary]:
        """See `TransactionLog`."""
        for block in self._blocks(source, span):
            yield from self._of(source).entries(block.offsets, block.values)

    def changes(self, source: PartitionId, span: Range) -> Iterator[Change]:
        """See `TransactionLog`."""
        for block in self._blocks(source, span):
            yield from self._of(source).changes(block.offsets, block.values)

    def _of(self, source: PartitionId) -> TransactionRecords:
        """Return the parser of a partition: it remembers the schema, which each message repeats."""
        if source not in self._records:
            fields = None
            if self._kind is not None and self._kind.registry is not None:
                fields = TransactionFields(self._kind, registry_access(*self._reading))
            self._records[source] = TransactionRecords(f"{source.topic.name}/{source.partition}", self._alone, fields)
        return self._records[source]

    def _blocks(self, source: PartitionId, span: Range) -> Iterator[RecordBlock]:
        given, environ = self._reading
        with RangeReader(client_config(given, environ), source.topic.name, source.partition, span, of_batch=False) as reader:
            for block, _ in reader.blocks():
                yield block
