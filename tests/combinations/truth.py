"""The rows, dead letters and order that a course of events must leave, from the records and the definitions alone.

The ledger's claim says which offsets were read; what must have become of each is decided here, by rules of the guides that
are written down again in a few lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from tests.combinations import avro
from tests.combinations.definition import BYTES, GROWN, LAKES, Definition, Meaning
from tests.combinations.log import Cluster
from tests.combinations.values import ANY, DEAD, STAMPS, breaks_check, bytes_of, is_refused

__all__ = ["Kept", "Reading", "Truth", "fates", "keyed_state", "values"]

Place = tuple[str, int, int]  # topic, partition, offset
ROW, LETTER, FILTERED, DELETE, TRUNCATE = "row", "dead letter", "filtered", "delete", "truncate"
#: What becomes of change events that are no rows (docs/how-to/change-streams.md); an unknown operation follows `errors.parse`.
_EVENTS = {
    "deleted": frozenset({DELETE}),
    "truncated": frozenset({TRUNCATE}),
    "message": frozenset({FILTERED}),
    "unknown": frozenset[str](),
}


def fates(meaning: Meaning, definition: Definition) -> frozenset[str]:
    """What may become of a record; one alternative, unless the destination decides."""
    if meaning.kind == "tombstone":
        if definition.on_null != "delete" or not definition.key_column:
            return frozenset({FILTERED})
        return frozenset({DELETE}) if meaning.key is not None else _aside(definition.parse)
    if meaning.kind in _EVENTS:
        return _EVENTS[meaning.kind] or _aside(definition.parse)
    if meaning.kind == "broken" or (meaning.kind == "nameless" and not definition.lenient):
        return _aside(definition.parse)
    if meaning.kind == "empty" and not definition.outer:
        return frozenset({FILTERED})
    if definition.where and "id" in meaning.left_out:  # an expression over a value that is not there
        return frozenset()
    wanted = meaning.cell.want if meaning.cell and "x" not in meaning.left_out else (None,)
    left_out = definition.where and not definition.also and not meaning.selected
    sound = frozenset({FILTERED}) if left_out else frozenset({ROW})
    lacking = definition.typo and not definition.program and meaning.kind == "lacking"
    if lacking or wanted == (DEAD,):
        return _aside(definition.parse)
    if definition.key_column and meaning.key is None and not left_out:
        return _aside(definition.parse)
    if _is_violating(meaning, definition) and not left_out:
        # A write that a later one of its key and batch replaces does not reach the table.
        return _aside(definition.constraint) | (sound if definition.keyed else frozenset())
    if definition.format == "avro" and meaning.cell and not avro.storable(meaning.cell):
        return _aside(definition.parse)
    aside = frozenset[str]().union(*(_aside(policy) for policy in (definition.parse, definition.constraint)))
    cell = None if "x" in meaning.left_out else meaning.cell
    refused = is_refused(definition.destination, definition.type, cell) if cell else False
    if refused and not left_out:
        return aside
    unsure = DEAD in wanted and refused is not False
    return sound | aside if unsure or (meaning.far and definition.destination != "duckdb") else sound


def _is_violating(meaning: Meaning, definition: Definition) -> bool:
    """Whether a row breaks a CHECK of the table."""
    if definition.prepared == "check" and meaning.kind == "violating":
        return True
    if meaning.cell is None or "x" in meaning.left_out:
        return False
    return breaks_check(definition.destination, definition.type, meaning.cell)


def _aside(policy: str) -> frozenset[str]:
    return {"dead_letter": frozenset({LETTER}), "skip": frozenset({FILTERED}), "fail": frozenset[str]()}[policy]


def values(meaning: Meaning, definition: Definition) -> dict[str, tuple[Any, ...]]:
    """What each column of the record's row may hold."""
    if meaning.cell is None:
        return dict.fromkeys(definition.columns, (None,))
    g = 100 if meaning.kind == "violating" else 1 + (meaning.id or 0) % 3 if definition.envelope else 1
    found: dict[str, tuple[Any, ...]] = {
        "id": (meaning.id,),
        "k": (meaning.key,),
        "x": tuple(want for want in meaning.cell.want if want is not DEAD) or (ANY,),
        "g": (g,),
        "m": (None,) if meaning.kind == "lacking" else (1,),
    }
    if definition.envelope:
        found[BYTES] = (bytes_of(meaning.id or 0),)
        if definition.schema == "evolve":
            found[GROWN] = (f"e{meaning.id}",) if meaning.grown else (None,)
    if definition.ordinality:
        found["o"] = tuple(range(1, definition.rows(meaning) + 1))
    if definition.stamps and meaning.id is not None:
        found["at"] = (STAMPS[definition.stamps](meaning.id)[1],)
    if definition.format == "avro" and meaning.id is not None:
        found["w"] = (avro.whole(meaning.cell, meaning.id, meaning.key, g),)
        found["t"] = (avro.TAG,)
    return found


@dataclass(frozen=True)
class Reading:
    """A record that was read, in the order of commits.

    Attributes:
        place: topic, partition, offset.
        meaning: the record.
        definition: as it was then, or when the dead letter was retried.
        batch: id of the batch.
        late: read by a backfill: older than what is there.
        key: of the record.
    """

    place: Place
    meaning: Meaning
    definition: Definition
    batch: str
    late: bool
    key: bytes | None = None


@dataclass
class Truth:
    """What was read, and with which definition.

    Attributes:
        cluster: the topics.
        changes: number of entries in the history when a definition began to count, and the definition.
        retried: number of entries whose dead letters were tried again, and the definition.
        begun: by id, batches that a webhook's receiver has begun to take before an edit, and the definition before it.
    """

    cluster: Cluster
    changes: list[tuple[int, Definition]] = field(default_factory=list)
    retried: list[tuple[int, Definition]] = field(default_factory=list)
    begun: dict[str, Definition] = field(default_factory=dict)

    def definition_at(self, entry: int, batch: str) -> Definition:
        """The definition with which that entry of the history was read, and whose policies counted when it was sent."""
        now = [definition for begin, definition in self.changes if begin <= entry][-1]
        return replace(self.begun[batch], constraint=now.constraint) if batch in self.begun else now

    def definitions(self, entry: int, batch: str) -> list[Definition]:
        """That one, and those with which its dead letters were retried since."""
        return [self.definition_at(entry, batch), *(definition for count, definition in self.retried if entry < count)]

    def readings(self, history: Sequence[Any]) -> list[Reading]:
        """Every record that the history claims to have read, batch by batch, in a batch by topic, partition and offset."""
        found: list[Reading] = []
        read: dict[tuple[str, int], set[int]] = {}
        batch: list[Reading] = []
        last = ""
        for at, entry in enumerate(history):
            source = entry.source.topic.name, entry.source.partition
            mine = read.setdefault(source, set())
            if entry.batch != last:
                found += sorted(batch, key=lambda reading: reading.place)
                batch, last = [], entry.batch
            if entry.reread:
                mine -= set(range(entry.range.start, entry.range.end))
                continue
            late = any(offset >= entry.range.end for offset in mine)
            mine |= set(range(entry.range.start, entry.range.end))
            batch += self._of(at, entry, late)
        return found + sorted(batch, key=lambda reading: reading.place)

    def _of(self, at: int, entry: Any, late: bool) -> Iterator[Reading]:
        topic, number = entry.source.topic.name, entry.source.partition
        records = self.cluster.log(topic, number).records
        for offset in range(entry.range.start, min(entry.range.end, len(records))):
            meaning = records[offset].meaning
            if meaning is None:
                continue
            definition, *again = self.definitions(at, entry.batch)
            for other in again:
                was, now = (
                    fates(meaning, definition),
                    fates(meaning, replace(other, parse="dead_letter", constraint="dead_letter")),
                )
                if LETTER in was and ROW not in was and now != was:  # a retry drops nothing, whatever the policies
                    definition = other
            yield Reading((topic, number, offset), meaning, definition, entry.batch, late, records[offset].key)


@dataclass(frozen=True)
class Kept:
    """A row of a keyed table.

    Attributes:
        values: the record that its values are of.
        last: the record that changed it last; its coordinates are the row's.
        count: what an expression has counted.
        number: of the row in the record that its values are of, from 1.
        kept: by column, the record that a value is of which later updates left out; None: no row had it.
    """

    values: Reading
    last: Reading
    count: int = 7
    number: int = 1
    kept: Mapping[str, Reading | None] = field(default_factory=dict)


@dataclass
class Keyed:
    """Rows by key, as writes of one key leave them: the last one by partition and offset counts.

    Attributes:
        rows: by key.
        deleted: by key, its deletes.
        unknown: rows that a batch has left with a value that no row had; their batch must have been refused.
    """

    rows: dict[str, Kept] = field(default_factory=dict)
    deleted: dict[str, list[Reading]] = field(default_factory=dict)
    unknown: list[Kept] = field(default_factory=list)

    def write(self, reading: Reading, number: int) -> None:
        """A row of a record with that key. One that a backfill reads changes nothing that came behind it, deletes among it.

        Expressions count each record, in the order of commits.
        """
        key = reading.meaning.key
        assert key is not None
        there = self.rows.get(key)
        if reading.definition.conflict != "count" and any(
            _older(reading, other) for other in (*self.deleted.get(key, ()), *([there.last] if there else ()))
        ):
            return
        conflict = reading.definition.conflict
        if there is None or conflict in ("replace", "update"):
            kept = {name: there.kept.get(name, there.values) if there else None for name in _columns_kept(reading)}
            self.rows[key] = Kept(reading, reading, there.count if there and conflict == "update" else 7, number, kept)
        elif conflict == "count":
            self.rows[key] = Kept(there.values, reading, there.count + 1, there.number)

    def delete(self, reading: Reading) -> None:
        """A tombstone of that key."""
        key = reading.meaning.key
        assert key is not None
        self.deleted.setdefault(key, []).append(reading)
        there = self.rows.get(key)
        if there is not None and not _older(reading, there.last):
            del self.rows[key]


def _columns_kept(reading: Reading) -> Iterator[str]:
    """Columns of the table whose values the record has left out."""
    return (name for name in reading.meaning.left_out if name in values(reading.meaning, reading.definition))


def _older(reading: Reading, there: Reading) -> bool:
    return reading.late and reading.place[:2] == there.place[:2] and reading.place[2] < there.place[2]


def keyed_state(readings: Sequence[Reading], letters: Mapping[Place, int]) -> Keyed:
    """The table after these readings; records that became dead letters are no writes.

    Neither is a row that breaks a CHECK: it is set aside, or a later write of its key and batch took its place.
    """
    state = Keyed()
    for _, batch in groupby(readings, lambda reading: reading.batch):
        for reading in batch:
            _apply(state, reading, letters)
        state.unknown += [row for row in state.rows.values() if None in row.kept.values()]
    return state


def _apply(state: Keyed, reading: Reading, letters: Mapping[Place, int]) -> None:
    found = fates(reading.meaning, reading.definition)
    if DELETE in found:
        state.delete(reading)
    elif TRUNCATE in found:
        state.rows.clear()
    elif ROW in found and not letters.get(reading.place) and not _is_violating(reading.meaning, reading.definition):
        for number in range(1, reading.definition.rows(reading.meaning) + 1):
            state.write(reading, number)


def is_lake(definition: Definition) -> bool:
    """Whether rows go to files in a lake."""
    return definition.destination in LAKES
