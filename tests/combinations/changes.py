"""Records of an example as Debezium writes them: changes of rows, without schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping

__all__ = ["EVENTS", "change", "event", "key"]

#: Events that are no rows, by the kind of their item: `deleted`, `truncated`, `message` (of the source's log), `unknown`.
EVENTS = ("deleted", "truncated", "message", "unknown")
_OPERATION = {"deleted": "d", "truncated": "t", "message": "m", "unknown": "?"}


def key(name: str) -> bytes:
    """The key of a row's record."""
    return json.dumps({"k": name}).encode()


def change(envelope: str, number: int, members: Mapping[str, str]) -> bytes:
    """A row that was read by the snapshot, inserted or updated, by its number.

    Args:
        envelope: `debezium` or `flat`.
        number: of the record.
        members: JSON texts by name.
    """
    operation = "rcu"[number % 3]
    row = [f'"{name}":{text}' for name, text in members.items()]
    if envelope == "flat":
        return ("{" + ",".join([*row, f'"__op":"{operation}"', '"__deleted":"false"']) + "}").encode()
    return f'{{"before":null,"after":{{{",".join(row)}}},"op":"{operation}","ts_ms":1}}'.encode()


def event(envelope: str, kind: str, name: str) -> bytes:
    """An event of a kind of `EVENTS`; `name` is the key of the row that is deleted."""
    if envelope == "flat":
        deleted = "true" if kind == "deleted" else "false"
        return f'{{"k":{json.dumps(name)},"__op":"{_OPERATION[kind]}","__deleted":"{deleted}"}}'.encode()
    before = f'{{"k":{json.dumps(name)}}}' if kind == "deleted" else "null"
    return f'{{"before":{before},"after":null,"op":"{_OPERATION[kind]}","ts_ms":1}}'.encode()
