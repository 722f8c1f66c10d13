"""An example: topics, a definition and a course of events, as plain values that print as a transcript."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.combinations import avro, changes, connect
from tests.combinations.definition import EVENTS, TOPICS, Definition, Meaning
from tests.combinations.log import Cluster, Log, Record, gaps
from tests.combinations.values import BROKEN, EMPTY, FAR, NAMELESS, STAMPS, broken, is_far, shaped

__all__ = ["Event", "Example", "Item", "build", "edited", "extend", "offsets_of", "place_of"]

FIRST_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Item:
    """One or more records of a partition.

    Attributes:
        kind: `plain` (`number` rows), `gap` (`number` offsets), `cell`, `cells` (`number` of them, each value once), `broken`,
            `tombstone`, `lacking`, `violating`, `null_key`, `empty` (a list without items), or one of `EVENTS`.
        number: how many, or which cell, which broken payload, or which text of no list.
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
        for at in range(item.number if item.kind in ("plain", "cells") else 1):
            used = sum(len(other.records) for _, _, other in cluster.places())
            one = replace(item, kind="cell", number=at) if item.kind == "cells" else item
            log.records.append(_record(one, used, definition))


def _record(item: Item, number: int, definition: Definition) -> Record:
    cells = definition.cells
    name = f"k{(item.key + (number if item.kind == 'plain' else 0)) % 4}"
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
    members |= {"g": "100"} if item.kind == "violating" else {"g": "1"}
    members |= {} if item.kind == "lacking" else {"m": "1"}
    members |= {"at": f'"{STAMPS[definition.stamps](number)[0]}"'} if definition.stamps else {}
    members = {name: text for name, text in members.items() if text}
    value = ("{" + ",".join(f'"{member}":{text}' for member, text in members.items()) + "}").encode()
    value = shaped(value, definition.shape)
    kind = item.kind if item.kind in ("lacking", "violating", "empty") else "row"
    if definition.format == "avro":
        value = avro.encoded(definition.type, cell, number, column, int(members["g"]))
    if definition.envelope:
        value = changes.change(definition, number, cell, members)
    elif definition.connect:
        value = connect.enveloped(definition.type, cell, members)
    return Record(key, value, timestamp, Meaning(number, column, cell, kind, far, timestamp))


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
