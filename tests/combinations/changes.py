"""Records of an example as Debezium writes them: changes of rows, with and without schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.combinations import connect
from tests.combinations.definition import Definition
from tests.combinations.values import Cell

__all__ = ["change", "event", "key"]

_OPERATION = {"deleted": "d", "truncated": "t", "message": "m", "unknown": "?"}
_OP: dict[str, Any] = {"type": "string", "optional": False}


def key(definition: Definition, name: str) -> bytes:
    """The key of a row's record."""
    schema = connect.struct([{**connect.STRING, "optional": False, "field": "k"}])
    payload = json.dumps({"k": name})
    return connect.wrapped(schema, payload) if definition.connect else payload.encode()


def change(definition: Definition, number: int, cell: Cell, members: Mapping[str, str]) -> bytes:
    """A row that was read by the snapshot, inserted or updated, by its number.

    Args:
        definition: of the example.
        number: of the record.
        cell: of column `x`. Where it has none of Connect's types, the message has the schema null.
        members: JSON texts by name.
    """
    operation, row = "rcu"[number % 3], [f'"{name}":{text}' for name, text in members.items()]
    fields = connect.fields_of(definition.type, members) if connect.has_type(definition.type, cell) else None
    return _message(definition, fields, "null", "{" + ",".join(row) + "}", operation, row)


def event(definition: Definition, kind: str, name: str) -> bytes:
    """An event of a kind of `definition.EVENTS`; `name` is the key of the row that is deleted."""
    row = [f'"k":{json.dumps(name)}']
    before = "{" + row[0] + "}" if kind == "deleted" else "null"
    return _message(definition, connect.fields_of(definition.type, ["k"]), before, "null", _OPERATION[kind], row)


def _message(
    definition: Definition,
    fields: Sequence[Mapping[str, Any]] | None,
    before: str,
    after: str,
    operation: str,
    row: Sequence[str],
) -> bytes:
    """A message in the definition's envelope; `row` are the members of a flat one."""
    if definition.envelope == "flat":
        deleted = "true" if operation == "d" else "false"
        payload = "{" + ",".join([*row, f'"__op":"{operation}"', f'"__deleted":"{deleted}"']) + "}"
        parts = [*(fields or ()), {**_OP, "field": "__op"}, {**_OP, "field": "__deleted"}]
    else:
        payload = f'{{"before":{before},"after":{after},"op":"{operation}","ts_ms":1}}'
        image = connect.struct(fields or (), optional=True)
        parts = [{**image, "field": "before"}, {**image, "field": "after"}, {**_OP, "field": "op"}]
        parts.append({"type": "int64", "optional": True, "field": "ts_ms"})
    schema = connect.struct(parts) if fields is not None else None
    return connect.wrapped(schema, payload) if definition.connect else payload.encode()
