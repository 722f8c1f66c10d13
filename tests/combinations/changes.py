"""Records of an example as Debezium writes them: changes of rows, with and without schemas.

Facts: Debezium's page of its PostgreSQL connector, "Toasted values", "Primary key updates" and
`unavailable.value.placeholder`; the forms of the placeholder by type are those of its `PostgresValueConverter`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tests.combinations import connect
from tests.combinations.definition import BYTES, GROWN, Definition
from tests.combinations.values import Cell

__all__ = ["LEFT_OUT", "change", "event", "headers", "key", "placeholder"]

#: Columns that an update leaves out, by the number of its item.
LEFT_OUT: tuple[tuple[str, ...], ...] = (
    ("x",), ("x", BYTES), (BYTES,), ("x", GROWN), (GROWN,), ("g",), ("x", "g", BYTES), ("id",),
)  # fmt: skip
_UNAVAILABLE = "__debezium_unavailable_value"
_TEXT, _BASE64 = json.dumps(_UNAVAILABLE), json.dumps(base64.b64encode(_UNAVAILABLE.encode()).decode())
_NUMBERS, _MAP = json.dumps(list(_UNAVAILABLE.encode())), json.dumps({_UNAVAILABLE: _UNAVAILABLE}, separators=(",", ":"))
#: As Java's `UUID.nameUUIDFromBytes`.
_UUID = uuid.UUID(bytes=hashlib.md5(_UNAVAILABLE.encode(), usedforsecurity=False).digest(), version=3)
#: What stands for a value that was left out, by the type of column `x`, beside the text: of numbers, of texts and UUIDs, and of
#: HSTORE as an object and as text.
_FORMS: Mapping[str, tuple[str, ...]] = {
    "VARCHAR": (_TEXT, _BASE64, json.dumps(_MAP)),
    "BIGINT[]": (_NUMBERS, f"[{_TEXT}]", json.dumps([str(_UUID)])),
    "MAP(VARCHAR, BIGINT)": (_MAP, _TEXT),
}

_OPERATION = {"deleted": "d", "truncated": "t", "message": "m", "unknown": "?"}
_OP: dict[str, Any] = {"type": "string", "optional": False}


def key(definition: Definition, name: str) -> bytes:
    """The key of a row's record."""
    schema = connect.struct([{**connect.STRING, "optional": False, "field": "k"}])
    payload = json.dumps({"k": name})
    return connect.wrapped(schema, payload) if definition.connect else payload.encode()


def headers(item: str, name: str) -> tuple[tuple[str, bytes], ...]:
    """The headers of one of the two events of a changed primary key; `name` is the other key."""
    other = {"deleted": "newkey", "row": "oldkey"}[item]
    return ((f"__debezium.{other}", json.dumps({"k": name}).encode()),)


def placeholder(column: str, kind: str, number: int) -> str:
    """JSON in a record in place of a value of a column that the update left out.

    Args:
        column: its name.
        kind: type of column `x`.
        number: of the record, by which forms take turns.
    """
    if column == BYTES:
        return _BASE64
    forms = _FORMS.get(kind, (_TEXT,)) if column == "x" else (_TEXT,)
    return forms[number % len(forms)]


def change(
    definition: Definition,
    number: int,
    cell: Cell,
    members: Mapping[str, str],
    left_out: Collection[str] = (),
    operation: str = "",
) -> bytes:
    """A row that was read by the snapshot, inserted or updated, by its number; or an update that left out values.

    Args:
        definition: of the example.
        number: of the record.
        cell: of column `x`. Where it has none of Connect's types, the message has the schema null.
        members: JSON texts by name; of values that were left out, what stands for them.
        left_out: their columns.
        operation: `op`; empty: by the number.
    """
    operation = operation or "rcu"[number % 3]
    row = [f'"{name}":{text}' for name, text in members.items()]
    if "x" in left_out:
        typed = (definition.type, members["x"][:1]) in (("VARCHAR", '"'), ("BIGINT[]", "["))
        typed = typed and '["' not in members["x"]
    else:
        typed = connect.has_type(definition.type, cell)
    typed = typed and not {"id", "g"} & set(left_out)
    fields = connect.fields_of(definition.type, members) if typed else None
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
