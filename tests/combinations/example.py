"""An example: topics, a definition and a course of events, as plain values that print as a transcript."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from json import dumps
from typing import Any

from tests.combinations import avro
from tests.combinations.log import BROKERS, Cluster, Log, Record, gaps
from tests.combinations.values import BROKEN, FAR, NAMELESS, SHAPES, TYPES, Cell, broken, is_far, shaped

__all__ = ["Definition", "Event", "Example", "Item", "Meaning", "build", "extend"]

NAME = "mix"
TOPICS = ("m_a", "m_b", "m_c")
FIRST_MS = 1_700_000_000_000
LAKES = ("delta", "iceberg", "parquet")
SERVERS = ("postgres", "mysql")


@dataclass(frozen=True)
class Meaning:
    """A record as the oracle judges it.

    Attributes:
        id: unique in the example; None of a tombstone, or of a payload that is broken or nameless.
        key: text of column `k`, or of the tombstone's key; None: there is none.
        cell: of column `x`.
        kind: `row`, `tombstone`, `broken`, `nameless` (its only member cannot be a column), `lacking` (no member `m`) or
            `violating` (`g` breaks the table's CHECK).
        far: whether Kafka's timestamp lies beyond the year 9999.
        timestamp: Kafka's, in ms.
    """

    id: int | None
    key: str | None
    cell: Cell | None
    kind: str
    far: bool
    timestamp: int

    @property
    def selected(self) -> bool:
        """Whether `id % 3 <> 0` is true of it."""
        return self.id is not None and self.id % 3 != 0


@dataclass(frozen=True)
class Item:
    """One or more records of a partition.

    Attributes:
        kind: `plain` (`number` rows), `gap` (`number` offsets), `cell`, `cells` (`number` of them, each value once), `broken`,
            `tombstone`, `lacking`, `violating`, `null_key`.
        number: how many, or which cell, or which broken payload.
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
class Definition:
    """What a pipeline is made of; `fields` gives what its YAML holds.

    Attributes:
        destination: `into.type`.
        type: of column `x`.
        topics: how many topics.
        conflict: `into.on_conflict`, `count` for an expression that counts; empty: rows have no key.
        on_null, delivery, schema, program: fields of the definition.
        parse, constraint, batch: errors policies.
        prepared: what is special about a table that is there before: `check`, `default`; empty: kpipe makes it.
        start, end: whether offsets are given: by topic and partition.
        where: whether every third row is filtered.
        mapping: whether columns are given by `format.mapping`.
        typo: whether the mapping names a member that some records lack.
        also: whether a second table gets every row, too.
        key_kept: `metadata` has the key.
        most: batch.max_offsets_per_partition; 0: the default.
        most_dead: errors.max_dead_letters.
        records: into.max_records of a webhook.
        table: into.table.
        partitions: of the target topic.
        timeout: into.transaction_timeout_s of a Kafka sink; 0: the default.
        format: `json` or `avro`.
        arrow: whether the program has `stdin: arrow`; only with `filter` and `flatmap`.
        shape: how a record holds its row twice: `array`, `documents`, or `explode` (a list in `x`); empty: it is one object.
    """

    destination: str = "duckdb"
    type: str = "BIGINT"
    topics: int = 1
    conflict: str = ""
    on_null: str = "skip"
    delivery: str = "exactly_once"
    schema: str = "ignore"
    program: str = ""
    parse: str = "dead_letter"
    constraint: str = "fail"
    batch: str = "fail"
    prepared: str = ""
    start: Mapping[str, int] | None = None
    end: Mapping[str, int] | str | None = None
    where: bool = False
    typo: bool = False
    mapping: bool = False
    also: bool = False
    key_kept: bool = False
    most: int = 0
    most_dead: int | None = None
    records: int = 1
    table: str = "mix"
    partitions: int = 1
    timeout: int = 0
    format: str = "json"
    arrow: bool = False
    shape: str = ""

    @property
    def rows(self) -> int:
        """How many rows a record gives."""
        return 2 if self.shape or self.program == "flatmap" else 1

    @property
    def untraced(self) -> bool:
        """Whether rows have no offset."""
        return self.program in ("filter", "flatmap") and not self.arrow

    @property
    def keyed(self) -> bool:
        """Whether rows of one key replace each other in the table, or delete each other."""
        return bool(self.conflict) and self.destination not in ("kafka", "webhook")

    @property
    def lenient(self) -> bool:
        """Whether a record may lack each column's member: the mapping reads no others."""
        return self.format != "avro" and (self.mapping or self.prepared == "default") and not self.typo

    @property
    def key_column(self) -> bool:
        """Whether `into.key` is given."""
        return bool(self.conflict)

    @property
    def columns(self) -> dict[str, str]:
        """Declared columns."""
        plain = {"id": "BIGINT", "k": "VARCHAR", "x": self.type, "g": "BIGINT", "m": "BIGINT"}
        return {**plain, "w": "JSON"} if self.format == "avro" else plain

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Values that column `x` is tried with."""
        return avro.cells(self.type) if self.format == "avro" else TYPES[self.type]

    def fields(self, into: Mapping[str, Any], program: str = "") -> dict[str, Any]:
        """The definition, with what depends on the machine: addresses and paths."""
        multi_topic = self.topics > 1

        def offsets(given: Any) -> Any:
            if not isinstance(given, dict):
                return given
            return {name if multi_topic else int(name.rpartition(":")[2]): at for name, at in given.items()}

        source: dict[str, Any] = {"brokers": BROKERS}
        source |= {"topics": list(TOPICS[: self.topics])} if multi_topic else {"topic": TOPICS[0]}
        source |= {"start": offsets(self.start)} if self.start is not None else {}
        source |= {"end": offsets(self.end)} if self.end is not None else {}
        batch = {"interval_ms": 0, "retry_interval_ms": 1, "max_retries": 2}
        out = {"type": self.destination, "table": self.table, **into}
        if self.key_column:
            out |= {"key": ["k"], "on_null": self.on_null}
            if self.keyed:
                out["on_conflict"] = "update" if self.conflict == "count" else self.conflict
                out |= {"update": {"n": "n + 1"}} if self.conflict == "count" else {}
        if self.destination == "webhook":
            out |= {"max_records": self.records}
        if self.timeout:
            out |= {"transaction_timeout_s": self.timeout}
        fields: dict[str, Any] = {
            "name": NAME,
            "source": source,
            "batch": {**batch, **({"max_offsets_per_partition": self.most} if self.most else {})},
            "columns": self.columns,
            "schema": self.schema,
            "errors": {"parse": self.parse, "constraint": self.constraint, "batch": self.batch,
                       "max_dead_letters": self.most_dead, "transform": "fail"},
            "delivery": self.delivery,
            "into": out,
        }  # fmt: skip
        if self.key_kept:
            fields["metadata"] = ["partition", "offset", "timestamp", "key"]
        if self.where:
            fields["where"] = "id % 3 <> 0"
        if self.program:
            fields["transform"] = {"program": program, "mode": self.program, **({"stdin": "arrow"} if self.arrow else {})}
        if self.format == "avro":
            named = {name: name for name in ("id", "k", "x", "g", "m")}
            fields["format"] = {"type": "avro", "schema": dumps(avro.schema(self.type)), "mapping": {**named, **avro.MAPPING}}
        elif self.lenient or self.typo:
            lenient = {name: {"path": name, "default": None} for name in self.columns}
            fields["format"] = {"mapping": {**lenient, **({"m": "m"} if self.typo else {})}}
        if self.shape:
            fields["format"] = {**fields.get("format", {}), **SHAPES[self.shape]}
        if self.also:
            every = ", ".join(self.columns)
            fields["select"] = f"SELECT {every} FROM records" + (" WHERE id % 3 <> 0" if self.where else "")
            fields.pop("where", None)
            fields["also"] = [{"table": f"{self.table}_also", "select": f"SELECT {every} FROM records"}]
        return fields


@dataclass(frozen=True)
class Event:
    """Something that happens.

    Attributes:
        kind: `run`, `produce`, `hold` (produce in a transaction that stays open), `release`, `set_offsets`, `backfill`, `retry`,
            `lose`, `decide`, `edit`.
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
    if item.kind == "tombstone":
        return Record(key, None, timestamp, Meaning(None, name if item.keyed else None, None, "tombstone", far, timestamp))
    if item.kind == "broken":
        payload = BROKEN[item.number % len(BROKEN)]
        kind = "nameless" if payload in NAMELESS and not definition.shape else "broken"
        meaning = Meaning(None, None, None, kind, far, timestamp)
        return Record(key, broken(payload, definition.shape), timestamp, meaning)
    cell = cells[item.number % len(cells)] if item.kind == "cell" else cells[0]
    column = None if item.kind == "null_key" else name
    members = {"id": str(number), "k": "null" if column is None else f'"{column}"', "x": cell.text}
    members |= {"x": f"[{cell.text}, {cell.text}]"} if definition.shape == "explode" else {}
    members |= {"g": "100"} if item.kind == "violating" else {"g": "1"}
    members |= {} if item.kind == "lacking" else {"m": "1"}
    value = ("{" + ",".join(f'"{member}":{text}' for member, text in members.items()) + "}").encode()
    value = shaped(value, definition.shape)
    kind = item.kind if item.kind in ("lacking", "violating") else "row"
    if definition.format == "avro":
        value = avro.encoded(definition.type, cell, number, column, int(members["g"]))
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
