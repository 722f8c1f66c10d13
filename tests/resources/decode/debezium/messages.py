"""Messages as Debezium writes them."""

from __future__ import annotations

import base64
import json
from typing import Any

CONNECT, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."
PLACEHOLDER = "__debezium_unavailable_value"


def raw(data: bytes) -> str:
    """Bytes in Connect's JSON."""
    return base64.b64encode(data).decode()


def unscaled(number: int) -> str:
    """A decimal without its point."""
    return raw(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def kind(field: str, of: str, name: str = "", **more: Any) -> dict[str, Any]:
    """A field of a schema."""
    return {"field": field, "type": of, "optional": True, **({"name": name} if name else {}), **more}


def envelope(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """The schema of a change event."""
    rows = [{"type": "struct", "fields": fields, "optional": True, "name": "s.t.Value", "field": n} for n in ("before", "after")]
    source = {"type": "struct", "fields": [kind("lsn", "int64")], "field": "source"}
    return {"type": "struct", "fields": [*rows, source, kind("op", "string")], "name": "s.t.Envelope"}


def change(op: str, after: Any = None, before: Any = None, fields: list[dict[str, Any]] | None = None) -> bytes:
    """A value; with a schema if there are fields."""
    payload = {"before": before, "after": after, "source": {"lsn": 7}, "op": op, "ts_ms": 1}
    whole = payload if fields is None else {"schema": envelope(fields), "payload": payload}
    return json.dumps(whole, separators=(",", ":")).encode()


def key(fields: list[dict[str, Any]] | None = None, **values: Any) -> bytes:
    """A key; with a schema if there are fields."""
    whole = values if fields is None else {"schema": {"type": "struct", "fields": fields}, "payload": values}
    return json.dumps(whole, separators=(",", ":")).encode()
