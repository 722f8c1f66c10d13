"""Read only those members of Debezium's messages that name a transaction, in Avro or Protobuf with a schema registry.

A plan reads each record once more than its task, so the other members are skipped by compiled code. What the task can decode,
this can read: a record that is a reject here is a dead letter there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.definition.formats import Format
from kpipe.schema.columns import BIGINT, BOOLEAN, VARCHAR, Columns, ListOf, Scalar, Struct, Type
from resources.decode import confluent_wire
from resources.decode.avro import native as avro_native
from resources.decode.avro import nodes as avro
from resources.decode.avro import rows as avro_rows
from resources.decode.block import Payloads
from resources.decode.debezium.avro_documents import plain_plan
from resources.decode.json.rows import Reject
from resources.decode.payload_schemas import Missing, Unfit, Written
from resources.decode.protobuf import message_plan as protobuf
from resources.decode.protobuf import native as protobuf_native
from resources.decode.protobuf import rows as protobuf_rows
from resources.decode.protobuf.descriptors import Files
from resources.decode.schema_decoder import Native
from resources.duckdb_engine.arrow_types import carried
from resources.schema_registry.client import Schema
from resources.schema_registry.config import Access

__all__ = ["TransactionFields"]

#: Members of change events, and of BEGIN and END. None: a single value.
_Wanted = Mapping[str, "_Wanted | None"]
_WANTED: _Wanted = {
    "op": None, "source": {"snapshot": None}, "transaction": {"id": None, "data_collection_order": None},
    "status": None, "id": None, "data_collections": {"data_collection": None, "event_count": None},
}  # fmt: skip
_SINGLE = (VARCHAR, BOOLEAN, BIGINT, Scalar("INTEGER"))
_Row = Callable[[bytes], Mapping[str, Any]]
Found = Mapping[str, Any] | Reject | Missing


class TransactionFields:
    """Reader of messages with a registry's prefix.

    Args:
        kind: the format, with a registry.
        access: settings of the registry.
    """

    def __init__(self, kind: Format, access: Access | None) -> None:
        self._written = Written(kind, ("AVRO", "PROTOBUF"), _messages, access)

    def read(self, payloads: Payloads) -> list[Found]:
        """Return for each message its members; a Reject for an invalid message, `Missing` if the registry lacks its schema.

        Raises:
            RegistryFailed, CredentialsRefused: the registry did not return the schema of an id.
        """
        found: list[Found] = [Reject("not read")] * len(payloads)
        for chosen, skip, messages in self._written.groups(payloads):
            if isinstance(messages, str):
                why: Found = messages if isinstance(messages, Missing) else Reject(messages)
                for at in chosen.tolist():
                    found[at] = why
            else:
                for at, value in messages.read(payloads, chosen, skip):
                    found[at] = value
        return found


def _messages(schema: Schema) -> _Members | _Types:
    if schema.kind == "PROTOBUF":
        return _Types(schema)
    plan = _of_avro(plain_plan(schema))
    return _Members(plan.carried, avro_native.native_avro(plan), avro_rows.Reader(plan).row)


class _Members:
    """Reader of messages of one type.

    Args:
        kind: Arrow types of the members.
        native: compiled code that reads them; None: without it.
        row: reads one message; raises Reject.
    """

    def __init__(self, kind: pa.StructType, native: Native | None, row: _Row) -> None:
        self._names, self._native, self._row = [item.name for item in kind], native, row

    def read(
        self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int
    ) -> Iterator[tuple[int, Mapping[str, Any] | Reject]]:
        """Yield position and members of each chosen payload."""
        rows: Iterator[Mapping[str, Any]] = iter(())
        good = np.zeros(len(chosen), np.bool_)
        if self._native is not None and self._names:
            try:
                arrays, read = self._native.decode(payloads, chosen, skip)
                rows, good = iter(pa.StructArray.from_arrays(arrays, self._names).to_pylist()), read
            except MemoryError:  # they are read one by one
                pass
        for at, fast in zip(chosen.tolist(), good.tolist(), strict=True):
            if fast:
                yield at, next(rows)
                continue
            try:
                yield at, self._row(payloads[at][skip:]) if self._names else {}
            except Reject as error:
                yield at, error


class _Types:
    """Reader of messages of one schema of Protobuf, which may have several types."""

    def __init__(self, schema: Schema) -> None:
        self._files = Files(schema.text, schema.references, alone=False)
        self._known: dict[str, _Members | Reject] = {}

    def read(
        self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int
    ) -> Iterator[tuple[int, Mapping[str, Any] | Reject]]:
        """Yield position and members of each chosen payload."""
        for some, indexes, more in confluent_wire.messages(payloads, chosen, skip):
            found = Reject(indexes) if isinstance(indexes, str) else self._type(indexes)
            if isinstance(found, Reject):
                yield from ((at, found) for at in some.tolist())
            else:
                yield from found.read(payloads, some, skip + more)

    def _type(self, indexes: tuple[int, ...]) -> _Members | Reject:
        try:
            name = self._files.at(indexes)
        except Unfit as error:
            return Reject(f"its schema cannot be used: {error}")
        if name not in self._known:
            self._known[name] = self._members(name)
        return self._known[name]

    def _members(self, name: str) -> _Members | Reject:
        try:
            plan = _of_protobuf(protobuf.plan(self._files.named(name)))
        except Unfit as error:
            return Reject(f"its schema cannot be used: {error}")
        return _Members(plan.carried, protobuf_native.native_protobuf(plan), protobuf_rows.Reader(plan).row)


def _columns(members: Struct | None) -> tuple[Columns, pa.StructType]:
    columns = Columns(members.fields if members is not None else ())
    return columns, pa.struct([(name, carried(kind)) for name, kind in columns])


def _of_avro(plan: avro.Plan) -> avro.Plan:
    """Return the plan without members that are not wanted, or have an unexpected type. Their data is skipped."""
    nodes = list(plan.nodes)

    def only(at: int, wanted: _Wanted | None) -> int | None:
        node = nodes[at]
        if node.op in (avro.OPTIONAL, avro.ARRAY):
            inner = only(node.inner[0], wanted)
            kind = None if inner is None else nodes[inner].kind
            if inner is None or kind is None:
                return None
            node = replace(node, inner=[inner], kind=ListOf(kind) if node.op == avro.ARRAY else kind)
        elif wanted is None:
            return at if node.kind in _SINGLE else None
        elif node.op != avro.RECORD or (node := record(node, wanted)).kind is None:
            return None
        nodes.append(node)
        return len(nodes) - 1

    def record(node: avro.Node, wanted: _Wanted) -> avro.Node:
        inner, places, members = list(node.inner), [-1] * len(node.inner), list[tuple[str, Type]]()
        for place, name in enumerate(node.names):
            made = only(inner[place], wanted[name]) if name in wanted else None
            kind = None if made is None else nodes[made].kind
            if made is not None and kind is not None:
                inner[place], places[place] = made, len(members)
                members.append((name, kind))
        return replace(node, inner=inner, places=places, kind=Struct(tuple(members)) if members else None)

    nodes[0] = record(nodes[0], _WANTED)
    kind = nodes[0].kind
    return avro.Plan(nodes, *_columns(kind if isinstance(kind, Struct) else None))


def _of_protobuf(plan: protobuf.Plan) -> protobuf.Plan:
    """Return the plan without fields that are not wanted, or have an unexpected type: readers skip unknown fields."""
    messages = list(plan.messages)

    def only(message: protobuf.Message, wanted: _Wanted) -> protobuf.Message:
        made = protobuf.Message(message.name, oneofs=message.oneofs)
        for item in message.fields:
            below = wanted.get(item.name)
            if below is None:
                if item.name in wanted and item.kind in _SINGLE:
                    made.fields.append(item)
            elif item.op == protobuf.MESSAGE and (inner := only(messages[item.inner], below)).fields:
                messages.append(inner)
                made.fields.append(replace(item, inner=len(messages) - 1, kind=_struct(inner)))
        made.closed()
        return made

    messages[0] = only(messages[0], _WANTED)
    return protobuf.Plan(messages, plan.enums, *_columns(_struct(messages[0])))


def _struct(message: protobuf.Message) -> Struct:
    return Struct(tuple((item.name, item.column) for item in message.fields))
