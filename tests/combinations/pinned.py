"""Examples that were wrong once, one or more for each defect, as small as they could be made. They run in every `make test`.

Each is an example that the generator can draw. A new finding is added here when its cause is fixed.
"""

from __future__ import annotations

from typing import Any

from tests.combinations.changes import LEFT_OUT
from tests.combinations.definition import GROWN, Definition
from tests.combinations.example import FORCED, Event, Example, Item
from tests.combinations.values import TYPES

__all__ = ["PINNED"]

_LOST = Event("run", answers=("lost", *["500"] * 12))
RUN = Event("run")
_SHARED = {"smallest_piece": 5, "cores": 2}


def _plain(number: int, key: int = 0, keyed: bool = True) -> Item:
    return Item("plain", number, key, keyed)


def _cell(kind: str, beginning: str) -> Item:
    """The record with the value of that type whose JSON text begins so."""
    return Item("cell", next(at for at, cell in enumerate(TYPES[kind]) if cell.text.startswith(beginning)))


_EVENTS = (_plain(7), Item("deleted", key=1), Item("tombstone", key=2), Item("unknown"), Item("null_key"), _plain(2))
_DAY = "TIMESTAMP WITH TIME ZONE"


#: Updates of the key 0 that leave out each of the columns, and the numbers of two of them.
_KEPT = tuple(Item("kept", at, 0) for at in range(len(LEFT_OUT)))
_NEW_COLUMN, _ID = FORCED + LEFT_OUT.index((GROWN,)), LEFT_OUT.index(("id",))
_LEAVING_OUT: tuple[tuple[str, str, str, bool, dict[str, Any]], ...] = (
    ("duckdb", "debezium", "VARCHAR", False, {"most": 6}),
    ("duckdb", "flat", "BIGINT[]", True, {"most": 4, "single": True}),
    ("delta", "debezium", "MAP(VARCHAR, BIGINT)", False, {"divided": "g"}),
    ("iceberg", "flat", "VARCHAR", True, {"most": 10, "single": True, "divided": "k"}),
    ("postgres", "debezium", "TIMESTAMP", False, {}),
    ("mysql", "flat", "DOUBLE", False, {}),
)


def _far(destination: str) -> Example:
    late = _cell(_DAY, '"9999-12-31T23:59:59-05')
    items = _plain(1), late, Item("cell", 0, far=0), Item("broken", far=0), _plain(1)
    return Example(Definition(destination, _DAY, constraint="dead_letter"), ((items,),), (RUN,))


def _bounded(**more: object) -> Definition:
    start, end = {"m_a:0": 0}, {"m_a:0": 3}
    return Definition(**{"start": start, "end": end, **more})  # type: ignore[arg-type]


#: By name; the name begins with the rule of the defect's kind.
PINNED: dict[str, Example] = {
    "kafka: short ranges share a file with a part of a long one": Example(
        Definition("kafka", conflict="topic"), (((_plain(3),), (_plain(7),), (_plain(60),)),), (RUN,), _SHARED
    ),
    "kafka: a deleted key must not come back": Example(
        Definition("kafka", conflict="topic", on_null="delete"),
        (((_plain(2),), (_plain(1),), (_plain(20), Item("tombstone", key=1), _plain(20, 2), Item("tombstone", key=2))),),
        (RUN,),
        _SHARED,
    ),
    "kafka: a block holds several topics": Example(
        Definition("kafka", topics=3), (((_plain(2),),), ((_plain(3),),), ((_plain(2),),)), (RUN,)
    ),
    "webhook: an answer is lost, then refused with 401": Example(
        Definition("webhook", key_kept=True, records=2),
        (((_plain(5, keyed=False),),),),
        (_LOST, Event("run", answers=("401",) * 12), Event("edit", change=(("records", 3),)), RUN),
    ),
    "webhook: a condition that is added while a batch is on its way": Example(
        Definition("webhook", key_kept=True), (((_plain(3),),),), (_LOST, Event("edit", change=(("where", True),)), RUN)
    ),
    "webhook: records that are read again have the keys of their requests": Example(
        Definition("webhook", key_kept=True), (((_plain(7),),),), (RUN, Event("set_offsets", share=0.5, reread=True), RUN)
    ),
    "webhook: a record that is refused becomes a dead letter": Example(
        Definition("webhook", key_kept=True), (((_plain(2),),),), (Event("run", answers=("400",)),)
    ),
    **{f"{kind}: times beyond the year 9999": _far(kind) for kind in ("delta", "iceberg", "parquet", "kafka", "webhook")},
    "duckdb: bounded, and the first record is skipped": Example(
        _bounded(parse="fail", batch="skip"), (((Item("broken"), _plain(2)),),), (RUN, RUN)
    ),
    "duckdb: bounded, and the first records are lost": Example(
        _bounded(most=1), (((_plain(3),),),), (Event("run", batches=1), Event("lose", share=1.0), Event("decide"), RUN)
    ),
    "duckdb: bounded, and killed in the first batch": Example(
        _bounded(delivery="at_most_once", most=1), (((_plain(3),),),), (Event("run", fault="kill:collect.all:1"), RUN, RUN)
    ),
    "duckdb: SET OFFSETS back over what was skipped, with deletes": Example(
        Definition(conflict="replace", on_null="delete", most=1),
        (((_plain(1, 1), _plain(1, 2), Item("tombstone", key=1), _plain(1)),),),
        (Event("run", fault="kill:plan.frozen:1"), Event("set_offsets", share=0.5), Event("set_offsets", share=0.0), RUN),
    ),
    "duckdb: a mapping reads no member that cannot be a column": Example(
        Definition(mapping=True, parse="fail"), (((_plain(1), Item("broken", 9), Item("broken", 10)),),), (RUN,)
    ),
    "duckdb: WHERE is not true of a record without the mapped members": Example(
        Definition(mapping=True, parse="fail", where=True), (((_plain(2), Item("broken", 9), _plain(2)),),), (RUN,)
    ),
    "duckdb: a backfill may not read a row behind its tombstone": Example(
        Definition("duckdb", conflict="replace", on_null="delete"),
        (((_plain(4), *(Item("tombstone", key=key) for key in range(4))),),),
        (Event("run", fault="kill:plan.frozen:1"), Event("set_offsets", share=0.5), RUN, Event("backfill"), RUN),
    ),
    "duckdb: an expression counts what a backfill reads": Example(
        Definition(conflict="count", prepared="default"),
        (((_plain(7),),),),
        (Event("set_offsets", share=0.5), RUN, Event("backfill"), RUN),
    ),
    "duckdb: pieces of a range whose records are large": Example(
        Definition(type="DOUBLE"),
        (((Item("cells", len(TYPES["DOUBLE"])),),),),
        (RUN, Event("produce", items=(_plain(2),)), RUN),
        {"smallest_piece": 2, "cores": 2},
    ),
    "duckdb: one dead letter that a CHECK refuses": Example(
        Definition(prepared="check", constraint="dead_letter", typo=True),
        (((_plain(1), Item("lacking"), Item("violating"), Item("lacking")),),),
        (RUN, Event("edit", change=(("typo", False), ("mapping", True))), Event("retry")),
    ),
    "duckdb: another table that does not exist yet": Example(
        Definition(),
        (((_plain(3),),),),
        (RUN, Event("produce", items=(_plain(2),)), Event("edit", change=(("table", "mix_b"),)), RUN),
    ),
    "kafka: an infinite time": Example(Definition("kafka", _DAY), (((_plain(1), _cell(_DAY, '"infinity')),),), (RUN,)),
    "webhook: an infinite time": Example(
        Definition("webhook", "TIMESTAMP", key_kept=True), (((_plain(1), _cell("TIMESTAMP", '"-infinity')),),), (RUN,)
    ),
    "duckdb: a number of many digits": Example(
        Definition(type="DOUBLE"), (((*(Item("cell", at) for at in range(len(TYPES["DOUBLE"]))),),),), (RUN,)
    ),
    "webhook: BACKFILL of what was skipped": Example(
        Definition("webhook", key_kept=True),
        (((_plain(8),),),),
        (Event("run", fault="kill:plan.frozen:1"), Event("set_offsets", share=0.5), RUN, Event("backfill"), RUN),
    ),
    "kafka: BACKFILL into a topic with keys": Example(
        Definition("kafka", conflict="topic"),
        (((_plain(8),),),),
        (Event("run", fault="kill:plan.frozen:1"), Event("set_offsets", share=0.5), RUN, Event("backfill"), RUN),
    ),
    "duckdb: ON DUPLICATE KEY UPDATE of a column with a default": Example(
        Definition(conflict="count", prepared="default", mapping=True), (((_plain(1), _plain(4)),),), (RUN,)
    ),
    **{
        f"{kind}: a member's name with NUL in the first records": Example(
            Definition(kind), (((Item("broken", 10), _plain(1)),),), (RUN,)
        )
        for kind in ("duckdb", "delta", "kafka")
    },
    **{
        f"{kind}: records of two rows: {shape}": Example(
            Definition(kind, conflict=conflict, shape=shape),
            (((_plain(3), Item("cell", 5), Item("broken"), _plain(2)),),),
            (RUN, Event("produce", items=(_plain(2),)), RUN),
        )
        for kind, conflict, shape in (("duckdb", "", "explode"), ("duckdb", "replace", "array"), ("delta", "", "documents"))
    },
    "kafka: a batch outlives its transaction": Example(
        Definition("kafka", timeout=1), (((_plain(3),),),), (Event("run", fault="outlive:commit.before:2"), RUN)
    ),
    "mysql: times beyond the year 9999": _far("mysql"),
    **{
        f"{kind}: a time that the database lacks is skipped, and the row of its key stays": Example(
            Definition(kind, "TIMESTAMP", conflict="replace", parse="skip"),
            (((Item("cell", 0), _cell("TIMESTAMP", '"290309-12-22 (BC)')),),),
            (RUN,),
        )
        for kind in ("postgres", "mysql")
    },
    **{
        f"{kind}: lists with and without items, whose rows are numbered": Example(
            Definition(kind, conflict=conflict, shape="explode", outer=True, ordinality=True),
            (((_plain(2), *(Item("empty", at) for at in range(4)), Item("cell", 5), _plain(1)),),),
            (RUN, Event("edit", change=(("outer", False),)), Event("produce", items=(Item("empty"), _plain(1))), RUN),
        )
        for kind, conflict in (("duckdb", ""), ("duckdb", "ignore"))
    },
    **{
        f"duckdb: Connect's JSON, with schemas and without: {kind}": Example(
            Definition(type=kind, connect=True), (((_plain(1), Item("cells", len(TYPES[kind])), Item("broken", 4)),),), (RUN,)
        )
        for kind in ("BIGINT", "MAP(VARCHAR, BIGINT)", "DOUBLE")
    },
    **{
        f"duckdb: change events with schemas: {envelope}, {kind}": Example(
            Definition(type=kind, conflict="replace", on_null="delete", envelope=envelope, connect=True, single=True),
            (((*_EVENTS, Item("cells", len(TYPES[kind])), Item("truncated"), Item("broken", 4), *_EVENTS),),),
            (RUN,),
        )
        for envelope, kind in (("debezium", "BIGINT"), ("flat", "BIGINT"), ("debezium", "STRUCT(a BIGINT, b VARCHAR)"))
    },
    **{
        f"duckdb: times that are inferred: {style}": Example(
            Definition(stamps=style, schema="evolve"), (((_plain(3), Item("broken")), (_plain(7),)),), (RUN,), _SHARED
        )
        for style in ("zone", "local", "text")
    },
    **{
        f"{kind}: a whole Avro record, and a value out of its map": Example(
            Definition(kind, type, format="avro", schema="evolve"),
            (((_plain(1), *(Item("cell", at) for at in range(len(Definition(type=type, format="avro").cells))), _plain(2)),),),
            (RUN,),
        )
        for kind, type in (("duckdb", "BIGINT"), ("duckdb", "DOUBLE"), ("kafka", "STRUCT(a BIGINT, b VARCHAR)"))
    },
    **{
        f"{kind}: updates leave out values: {envelope}, {type}": Example(
            Definition(
                kind, type, conflict="replace", on_null="delete", envelope=envelope, connect=connect, schema="evolve", **more
            ),
            (((Item("cell", 0, 0), *_KEPT, Item("grown", key=0), *_KEPT, Item("moved", 1, 0), Item("kept", 0, 2)),),),
            (RUN, Event("produce", items=(Item("cell", 0, 0), *_KEPT, Item("deleted", key=2), Item("grown", key=2))), RUN),
        )
        for kind, envelope, type, connect, more in _LEAVING_OUT
    },
    **{
        f"{kind}: no row has the value that an update left out, of a column that the table does not have yet": Example(
            Definition(kind, "VARCHAR", conflict="replace", on_null="delete", envelope="debezium", schema="evolve"),
            (((Item("cell", 0, 0), Item("kept", _NEW_COLUMN, 1)),),),
            (RUN, Event("produce", items=(Item("grown", key=0), Item("deleted", key=1))), RUN),
        )
        for kind in ("duckdb", "delta", "postgres", "mysql")
    },
    "duckdb: an update leaves out what an earlier one of its batch has written": Example(
        Definition(type="VARCHAR", conflict="replace", on_null="delete", envelope="debezium", schema="evolve"),
        (((Item("cell", 0, 0),),),),
        (RUN, Event("produce", items=(Item("grown", key=0), Item("kept", 3, 0), Item("kept", 2, 0))), RUN),
    ),
    "duckdb: an expression reads a value that an update left out": Example(
        Definition(type="VARCHAR", conflict="replace", on_null="delete", envelope="debezium", where=True),
        (((Item("cell", 0, 0), Item("cell", 0, 0), Item("kept", _ID, 0)),),),
        (RUN,),
    ),
    "duckdb: a changed primary key of a row with a value that was left out": Example(
        Definition(type="VARCHAR", conflict="replace", on_null="delete", envelope="debezium", key_kept=True, single=True),
        (((Item("cell", 0, 0), Item("moved", FORCED, 0)),),),
        (RUN, Event("produce", items=(Item("truncated"),)), RUN, Event("set_offsets", share=0.0, reread=True), RUN),
    ),
    **{
        f"{kind}: a first batch without rows into a table with a key": Example(
            Definition(kind, conflict="replace"), (((Item("gap"),),),), (RUN, Event("produce", items=(_plain(7),)), RUN)
        )
        for kind in ("duckdb", "postgres", "mysql")
    },
}
