"""Judge what a pipeline has left. Shares no code with kpipe; reads the ledger's claims as an operator reads them.

Each finding is a sentence that begins with the rule it breaks:

    C1  rows: each record that was read, and must be a row, is one row for each reading, and nothing else is there
    C2  values: each column of a row holds what the record says
    C3  keys: of a keyed table the last write of each key, by partition and offset, and no row that was deleted
    C4  order: records of one source partition arrive in its order, where that is promised
    C5  dead letters: each is kept once for each reading, with the record's own bytes
    C6  counts: the history's numbers are those of the records in the range, and add up to its span
    C7  errors: a run ends without an error that the course of events does not explain; none is a raw exception
    C8  documents: what a topic or a receiver gets is JSON
    C9  progress: a run that ends by itself has read everything up to the last stable offset, or to the end that was set
    C10 verify: proven exactly when the rules above find nothing
    C11 offsets: no offset was read twice without a demand, and none is left out without a record of it
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from tests.combinations.definition import Definition
from tests.combinations.found import Found, Place, Row
from tests.combinations.truth import DELETE, FILTERED, LETTER, ROW, Kept, Reading, Truth, fates, keyed_state, values
from tests.combinations.values import ANY, FOREVER, NEVER, days

__all__ = ["judge", "tables_of"]


def judge(truth: Truth, definition: Definition, history: Sequence[Any], found: Found) -> list[str]:
    """Everything that is wrong with rows, dead letters and history."""
    readings = truth.readings(history)
    kept = Counter((letter.topic, letter.partition, letter.offset) for letter in found.letters)
    problems = [*found.problems, *_letters(truth, readings, kept, found)]
    problems += _counts(truth, history, kept, found)
    tables = sorted({name for reading in readings for name in tables_of(reading.definition)} | set(found.rows))
    if definition.destination == "webhook":
        tables = tables[:1]  # receivers are not told the table: it names receipts
    for table in tables:
        mine = [reading for reading in readings if len(tables) == 1 or table in tables_of(reading.definition)]
        rows = found.rows.get(table, [])
        if definition.keyed:
            problems += _keyed(table, mine, rows, kept)
        else:
            problems += _rows(table, mine, rows, kept, found)
        if definition.destination in ("kafka", "webhook"):
            problems += _order(mine, rows, any(entry.reread for entry in history))
    return problems


def tables_of(definition: Definition) -> list[str]:
    """Tables that the definition writes, the first one first."""
    return [definition.table, *([f"{definition.table}_also"] if definition.also else [])]


def _left_out(reading: Reading, table: str) -> bool:
    """Whether the first of several tables leaves the record out that the second takes."""
    definition = reading.definition
    return definition.also and definition.where and table == definition.table and not reading.meaning.selected


def _rows(table: str, readings: Iterable[Reading], rows: Sequence[Row], kept: Counter[Place], found: Found) -> list[str]:
    """C1 and C2, where every record is a row of its own."""
    problems = []
    by_place: dict[tuple[str | None, int | None, int | None, bool], list[Row]] = {}
    for row in rows:
        by_place.setdefault((row.topic, row.partition, row.offset, row.deleted), []).append(row)
    times = Counter(reading.place for reading in readings)
    multi_topic = any(reading.definition.topics > 1 for reading in readings)
    untraced = any(reading.definition.untraced for reading in readings)
    if untraced:
        return _untraced(readings, rows, kept)
    for place, reading in {reading.place: reading for reading in readings}.items():
        topic, partition, offset = place
        named = topic if multi_topic or any(row.topic is not None for row in rows) else None
        allowed = fates(reading.meaning, reading.definition)
        refused = place in found.refused
        mine = by_place.pop((named, partition, offset, DELETE in allowed), [])
        due = times[place] - kept[place] if allowed & {ROW, DELETE} else 0
        due = 0 if _left_out(reading, table) else due * _by_program(reading)
        loose = refused or FILTERED in allowed
        repeated = reading.definition.delivery == "at_least_once"
        # Read again, a record may be in a request with the same records as before, whose key the receiver knows.
        least = 0 if loose else min(due, 1) if reading.definition.destination == "webhook" else due
        if not least <= len(mine) <= (due if not repeated else max(due, len(mine))):
            problems.append(f"C1 {table}: {_named(place)} ({reading.meaning.kind}): {len(mine)} rows, {due} are due")
        if DELETE in allowed:
            continue
        for row in mine:
            problems += [f"C2 {table}: {_named(place)}: {wrong}" for wrong in _differs(row, reading)]
        each = Counter(row.values.get("o") for row in mine)
        if reading.definition.ordinality and len(mine) == due and len(set(each.values())) > 1:
            problems.append(f"C2 {table}: {_named(place)}: rows are numbered {sorted(map(str, each.elements()))}")
    if found.ahead:  # a receiver may have taken records of a batch that has not landed: each once
        by_place = {place: mine for place, mine in by_place.items() if len(mine) > 1}
    problems += [
        f"C1 {table}: {len(mine)} rows of no record that was read: {place}" for place, mine in list(by_place.items())[:5]
    ]
    return problems


def _by_program(reading: Reading) -> int:
    """How many rows a program of the test writes for a record."""
    if reading.definition.program == "filter" and reading.meaning.id is not None:
        return int(reading.meaning.id % 3 != 0)
    return reading.definition.rows(reading.meaning)


def _untraced(readings: Iterable[Reading], rows: Sequence[Row], kept: Counter[Place]) -> list[str]:
    """C1, where a program's rows cannot be traced to records: by their ids."""
    due: Counter[int] = Counter()
    for reading in readings:
        if ROW in fates(reading.meaning, reading.definition) and reading.meaning.id is not None:
            if reading.definition.program == "filter" and reading.meaning.id % 3 == 0:
                continue
            due[reading.meaning.id] += 2 if reading.definition.program == "flatmap" else 1
    have = Counter(row.values.get("id") for row in rows)
    wrong = [f"{id}: {have[id]} rows, {number} are due" for id, number in due.items() if have[id] != number]
    wrong += [f"{id}: not due" for id in have if id not in due]
    return [f"C1 ids of rows of a program: {item}" for item in wrong[:5]]


def _keyed(table: str, readings: Sequence[Reading], rows: Sequence[Row], kept: Counter[Place]) -> list[str]:
    """C3: the table is what writes of each key leave, one by one."""
    whole = keyed_state([reading for reading in readings if not _left_out(reading, table)], kept)
    state = whole.rows
    problems = [
        f"C3 {table}: {_named(row.last.place)} left out {', '.join(name for name, old in row.kept.items() if old is None)},"
        f" which no row of key {row.last.meaning.key!r} had, and its batch was committed"
        for row in whole.unknown[:3]
    ]
    have: dict[Any, list[Row]] = {}
    for row in rows:
        have.setdefault(row.values.get("k"), []).append(row)
    for key in sorted(set(state) | set(have), key=str):
        mine = have.get(key, [])
        if key not in state:
            problems.append(f"C3 {table}: key {key!r} is there, and was deleted or never written")
        elif len(mine) != 1:
            problems.append(f"C3 {table}: key {key!r}: {len(mine)} rows, 1 is due")
        else:
            row = state[key]
            problems += [f"C3 {table}: key {key!r}: {wrong}" for wrong in _differs(mine[0], row.values, row)]
            if row.values.definition.ordinality and mine[0].values.get("o") != row.number:
                problems.append(f"C3 {table}: key {key!r}: row {mine[0].values.get('o')} of the record, {row.number} is due")
            if "n" in mine[0].values and row.values.definition.conflict == "count" and mine[0].values["n"] != row.count:
                problems.append(f"C3 {table}: key {key!r}: n is {mine[0].values['n']}, {row.count} is due")
    return problems


def _differs(row: Row, reading: Reading, keyed: Kept | None = None) -> list[str]:
    """What of the row is not as the record says, but for values that it left out; coordinates are those of the last change."""
    wrong: list[str] = []
    last = keyed.last if keyed is not None else reading
    for name, wanted in values(reading.meaning, reading.definition).items():
        if name == "t" and name not in row.values:
            continue  # schema: ignore
        if keyed is not None and name in keyed.kept:
            older = keyed.kept[name]
            if older is None:
                continue  # a finding of its own
            wanted = values(older.meaning, older.definition).get(name, (None,))
        have = row.values.get(name)
        kind = reading.definition.kind(name)
        if not any(_same(have, want, kind, row.text) for want in wanted):
            wrong.append(f"column {name} ({kind}) is {_short(have)}, {' or '.join(map(_short, wanted))} is due")
    stamp = None if row.timestamp is None else row.timestamp // 1000
    topic, partition, offset = last.place
    due = last.meaning
    if row.offset is not None and (row.partition, row.offset) != (partition, offset):
        wrong.append(f"the row is of {row.partition}/{row.offset}, {partition}/{offset} is due")
    if row.topic is not None and row.topic != topic:
        wrong.append(f"the row names topic {row.topic}, {topic} is due")
    if not due.far and row.timestamp is not None and stamp != due.timestamp:
        wrong.append(f"its timestamp is {stamp}, {due.timestamp} is due")
    return wrong


def _same(have: Any, want: Any, kind: str, text: bool) -> bool:
    if want is ANY:
        return have is not None
    if have is None or want is None:
        return have is None and want is None
    if kind == "JSON":
        return bool((have if text or not isinstance(have, str) else _parsed(have)) == _parsed(want))
    if kind.startswith("MAP") and isinstance(have, list):  # Arrow's entries
        return bool(dict(have) == want)
    if isinstance(want, list | dict) and isinstance(have, str):  # a server that keeps them as JSON
        return bool(_parsed(have) == want)
    if text:
        have = _from_text(have, kind, want)
    if isinstance(want, float):
        return isinstance(have, float | int | Decimal) and (float(have) == want or (math.isnan(want) and math.isnan(have)))
    if kind.startswith("DECIMAL"):
        return Decimal(have) == want
    if isinstance(want, bool):
        return bool(have == want)
    return bool(str(have) == want) if kind == "UUID" else bool(have == want)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return text


def _from_text(have: Any, kind: str, want: Any) -> Any:
    """A value of a document as the column's own, by what docs/how-to/destinations/kafka-sink.md says of documents."""
    if kind.startswith(("TIMESTAMP", "DATE")) and isinstance(have, str):
        return _moment(have, kind, want)
    if kind == "BLOB":
        return base64.b64decode(have)
    if kind == "DOUBLE" and isinstance(have, str):
        return float(have)
    return have


_INSTANT = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?Z?")


def _moment(text: str, kind: str, want: Any) -> Any:
    """Microseconds, or days; what lies beyond four digits of a year is taken as due where the text says so."""
    if "inf" in text:
        infinite = -1 if text.startswith("-") else 1
        edge = (FOREVER, NEVER) if kind != "DATE" else (2**31 - 1, 1 - 2**31)
        return edge[0] if infinite > 0 else edge[1]
    parts = _INSTANT.fullmatch(text)
    if parts is None:
        return want
    year, month, day, *rest = parts.groups()
    number = days(int(year), int(month), int(day))  # Python's dates begin with the year 1
    hours, minutes, seconds = (int(item or 0) for item in rest[:3])
    micros = (number * 86_400 + hours * 3600 + minutes * 60 + seconds) * 1_000_000 + int((rest[3] or "0").ljust(6, "0"))
    return number if kind == "DATE" else micros


def _letters(truth: Truth, readings: Sequence[Reading], kept: Counter[Place], found: Found) -> list[str]:
    """C5."""
    problems = []
    times = Counter(reading.place for reading in readings)
    for place, reading in {reading.place: reading for reading in readings}.items():
        allowed = fates(reading.meaning, reading.definition) | ({LETTER} if place in found.refused else frozenset())
        most = times[place] if LETTER in allowed else 0
        least = times[place] if allowed == {LETTER} else 0
        if not allowed:
            problems.append(f"C5 {_named(place)} ({reading.meaning.kind}) was read, and must have stopped the run")
        elif not least <= kept[place] <= most:
            problems.append(f"C5 {_named(place)} ({reading.meaning.kind}): {kept[place]} dead letters, {least} to {most} are due")
    problems += [f"C5 a dead letter of no record that was read: {place}" for place in kept if place not in times][:5]
    for letter in found.letters:
        place = letter.topic, letter.partition, letter.offset
        if place in times:
            record = truth.cluster.log(*place[:2]).records[place[2]]
            if (letter.key, letter.value) != (record.key, record.value):
                have = _short((letter.key, letter.value))
                problems.append(f"C5 {_named(place)}: its dead letter holds {have}, not {_short((record.key, record.value))}")
    return problems


def _counts(truth: Truth, history: Sequence[Any], kept: Counter[Place], found: Found) -> list[str]:
    """C6 and C11."""
    problems = []
    read: dict[tuple[str, int], set[int]] = {}
    dead = Counter[tuple[str, int]]()
    for at, entry in enumerate(history):
        topic, number = source = entry.source.topic.name, entry.source.partition
        mine, span = read.setdefault(source, set()), set(range(entry.range.start, entry.range.end))
        if entry.reread:
            mine -= span
            continue
        definition, counts = truth.definition_at(at, entry.batch), entry.counts
        if mine & span and definition.delivery != "at_least_once":
            problems.append(f"C11 {topic}/{number}: offsets {min(mine & span)} to {max(mine & span)} were read twice")
        mine |= span
        records = [truth.cluster.log(topic, number).records[at] for at in sorted(span)]
        gaps = sum(record.meaning is None for record in records)
        where = f"{topic}/{number} [{entry.range.start}, {entry.range.end})"
        if counts.gaps != gaps or counts.messages != len(span) - gaps:
            problems.append(
                f"C6 {where}: {counts.messages} records and {counts.gaps} gaps, {len(span) - gaps} and {gaps} are there"
            )
        if not counts.given:
            settled = counts.rows + counts.deletes + counts.dead_letters + counts.filtered + counts.gaps
            if settled != len(span):
                problems.append(f"C6 {where}: the counts add up to {settled}, not to {len(span)}")
        dead[source] += counts.dead_letters
    for source, number in dead.items():
        have = sum(count for place, count in kept.items() if place[:2] == source)
        if have != number:
            problems.append(f"C6 {source[0]}/{source[1]}: {number} dead letters are counted, {have} are there")
    return problems


def _order(readings: Sequence[Reading], rows: Sequence[Row], again: bool) -> list[str]:
    """C4: of one source partition and one target partition in the order in which the ledger moved, and of one key by offset.

    A webhook promises the order of a key only. Where offsets were read again on demand, old records come again.
    """
    turn: dict[Place, list[int]] = {}
    key_of: dict[Place, tuple[bool, Any]] = {}
    for at, reading in enumerate(readings):
        turn.setdefault(reading.place, []).extend([at] * reading.definition.rows(reading.meaning))
        webhook = reading.definition.destination == "webhook"
        key_of[reading.place] = webhook or reading.definition.key_column, reading.key if webhook else reading.meaning.key
    multi_topic = len({reading.place[0] for reading in readings}) > 1
    first = next((reading.place[0] for reading in readings), "")
    last: dict[tuple[Any, ...], tuple[int, int]] = {}
    problems = []
    for row in rows:
        place = row.topic if row.topic is not None or multi_topic else first, row.partition, row.offset
        turns = turn.get(place, [])  # type: ignore[arg-type]
        if not turns or row.offset is None:
            continue
        keyed, key = key_of[place]  # type: ignore[index]
        at = turns.pop(0) if len(turns) > 1 else turns[0]
        lanes = [] if keyed and row.target < 0 else [((*place[:2], row.target), at)]
        lanes += [((*place[:2], "key", key), row.offset)] if keyed and not again else []
        for lane, mine in lanes:
            if lane in last and mine < last[lane][0]:
                of = f" of key {key!r}" if "key" in lane else ""
                problems.append(f"C4 {place[0]}/{row.partition}: offset {row.offset}{of} came behind offset {last[lane][1]}")
            last[lane] = mine, row.offset
    return problems[:5]


def _named(place: Place) -> str:
    return f"{place[0]}/{place[1]} offset {place[2]}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 120 else f"{text[:60]}...{text[-40:]}"
