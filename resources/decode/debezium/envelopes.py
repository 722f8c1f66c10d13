"""Envelopes of change events: which member is the row, and what became of it.

Sources: Debezium's connector pages and `ExtractNewRecordState`, Maxwell's "Data Format", Canal's flat messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from resources.decode.debezium.connect_schema import Plan, plan
from resources.decode.json.rows import Reject

__all__ = ["ENVELOPES", "Change", "Envelope", "Image", "Plans", "is_transaction"]

Plans = Mapping[str, Plan]

_ROWS, _OTHERS = ("c", "r", "u"), {"d": "delete", "t": "truncate", "m": "message"}
_FLAT = {"c": "row", "r": "row", "u": "row", "d": "delete", "t": "truncate"}
_MAXWELL = {
    **dict.fromkeys(("insert", "update", "bootstrap-insert"), "row"), "delete": "delete",
    **dict.fromkeys(("bootstrap-start", "bootstrap-complete", "heartbeat"), "message"),
    **{f"{what}-{change}": "message" for what in ("database", "table") for change in ("create", "alter", "drop")},
}  # fmt: skip
_CANAL = {
    "INSERT": "row", "UPDATE": "row", "DELETE": "delete", "TRUNCATE": "truncate",
    **dict.fromkeys(("CREATE", "ALTER", "ERASE", "QUERY", "RENAME", "CINDEX", "DINDEX", "GTID", "MHEARTBEAT"), "message"),
    **dict.fromkeys(("XACOMMIT", "XAROLLBACK"), "message"),
}  # fmt: skip
_MONGODB = "an event of Debezium's connector for MongoDB, whose rows are texts: not supported; use format json"


@dataclass(frozen=True)
class Image:
    """A row of the source, or its key.

    Attributes:
        values: the members, as JSON.
        plan: of the schema; None: the message has none.
    """

    values: Mapping[str, Any]
    plan: Plan | None


@dataclass(frozen=True)
class Change:
    """A change of the source's table.

    Attributes:
        what: `row` (insert, update or snapshot), `delete`, `truncate` or `message`.
        row: the row after the change; of a delete the row before it, as far as the source logs it.
        old: members before an update, if the envelope has them: all, or only those that it changed.
        table: names of the source's database, schema and table, as far as the event has them; the last one is the table's.
    """

    what: str
    row: Image | None
    old: Mapping[str, Any] | None = None
    table: tuple[str, ...] = ()


@dataclass(frozen=True)
class Envelope:
    """A form of change events.

    Attributes:
        change: returns the change of a value, with the plans of its schema; raises Reject.
        plans: returns the plans of the rows of a schema; raises Reject.
        table: returns the names of the source's table, as in `Change`; nothing if the value does not have them.
        prefix: of the columns' names in keys.
    """

    change: Callable[[Any, Plans | None], Change]
    plans: Callable[[Any], Plans]
    table: Callable[[Any], tuple[str, ...]]
    prefix: str = ""


def is_transaction(value: Any) -> bool:
    """Return whether a message is a BEGIN or END of Debezium's transaction topic, which changes no row."""
    return isinstance(value, Mapping) and value.get("status") in ("BEGIN", "END") and "id" in value and "op" not in value


def _named(value: Any, *members: str) -> tuple[str, ...]:
    """Return the names that these members have; nothing without the last one, which is the table's."""
    names = [value.get(member) for member in members] if isinstance(value, Mapping) else [None]
    return tuple(name for name in names if isinstance(name, str) and name) if isinstance(names[-1], str) else ()


def _of_source(value: Any) -> tuple[str, ...]:
    return _named(value.get("source") if isinstance(value, Mapping) else None, "db", "schema", "table")


def _of_flat(value: Any) -> tuple[str, ...]:
    return _named(value, "__db", "__schema", "__table")


def _of_event(value: Any) -> tuple[str, ...]:
    return _named(value, "database", "table")


def _debezium(value: Any, plans: Plans | None) -> Change:
    if is_transaction(value):
        return Change("message", None)
    if not isinstance(value, Mapping) or not isinstance(value.get("op"), str):
        raise Reject("not a change event of Debezium: it has no member op")
    operation, source = value["op"], value.get("source")
    table = _of_source(value)
    if isinstance(source, Mapping) and source.get("connector") == "mongodb":
        raise Reject(_MONGODB)
    if operation in _ROWS:
        after = value.get("after")
        if not isinstance(after, Mapping):
            raise Reject(f"op {operation} without the row after the change (member after)")
        old = value.get("before") if operation == "u" else None
        return Change("row", Image(after, _of(plans, "after")), old if isinstance(old, Mapping) else None, table)
    if operation not in _OTHERS:
        raise Reject(f"unknown op {operation[:20]!r}: expected c, r, u, d, t or m")
    before = value.get("before") if operation == "d" else None
    image = Image(before, _of(plans, "before")) if isinstance(before, Mapping) else None
    return Change(_OTHERS[operation], image, table=table)


def _images(schema: Any) -> Mapping[str, Plan]:
    """Return the plans of the rows before and after a change."""
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    found, names = {}, set[Any]()
    for field in fields if isinstance(fields, list) else ():
        name = field.get("field") if isinstance(field, Mapping) else None
        names.add(name if isinstance(name, str) else None)
        if name in ("before", "after") and field.get("name") == "io.debezium.data.Json":
            raise Reject(_MONGODB)
        if name in ("before", "after"):
            found[name] = plan(field)
    if {"status", "id", "data_collections"} <= names:
        return found  # of the transaction topic
    if "after" not in found:
        raise Reject("the schema is not that of a change event of Debezium: it has no field after")
    return found


def _of(plans: Mapping[str, Plan] | None, name: str) -> Plan | None:
    return None if plans is None else plans.get(name, plans["after"])


def _flat(value: Any, plans: Plans | None) -> Change:
    """Return the change of a row with `__deleted` or `__op`; members that begin with `__` are not columns."""
    if not isinstance(value, Mapping):
        raise Reject("not a flattened change event: it is not an object")
    image = Image({name: item for name, item in value.items() if not name.startswith("__")}, _of(plans, "after"))
    what = "row" if value.get("__op") is None else _what(_FLAT, value["__op"], "__op")
    table = _of_flat(value)
    if what == "truncate":
        return Change(what, None, table=table)
    return Change("delete" if value.get("__deleted") in (True, "true") else what, image, table=table)


def _what(known: Mapping[str, str], operation: Any, member: str) -> str:
    """Return what became of the row. An unknown operation might change rows, so it is not a message."""
    found = known.get(operation) if isinstance(operation, str) else None
    if found is None:
        raise Reject(f"unknown {member} {str(operation)[:20]!r}")
    return found


def _flat_plans(schema: Any) -> Plans:
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    if not isinstance(fields, list):
        raise Reject("the schema is not a struct of Kafka Connect")
    own = [item for item in fields if not (isinstance(item, Mapping) and str(item.get("field")).startswith("__"))]
    return {"after": plan({**schema, "fields": own})}


def _maxwell(value: Any, _: Plans | None) -> Change:
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise Reject("not a change event of Maxwell: it has no member type")
    what, data, old = _what(_MAXWELL, value["type"], "type"), value.get("data"), value.get("old")
    if what == "message":
        return Change(what, None)
    if not isinstance(data, Mapping):
        raise Reject(f"type {value['type']} without the row (member data)")
    return Change(what, Image(data, None), old if isinstance(old, Mapping) else None, _of_event(value))


def _canal(value: Any, _: Plans | None) -> Change:
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise Reject("not a flat message of Canal: it has no member type")
    what, data, old = _what(_CANAL, value["type"], "type"), value.get("data"), value.get("old")
    table = _of_event(value)
    if what in ("message", "truncate"):
        return Change(what, None, table=table)
    if not isinstance(data, list) or len(data) != 1 or not isinstance(data[0], Mapping):
        count = len(data) if isinstance(data, list) else 0
        raise Reject(f"type {value['type']}: expected one row in the member data, found {count}")
    before = old[0] if isinstance(old, list) and old and isinstance(old[0], Mapping) else None
    return Change(what, Image(data[0], None), before, table)


def _no_plans(_: Any) -> Plans:
    raise Reject("a message with a schema: expected none in this envelope")


ENVELOPES = {
    "debezium": Envelope(_debezium, _images, _of_source),
    "flat": Envelope(_flat, _flat_plans, _of_flat),
    "maxwell": Envelope(_maxwell, _no_plans, _of_event, "pk."),
    "canal": Envelope(_canal, _no_plans, _of_event),
}
"""By `format.envelope`."""
