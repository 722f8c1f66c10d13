"""An example: topics, a definition and a course of events, as plain values that print as a transcript."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.combinations import avro, changes, connect
from tests.combinations.definition import BYTES, EVENTS, GROWN, TOPICS, Definition, Meaning
from tests.combinations.log import Cluster, Log, Record, gaps
from tests.combinations.values import BROKEN, EMPTY, FAR, NAMELESS, STAMPS, broken, bytes_of, is_far, shaped

__all__ = ["FORCED", "Event", "Example", "Item", "build", "edited", "extend", "offsets_of", "place_of"]

FIRST_MS = 1_700_000_000_000
#: See `Item`.
FORCED = 8


@dataclass(frozen=True)
class Item:
    """One or more records of a partition.

    Attributes:
        kind: `plain` (`number` rows), `gap` (`number` offsets), `cell`, `cells` (`number` of them, each value once), `broken`,
            `tombstone`, `lacking`, `violating`, `null_key`, `empty` (a list without items), one of `EVENTS`, or of change
            events `grown` (a row with a new column), `kept` (an update that leaves out values; a row where its key has
            none, unless it is forced), `moved` (a changed primary key: three records).
        number: how many, or which cell, which broken payload, or which text of no list. Of `kept` which columns; from
            `FORCED` on it is forced. Of `moved` how far the key goes, from `FORCED` on with values left out.
        key: which key.
        keyed: whether the record has a key.
        far: which timestamp of `FAR`; None: an ordinary one.
    """

    kind: str
    number: int = 1
    key: int = 0
    keyed: bool = True
    far: int | None = None


@dataclass(frozen=True)
class Event:
    """Something that happens.

    Attributes:
        kind: `run`, `produce`, `hold` (produce in a transaction that stays open), `release`, `set_offsets`, `backfill`, `retry`,
            `lose`, `decide`, `edit`, `maintain` (a lake is compacted), `forget` (the index of keys is removed).
        fault: of a run: `kill:POINT:N` or `raise:POINT:N`.
        answers: of a run to a webhook: how the next requests are answered (tests/receiver.py).
        batches: of a run: the most.
        place: index of a partition.
        share: where in its log, from 0 to 1.
        reread: of `set_offsets`.
        items: of `produce` and `hold`.
        change: of `edit`: fields of the definition.
    """

    kind: str
    fault: str = ""
    answers: tuple[str, ...] = ()
    batches: int | None = None
    place: int = 0
    share: float = 1.0
    reread: bool = False
    items: tuple[Item, ...] = ()
    change: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        plain = Event(self.kind)
        told = {name: value for name, value in vars(self).items() if value != getattr(plain, name)}
        return f"{self.kind} {', '.join(f'{name}={value!r}' for name, value in told.items() if name != 'kind')}".strip()


@dataclass(frozen=True)
class Example:
    """Everything that an example is made of.

    Attributes:
        definition: as it is first.
        layout: items of each partition, by topic.
        events: in order.
        small: constants of kpipe that are lowered, by name (see sizes.py).
    """

    definition: Definition
    layout: tuple[tuple[tuple[Item, ...], ...], ...]
    events: tuple[Event, ...]
    small: Mapping[str, int] = field(default_factory=dict)

    def transcript(self) -> str:
        """For people: what was written, and what happened."""
        cluster = build(self)
        lines = [f"lowered constants: {dict(self.small)}"]
        for topic, number, log in cluster.places():
            lines.append(f"topic {topic}, partition {number}: {len(log.records)} offsets")
            lines += [f"  {at:>4} {_shown(record)}" for at, record in list(enumerate(log.records))[:40]]
        lines += [f"event {at}: {event}" for at, event in enumerate(self.events)]
        return "\n".join(lines)


def _shown(record: Record) -> str:
    if record.meaning is None:
        return "-"
    value = record.value if record.value is None or len(record.value) < 100 else record.value[:60] + b"..." + record.value[-30:]
    late = f" at {record.timestamp}" if record.meaning.far else ""
    return f"{record.key!r} {value!r}{late}"


def build(example: Example) -> Cluster:
    """The topics as they are first."""
    cluster = Cluster({name: [Log() for _ in logs] for name, logs in zip(TOPICS, example.layout, strict=False)})
    for name, logs in zip(TOPICS, example.layout, strict=False):
        for number, items in enumerate(logs):
            extend(cluster, name, number, items, example.definition)
    return cluster


def extend(cluster: Cluster, topic: str, partition: int, items: Sequence[Item], definition: Definition) -> None:
    """Append records; ids count on over all topics."""
    log = cluster.log(topic, partition)
    for item in items:
        if item.kind == "gap":
            log.records += gaps(item.number)
            continue
        if item.kind == "moved":
            for part in (0, 1, 2):
                used = sum(len(other.records) for _, _, other in cluster.places())
                log.records.append(_moved(item, part, used, definition))
            continue
        for at in range(item.number if item.kind in ("plain", "cells") else 1):
            used = sum(len(other.records) for _, _, other in cluster.places())
            one = replace(item, kind="cell", number=at) if item.kind == "cells" else item
            if item.kind == "kept" and item.number < FORCED and not _is_there(log, _name(item, used)):
                one = replace(item, kind="cell", number=0)
            log.records.append(_record(one, used, definition))


def _name(item: Item, number: int) -> str:
    return f"k{(item.key + (number if item.kind == 'plain' else 0)) % 4}"


def _is_there(log: Log, name: str) -> bool:
    """Whether the source's table has a row of the key, as far as one partition says."""
    for record in reversed(log.records):
        meaning = record.meaning
        if meaning is not None and (meaning.key == name or meaning.kind == "truncated"):
            return meaning.kind == "row"
    return False


def _moved(item: Item, part: int, number: int, definition: Definition) -> Record:
    """One of the records of a changed primary key: a delete of the old key, its tombstone, and a row of the new key."""
    old, new = item.key % 4, (item.key + 1 + item.number % 3) % 4
    one = (Item("deleted", key=old), Item("tombstone", key=old), Item("kept", item.number, key=new))[part]
    if part == 2 and item.number < FORCED:
        one = Item("cell", 0, key=new)
    made = _record(one, number, definition, "c")
    more = {0: ("deleted", new), 2: ("row", old)}.get(part)
    return replace(made, headers=changes.headers(more[0], f"k{more[1]}")) if more else made


def _record(item: Item, number: int, definition: Definition, operation: str = "") -> Record:
    cells = definition.cells
    name = _name(item, number)
    timestamp = FIRST_MS + number if item.far is None else FAR[item.far % len(FAR)]
    key = name.encode() if item.keyed else None
    far = is_far(timestamp)
    if definition.envelope:
        key = changes.key(definition, name) if item.keyed else None
    if item.kind in EVENTS:
        meaning = Meaning(None, name, None, item.kind, far, timestamp)
        return Record(key, changes.event(definition, item.kind, name), timestamp, meaning)
    if item.kind == "tombstone":
        return Record(key, None, timestamp, Meaning(None, name if item.keyed else None, None, "tombstone", far, timestamp))
    if item.kind == "broken":
        payload = BROKEN[item.number % len(BROKEN)]
        kind = "nameless" if payload in NAMELESS and definition.is_plain else "broken"
        meaning = Meaning(None, None, None, kind, far, timestamp)
        return Record(key, broken(payload, definition.shape), timestamp, meaning)
    cell = cells[item.number % len(cells)] if item.kind == "cell" else cells[0]
    cell = EMPTY[item.number % len(EMPTY)] if item.kind == "empty" else cell
    column = None if item.kind == "null_key" else name
    members = {"id": str(number), "k": "null" if column is None else f'"{column}"', "x": cell.text}
    members |= {"x": f"[{cell.text}, {cell.text}]"} if definition.shape == "explode" and item.kind != "empty" else {}
    members |= {"g": "100" if item.kind == "violating" else str(1 + number % 3 if definition.envelope else 1)}
    members |= {} if item.kind == "lacking" else {"m": "1"}
    members |= {"at": f'"{STAMPS[definition.stamps](number)[0]}"'} if definition.stamps else {}
    left_out = changes.LEFT_OUT[item.number % len(changes.LEFT_OUT)] if item.kind == "kept" else ()
    if definition.envelope:
        members |= {BYTES: json.dumps(base64.b64encode(bytes_of(number)).decode())}
        members |= {GROWN: json.dumps(f"e{number}")} if item.kind == "grown" or GROWN in left_out else {}
    members |= {column: changes.placeholder(column, definition.type, number) for column in left_out}
    members = {name: text for name, text in members.items() if text}
    value = ("{" + ",".join(f'"{member}":{text}' for member, text in members.items()) + "}").encode()
    value = shaped(value, definition.shape)
    kind = item.kind if item.kind in ("lacking", "violating", "empty") else "row"
    if definition.format == "avro":
        value = avro.encoded(definition.type, cell, number, column, int(members["g"]))
    if definition.envelope:
        value = changes.change(definition, number, cell, members, left_out, "u" if left_out and not operation else operation)
    elif definition.connect:
        value = connect.enveloped(definition.type, cell, members)
    meaning = Meaning(number, column, cell, kind, far, timestamp, frozenset(left_out), item.kind == "grown")
    return Record(key, value, timestamp, meaning)


def edited(definition: Definition, change: Sequence[tuple[str, Any]]) -> Definition:
    """The definition with other fields."""
    return replace(definition, **dict(change))


def place_of(cluster: Cluster, index: int) -> tuple[str, int, Log]:
    """A partition by a number of any size."""
    every = list(cluster.places())
    return every[index % len(every)]


def offsets_of(cluster: Cluster, share: float) -> Iterator[tuple[str, int]]:
    """Of every partition, the offset at that share of its log."""
    for topic, number, log in cluster.places():
        yield f"{topic}:{number}", round(len(log.records) * share)
