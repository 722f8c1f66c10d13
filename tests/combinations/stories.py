"""Courses of events that belong together: what an incident, a repair or an edit looks like in practice.

Drawn one by one, events that only matter in a row would seldom meet. A story draws its own parts, and other events come before,
behind and between stories.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.combinations.changes import LEFT_OUT
from tests.combinations.definition import GROWN, KEYED_LAKES, LAKES, Definition
from tests.combinations.example import FORCED, Event, Item
from tests.combinations.values import DEAD

__all__ = ["kept", "story"]

_Draw = Any
_RUN = Event("run")
_WHERE = st.sampled_from((0.0, 0.25, 0.5, 0.75))
_PLACE = st.integers(0, 4)


def story(definition: Definition) -> st.SearchStrategy[tuple[Event, ...]]:
    """One that the definition can meet."""
    found = [_back(), _one_batch(definition), *([_one_batch(definition)] * 3 if definition.timeout else [])]
    if definition.destination == "webhook":
        return st.one_of(_doubt(), _doubt(), _back())
    if definition.typo and definition.destination in ("duckdb", "postgres"):
        found += [_mended(definition)] * (4 if definition.prepared else 2)
    if definition.end is not None:
        found += [_lost(), _lost()]
    if definition.destination not in LAKES:
        found += [_moved()] * (1 if definition.prepared else 2)
    if definition.on_null == "delete" or definition.conflict == "topic":
        found += [_back()] * 2
    if definition.on_null == "delete":
        found += [_deleted()] * 2
    if definition.envelope and definition.prepared != "check":
        found += [_left_out(definition)] * 4
    return st.one_of(found)


def kept(definition: Definition, key: st.SearchStrategy[int]) -> st.SearchStrategy[Item]:
    """Updates that leave out values, now and then without a row of their key."""
    numbers = [at for at, names in enumerate(LEFT_OUT) if all(map(definition.keeps, names))]
    forced = [FORCED + at for at in numbers if at < 2 or GROWN in LEFT_OUT[at]]
    return st.builds(Item, st.just("kept"), st.sampled_from([*numbers * 6, *forced]), key, st.booleans())


@st.composite
def _left_out(draw: _Draw, definition: Definition) -> tuple[Event, ...]:
    """Updates of one key leave out values, with faults, deletes, other keys and second readings between them."""
    place, key = draw(_PLACE), draw(st.integers(0, 3))
    same = st.just(key)
    sound = [at for at, cell in enumerate(definition.cells) if DEAD not in cell.want]
    others = [Item("deleted", key=key), Item("grown", key=key), *(Item("cell", at, key) for at in sound[:4])]
    others += [Item("moved", 0, key), Item("moved", 0, (key + 3) % 4)]  # away from the key, and to it
    others += [Item("truncated")] if definition.single else []
    items = st.lists(st.one_of(kept(definition, same), kept(definition, same), st.sampled_from(others)), min_size=1, max_size=4)
    points = ("collect.all", "plan.frozen", "commit.before", "commit.after")
    again = Event("set_offsets", place=place, share=draw(_WHERE), reread=True)
    pauses: list[tuple[Event, ...]] = [(), (_RUN,), (Event("run", batches=1),), (_RUN, again)]
    pauses += [(Event("run", fault=f"kill:{draw(st.sampled_from(points))}:1"),)]
    pauses += [(_RUN, Event("maintain")), (_RUN, Event("forget"))] if definition.destination in KEYED_LAKES else []
    pause = st.sampled_from(pauses)
    whole = st.sampled_from((Item("grown", key=key), *(Item("cell", at, key) for at in sound)))
    first = Event("produce", place=place, items=(draw(whole),))
    later = (Event("produce", place=place, items=tuple(draw(items))) for _ in range(2))
    return first, *draw(pause), next(later), *draw(pause), next(later), _RUN


@st.composite
def _back(draw: _Draw) -> tuple[Event, ...]:
    """Offsets are skipped, and read later."""
    place, to, back = draw(_PLACE), draw(_WHERE.filter(bool)), draw(_WHERE)
    begun = Event("run", fault="kill:plan.frozen:1") if draw(st.booleans()) else Event("run", batches=1)
    late = draw(st.sampled_from((Event("backfill"), Event("set_offsets", place=place, share=back * to))))
    between = (_RUN,) if draw(st.booleans()) else ()
    return begun, Event("set_offsets", place=place, share=to), *between, late, _RUN


@st.composite
def _deleted(draw: _Draw) -> tuple[Event, ...]:
    """A record is skipped, its key is deleted by a later one, and then the skipped one is read."""
    place, key = draw(_PLACE), draw(st.integers(0, 3))
    row = Event("produce", place=place, items=(Item("cell", 0, key),))  # the keys of `plain` records go round
    gone = Event("produce", place=place, items=(Item("tombstone", key=key),))
    late = draw(st.sampled_from((Event("backfill"), Event("set_offsets", place=place, share=0.0))))
    return Event("run", batches=1), row, Event("set_offsets", place=place, share=1.0), gone, _RUN, late, _RUN


@st.composite
def _one_batch(draw: _Draw, definition: Definition) -> tuple[Event, ...]:
    """A run ends, or is killed, in its first batch; others follow."""
    point = draw(st.sampled_from(("collect.all", "plan.frozen", "commit.before", "commit.after")))
    if definition.timeout and draw(st.sampled_from((True, True, True, False))):
        return Event("run", fault="outlive:commit.before:" + draw(st.sampled_from("123"))), _RUN
    return draw(st.sampled_from((Event("run", batches=1), Event("run", fault=f"kill:{point}:1")))), _RUN, _RUN


@st.composite
def _doubt(draw: _Draw) -> tuple[Event, ...]:
    """An answer is lost, later ones refuse, and the definition is edited before it goes on."""
    first = Event("run", answers=(draw(st.sampled_from(("lost", "cut"))), *["500"] * 12))
    refused = Event("run", answers=(draw(st.sampled_from(("401", "403", "404"))),) * 12)
    edit = draw(st.sampled_from((("records", 3), ("records", 2), ("most", 10), ("where", True), ("table", "mix_b"))))
    more = Event("produce", place=draw(_PLACE), items=(Item("plain", draw(st.integers(1, 5))),))
    parts = [part for part in (refused, Event("edit", change=(edit,)), more) if draw(st.sampled_from((True, True, False)))]
    return first, *parts, _RUN


@st.composite
def _mended(draw: _Draw, definition: Definition) -> tuple[Event, ...]:
    """The mapping named a member that records lack; it is corrected, and their dead letters are tried again."""
    kinds = ["lacking", "lacking", *(["violating", "violating"] if definition.prepared == "check" else [])]
    items = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
    wrong = Event("produce", place=draw(_PLACE), items=tuple(Item(kind) for kind in items))
    return wrong, _RUN, Event("edit", change=(("typo", False), ("mapping", True))), Event("retry")


@st.composite
def _lost(draw: _Draw) -> tuple[Event, ...]:
    """Retention takes records that have not been read, and an operator accepts it."""
    share = draw(st.sampled_from((0.25, 0.5, 1.0)))
    begun = draw(st.sampled_from((Event("run", batches=1), Event("run", fault="kill:collect.all:1"))))
    return begun, Event("lose", place=draw(_PLACE), share=share), Event("decide"), _RUN


@st.composite
def _moved(draw: _Draw) -> tuple[Event, ...]:
    """Rows go to another table from some time on."""
    more = Event("produce", place=draw(_PLACE), items=(Item("plain", draw(st.integers(1, 3))),))
    return _RUN, Event("edit", change=(("table", "mix_b"),)), more, _RUN
