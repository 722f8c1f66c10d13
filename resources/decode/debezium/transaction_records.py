"""Read which transaction of the source a record belongs to: Debezium's transaction metadata, in JSON, Avro or Protobuf.

Facts: Debezium's connector pages, "Transaction metadata" and the `source` block of change events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kpipe.errors import RegistryFailed, SourceError
from kpipe.transaction_log import Boundary, Change, key_of
from resources.decode.block import Payloads
from resources.decode.debezium.envelopes import is_transaction
from resources.decode.debezium.events import JsonDocuments
from resources.decode.debezium.transaction_fields import TransactionFields
from resources.decode.json.rows import Reject
from resources.decode.payload_schemas import Missing

__all__ = ["TransactionRecords"]

#: The end of an event as the converter writes it. Inside of a text, its quotes would be escaped.
_END = re.compile(
    rb',"transaction":\{"id":"([^"\\]+)","total_order":\d+,"data_collection_order":(\d+)\},"op":"[cudt]","ts_ms":\d+'
    rb'(?:,"ts_us":\d+,"ts_ns":\d+)?\}(\}?)$'
)
_LONGEST_END = 512

_HINT = "set provide.transaction.metadata=true in Debezium, and begin with topics that it has written since"
#: `source.snapshot` of events of a snapshot that runs before the stream, and what they are.
_SNAPSHOT = {
    **dict.fromkeys(("true", "first", "first_in_data_collection"), "snapshot"),
    "last_in_data_collection": "table", "last": "whole",
}  # fmt: skip


class TransactionRecords:
    """Parser of the records of one partition.

    Args:
        where: the partition, for messages.
        alone: whether the pipeline has one table only.
        fields: reads messages with a registry's prefix; None: they are JSON.
    """

    def __init__(self, where: str, alone: bool = True, fields: TransactionFields | None = None) -> None:
        self._where, self._alone, self._fields = where, alone, fields
        self._documents: JsonDocuments[bool] = JsonDocuments(lambda _: True)

    def entries(self, offsets: Sequence[int], values: Sequence[bytes | None]) -> Iterator[Boundary]:
        """Yield BEGIN and END.

        Raises:
            SourceError: a record is neither.
            RegistryFailed, CredentialsRefused: the registry did not return the schema of a record.
        """
        for offset, value in self._read(offsets, values):
            if isinstance(value, Reject) or not is_transaction(value) or not isinstance(value["id"], str):
                why = f": {value}" if isinstance(value, Reject) else ""
                raise SourceError(
                    f"{self._where}: offset {offset}: expected BEGIN or END of a transaction, found another record{why}",
                    "source.topics needs Debezium's transaction topic, PREFIX.transaction, in the format of the tables' topics",
                )
            yield Boundary(offset, key_of(value["id"]), self._counts(offset, value) if value["status"] == "END" else None)

    def _counts(self, offset: int, value: Mapping[str, Any]) -> dict[str, int]:
        found: dict[str, int] = {}
        items = value.get("data_collections") or []
        for item in items if isinstance(items, list) else [None]:
            name, count = (item.get("data_collection"), item.get("event_count")) if isinstance(item, Mapping) else (None, None)
            if not isinstance(name, str) or not isinstance(count, int):
                raise SourceError(f"{self._where}: offset {offset}: invalid data_collections in END of a transaction", _HINT)
            found[name] = count
        return found

    def changes(self, offsets: Sequence[int], values: Sequence[bytes | None]) -> Iterator[Change]:
        """Yield what each record of a table's topic belongs to.

        Raises:
            SourceError: a change has no transaction metadata.
            RegistryFailed, CredentialsRefused: the registry did not return the schema of a record.
        """
        if self._fields is not None:
            yield from (self._change(*item) for item in self._read(offsets, values))
            return
        ends = [None if value is None else _end_of(value) for value in values]
        slow = [at for at, end in enumerate(ends) if end is None]
        rest = self._read([offsets[at] for at in slow], [values[at] for at in slow])
        for offset, end in zip(offsets, ends, strict=True):
            yield Change(offset, "event", *end) if end is not None else self._change(*next(rest))

    def _change(self, offset: int, value: Any) -> Change:
        if not isinstance(value, Mapping) or not isinstance(operation := value.get("op"), str):
            return Change(offset, "other")  # a tombstone, or a record that the task rejects
        source, block = value.get("source"), value.get("transaction")
        marker = source.get("snapshot") if isinstance(source, Mapping) else None
        marker = "true" if marker is True else marker if isinstance(marker, str) else "false"
        if marker in _SNAPSHOT:
            return Change(offset, _SNAPSHOT[marker])
        if operation == "m" or marker == "incremental":
            return Change(offset, "other")
        if isinstance(block, Mapping):
            key, order = block.get("id"), block.get("data_collection_order")
            if isinstance(key, str) and isinstance(order, int):
                return Change(offset, "event", key_of(key), order)
        if operation == "t" and self._alone:
            return Change(offset, "other")
        if operation == "t":
            raise SourceError(
                f"{self._where}: offset {offset}: a TRUNCATE outside of a transaction has no place among those of other tables",
                "set skipped.operations=t in Debezium, or load the table with a pipeline of its own",
            )
        raise SourceError(f"{self._where}: offset {offset}: a change (op {operation[:20]}) without transaction metadata", _HINT)

    def _read(self, offsets: Sequence[int], values: Sequence[bytes | None]) -> Iterator[tuple[int, Any]]:
        """Yield offset and message; None for a tombstone, a Reject for an invalid message."""
        payloads = Payloads.of([value for value in values if value is not None])
        if self._fields is not None:
            found: Iterator[Any] = iter(self._fields.read(payloads))
        else:
            found = (value for _, value, _ in self._documents.read(payloads))
        for offset, value in zip(offsets, values, strict=True):
            message = None if value is None else next(found)
            if isinstance(message, Missing):  # the task may find it, and the record may then be of any transaction
                raise RegistryFailed(
                    f"{self._where}: offset {offset}: which transaction the record belongs to is unknown: {message}",
                    "restore the schema in the registry, with its id",
                )
            yield offset, message


def _end_of(value: bytes) -> tuple[str, int] | None:
    """Return transaction and order of an event, without parsing it; None if it is written in another way."""
    found = _END.search(value[-_LONGEST_END:])
    if found is None or bool(found[3]) != value.startswith(b'{"schema":'):
        return None
    return key_of(found[1].decode("utf-8", "replace")), int(found[2])
