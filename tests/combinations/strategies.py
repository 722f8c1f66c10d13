"""Draws examples: a definition, topics for it, a course of events, and which of kpipe's constants are lowered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from kpipe.failpoints import POINTS
from tests.combinations import avro
from tests.combinations.definition import EVENTS, KEYED_LAKES, LAKES, TOPICS, Definition
from tests.combinations.example import FORCED, Event, Example, Item
from tests.combinations.sizes import CORES, NAMES, PIECE
from tests.combinations.stories import kept, story
from tests.combinations.values import BROKEN, EMPTY, FAR, TYPES

__all__ = ["APART", "DESTINATIONS", "examples"]

DESTINATIONS = ("duckdb", "kafka", "webhook", "delta", "iceberg", "parquet", "postgres", "mysql")
#: Needs another version of DuckDB: tests/resources/destinations/test_ducklake.py.
APART = ("ducklake",)
_DATABASES = ("duckdb", "postgres", "mysql", *APART)
#: The newer half of the way of a batch has most of what a crash can break.
_POINTS = tuple(point for point in POINTS if not point.startswith("tx."))
#: Types of column `x` that a server names as DuckDB does, for tables that the test makes.
_SAME = {"postgres": ("BIGINT", "BOOLEAN", "DATE", "TIMESTAMP", "UUID"), "mysql": ("BIGINT", "BOOLEAN", "DATE"), "ducklake": ()}
_Draw = Any


def _items(definition: Definition) -> st.SearchStrategy[Item]:
    cells = len(definition.cells)
    key, keyed, far = st.integers(0, 3), st.booleans(), st.sampled_from((None, None, *range(len(FAR))))
    # Batches of a few offsets read a few records: an example is to have some ten batches, not hundreds.
    sizes = (1, 2, 3, 7) if 0 < definition.most < 10 else (1, 2, 3, 7, 20, 60)
    plain = st.builds(Item, st.just("plain"), st.sampled_from(sizes), key, keyed)
    kinds = [plain, plain, st.builds(Item, st.just("gap"), st.integers(1, 3))]
    kinds.append(st.builds(Item, st.just("tombstone"), st.just(1), key, st.just(True) if definition.key_column else keyed))
    if definition.program in ("", "map"):
        kinds.append(st.builds(Item, st.just("cell"), st.integers(0, cells - 1), key, keyed))
        kinds.append(st.builds(Item, st.just("cell"), st.integers(0, cells - 1), key, keyed))
        kinds.append(st.builds(Item, st.just("cells"), st.just(cells), key, keyed))
        kinds.append(st.builds(Item, st.just("broken"), st.integers(0, len(BROKEN) - 1), key, keyed, far))
        kinds.append(st.builds(Item, st.just("cell"), st.just(0), key, keyed, far))
        kinds.append(st.builds(Item, st.just("null_key"), st.just(1), key, keyed))
    if definition.envelope:
        # ExtractNewRecordState passes messages of the source's log on as they are.
        left_out = {*(() if definition.single else ("truncated",)), *(("message",) if definition.envelope == "flat" else ())}
        events = [name for name in EVENTS if name not in left_out]
        kinds += [st.builds(Item, st.sampled_from(events), st.just(1), key, keyed)] * 2
        kinds.append(st.builds(Item, st.just("grown"), st.just(1), key, keyed))
        if definition.prepared != "check":
            kinds += [kept(definition, key)] * 3
        forced = (FORCED,) if definition.keeps("x") else ()
        kinds.append(st.builds(Item, st.just("moved"), st.sampled_from((0, 1, 2) * 6 + forced), key, st.just(True)))
    if definition.shape == "explode":
        kinds.append(st.builds(Item, st.just("empty"), st.integers(0, len(EMPTY) - 1), key, keyed))
    if definition.typo:
        kinds.append(st.builds(Item, st.just("lacking"), st.just(1), key, keyed))
    if definition.prepared == "check":
        kinds.append(st.builds(Item, st.just("violating"), st.just(1), key, keyed))
    return st.one_of(kinds)


@st.composite
def _layouts(draw: _Draw, definition: Definition) -> tuple[tuple[tuple[Item, ...], ...], ...]:
    logs = st.lists(_items(definition), max_size=5).map(tuple)
    if definition.single:
        return ((draw(logs),),)
    topics = [draw(st.lists(logs, min_size=1, max_size=5 if definition.topics == 1 else 2)) for _ in range(definition.topics)]
    return tuple(tuple(topic) for topic in topics)


@st.composite
def _definitions(draw: _Draw, destination: str, changes: bool) -> Definition:
    """One that kpipe takes; what a destination or a combination excludes is not drawn (docs/how-to)."""

    def maybe(*others: Any, usual: Any) -> Any:
        """The usual in two cases of three; it is what shrinking goes to."""
        return draw(st.sampled_from([usual] * 2 * len(others) + list(others)))

    database, aside = destination in _DATABASES, ("skip", "fail")
    fields: dict[str, Any] = {"destination": destination, "format": "json" if changes else maybe("avro", usual="json")}
    fields["type"] = draw(st.sampled_from(tuple(TYPES if fields["format"] == "json" else avro.SCHEMA_TYPES)))
    fields["topics"] = maybe(2, 3, usual=1)
    fields["parse"] = maybe(*aside, usual="dead_letter")
    fields["constraint"] = maybe(*aside, usual="dead_letter")
    fields["most"] = maybe(2, 10, 30, usual=0)
    fields["schema"] = maybe("evolve", usual="evolve" if fields["format"] == "avro" else "ignore")
    fields["where"] = maybe(True, usual=False)
    if destination == "webhook":
        fields |= {"records": maybe(2, 5, usual=1), "key_kept": True}
        return Definition(**fields)
    fields["batch"] = maybe("skip", usual="fail")
    fields["most_dead"] = draw(st.sampled_from((None,) * 9 + (2,)))
    fields["key_kept"] = maybe(True, usual=False)
    fields["delivery"] = maybe("at_most_once", usual="exactly_once")
    if database:
        fields["prepared"] = maybe("check", "default", usual="") if destination == "duckdb" else ""
        fields["conflict"] = draw(st.sampled_from(("", "", "", "replace", "replace", "ignore", "update", "count")))
        if fields["conflict"] == "count" and not (destination == "duckdb" or fields["type"] in _SAME[destination]):
            fields["conflict"] = "update"
        fields["prepared"] = "default" if fields["conflict"] == "count" else fields["prepared"]
    if destination in LAKES:
        fields["divided"] = maybe("g", "k", usual="")
    if destination in KEYED_LAKES:
        fields["conflict"] = draw(st.sampled_from(("", "", "replace", "ignore", "update")))
    if destination == "kafka":
        # An example takes seconds there, so that what is special about a topic is drawn in every second one.
        fields["conflict"], fields["timeout"] = draw(st.sampled_from(("", "topic"))), draw(st.sampled_from((0, 0, 1)))
        fields["partitions"] = maybe(2, 3, usual=1)
    if changes:
        fields["conflict"] = "replace"
    if fields.get("conflict"):
        fields["on_null"] = maybe("delete", usual="skip")
    else:
        fields["program"] = maybe("map", "filter", "flatmap", usual="")
        fields["delivery"] = maybe("at_least_once", "at_most_once", usual="exactly_once")
    if fields["format"] == "json" and fields.get("conflict") == "replace" and destination != "kafka":
        fields["envelope"] = draw(st.sampled_from(("debezium", "flat") if changes else ("", "debezium", "flat")))
    if fields.get("envelope"):
        fields["on_null"] = "delete"
        fields["schema"] = maybe("ignore", usual="evolve")
        fields["connect"] = maybe(True, usual=False)
        fields["single"] = fields["topics"] == 1 and draw(st.booleans())
        return Definition(**fields)
    if fields["format"] == "avro":
        return Definition(**{**fields, "program": "", "where": fields["where"]})
    if not fields.get("program"):
        # Dead letters that a CHECK refuses when they are tried again are rare enough without being drawn apart.
        fields["typo"] = maybe(fields.get("prepared") != "check", usual=fields.get("prepared") == "check")
        fields["mapping"] = maybe(True, usual=False)
        fields["shape"] = maybe("array", "documents", "explode", usual="")
        fields["outer"] = fields["shape"] == "explode" and draw(st.booleans())
        fields["ordinality"] = bool(fields["shape"]) and draw(st.booleans())
        fields["connect"] = maybe(not fields["shape"], usual=False)
        # A mapping reads no member that it does not name; a prepared default is read by one.
        if not any(fields[name] for name in ("mapping", "typo", "connect")) and fields.get("prepared") != "default":
            fields["stamps"] = maybe("zone", "local", "text", usual="")
            fields["schema"] = "evolve" if fields["stamps"] else fields["schema"]
    alone = ("conflict", "program", "prepared", "mapping", "typo", "stamps")
    if destination == "duckdb" and not any(fields.get(name) for name in alone):
        fields["also"] = maybe(True, usual=False)
    if fields.get("program") in ("filter", "flatmap"):
        fields |= {"where": False, "key_kept": False}
        # Each run of such a program starts Python.
        fields["arrow"] = maybe(fields["most"] in (0, 30) and fields.get("prepared") != "default", usual=False)
    return Definition(**fields)


def _size(item: Item) -> int:
    """How many offsets an item takes."""
    return item.number if item.kind in ("plain", "gap", "cells") else 3 if item.kind == "moved" else 1


def _bounds(draw: _Draw, layout: Sequence[Sequence[Sequence[Item]]]) -> tuple[Any, Any]:
    """Start and end as offsets: the start at the beginning of the log or in it, the end at its end."""
    which = draw(st.sampled_from(("none", "none", "none", "none", "both", "both", "end", "end", "latest", "start")))
    starts, ends = {}, {}
    for name, logs in zip(TOPICS, layout, strict=False):
        for number, items in enumerate(logs):
            size = sum(map(_size, items))
            starts[f"{name}:{number}"] = draw(st.sampled_from((0, 0, size // 2))) if which in ("both", "start") else 0
            ends[f"{name}:{number}"] = size
    start = starts if which in ("both", "start") else None
    return start, {"none": None, "start": None, "both": ends, "end": ends, "latest": "latest"}[which]


def _faults() -> st.SearchStrategy[str]:
    return st.builds(
        "{}:{}:{}".format, st.sampled_from(("kill", "raise")), st.sampled_from(_POINTS), st.sampled_from((1, 1, 1, 2, 3))
    )


@st.composite
def _events(draw: _Draw, definition: Definition) -> Event:
    destination, index = definition.destination, st.integers(0, 9)
    share = st.sampled_from((0.0, 0.25, 0.5, 0.75, 1.0))
    faults = [st.just(""), st.just(""), _faults()] + ([st.just("outlive:commit.before:1")] if definition.timeout else [])
    runs = st.builds(Event, st.just("run"), st.one_of(faults), batches=st.sampled_from((None, 1, 2)))
    kinds = [runs, runs, runs]
    items = st.lists(_items(definition), min_size=1, max_size=3).map(tuple)
    kinds.append(st.builds(Event, st.just("produce"), place=index, items=items))
    kinds.append(st.builds(Event, st.sampled_from(("hold", "release")), place=index, items=items))
    kinds.append(st.builds(Event, st.just("set_offsets"), place=index, share=share, reread=st.sampled_from((False, False, True))))
    kinds.append(st.just(Event("backfill")))
    kinds.append(st.builds(Event, st.just("lose"), place=index, share=share))
    kinds.append(st.just(Event("decide")))
    if destination == "webhook":
        answer = st.sampled_from(("", "lost", "cut", "reset", "500", "400", "401", "403", "404", "413", "429:0"))
        answered = st.builds(Event, st.just("run"), answers=st.lists(answer, min_size=1, max_size=6).map(tuple))
        kinds += [answered, answered, answered]
    if destination in ("duckdb", "postgres"):
        kinds += [st.just(Event("retry"))] * 2
    if destination in (*KEYED_LAKES, *APART):
        kinds += [st.just(Event("maintain"))] * 2
    if definition.keyed and destination in KEYED_LAKES:
        kinds.append(st.just(Event("forget")))
    changes = [(("where", True),), (("most", 10),), (("parse", "skip"),), (("constraint", "skip"),), (("batch", "skip"),)]
    changes += [(("table", "mix_b"),), (("delivery", "at_most_once"),), (("delivery", "exactly_once"),), (("key_kept", True),)]
    if definition.typo:
        changes += [(("typo", False),)] * 3
    if definition.shape == "explode":
        changes += [(("outer", not definition.outer),)]
    if destination == "webhook":
        changes = [(("where", True),), (("records", 3),), (("constraint", "skip"),), (("most", 10),), (("table", "mix_b"),)]
    if destination in LAKES:  # a lake's ledger is in its table: another one needs another pipeline
        changes.remove((("table", "mix_b"),))
    if definition.program in ("filter", "flatmap"):
        changes = [change for change in changes if change[0][0] not in ("where", "key_kept")]
    kinds.append(st.sampled_from(changes).map(lambda change: Event("edit", change=change)))
    event: Event = draw(st.one_of(kinds))
    return event


@st.composite
def examples(draw: _Draw, destination: str, changes: bool = False) -> Example:
    """A whole example for a destination; `changes`: only of change events."""
    definition: Definition = draw(_definitions(destination, changes))
    layout = draw(_layouts(definition))
    start, end = _bounds(draw, layout) if destination != "webhook" else (None, None)
    definition = Definition(**{**vars(definition), "start": start, "end": end})
    alone = _events(definition).map(lambda event: (event,))
    # Without a least size most examples would have no event, or one.
    least = draw(st.integers(0, 3))
    drawn = draw(st.lists(st.one_of(alone, story(definition)), min_size=least, max_size=4))
    events = [event for some in drawn for event in some]
    small = {name: draw(st.sampled_from(values)) for name, (_, _, values) in NAMES.items() if draw(st.booleans())}
    pieces = (2, 5, 5, 20_000) if destination == "kafka" else (2, 5, 20_000)
    small |= {PIECE: draw(st.sampled_from(pieces)), CORES: draw(st.sampled_from((1, 2, 3)))}
    return Example(definition, layout, tuple(events), small)
