"""What a pipeline of an example is made of, and what a record means to the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps
from typing import Any

from tests.combinations import avro
from tests.combinations.log import BROKERS
from tests.combinations.values import SHAPES, TYPES, Cell

__all__ = ["BYTES", "EVENTS", "GROWN", "KEYED_LAKES", "LAKES", "NAME", "TOPICS", "Definition", "Meaning"]

NAME = "mix"
TOPICS = ("m_a", "m_b", "m_c")
LAKES = ("delta", "iceberg", "parquet")
KEYED_LAKES = ("delta", "iceberg")
#: Change events that are no rows, by the kind of their item: `message` is one of the source's log.
EVENTS = ("deleted", "truncated", "message", "unknown")
#: Members that rows of change events have beside the others: bytes, and a column that the source has added.
BYTES, GROWN = "b", "e"


@dataclass(frozen=True)
class Meaning:
    """A record as the oracle judges it.

    Attributes:
        id: unique in the example; None of a tombstone, or of a payload that is broken or nameless.
        key: text of column `k`, or of the tombstone's key; None: there is none.
        cell: of column `x`.
        kind: `row`, `tombstone`, `broken`, `nameless` (its only member cannot be a column), `lacking` (no member `m`),
            `violating` (`g` breaks the table's CHECK), `empty` (its list has no items), or one of `EVENTS`.
        far: whether Kafka's timestamp lies beyond the year 9999.
        timestamp: Kafka's, in ms.
        left_out: columns whose value the update left out, because it did not change them.
        grown: whether the source's table has had column `GROWN`.
    """

    id: int | None
    key: str | None
    cell: Cell | None
    kind: str
    far: bool
    timestamp: int
    left_out: frozenset[str] = frozenset()
    grown: bool = False

    @property
    def selected(self) -> bool:
        """Whether `id % 3 <> 0` is true of it."""
        return self.id is not None and self.id % 3 != 0


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
        divided: column of `into.partition_by`; empty: the table has no partitions.
        partitions: of the target topic.
        timeout: into.transaction_timeout_s of a Kafka sink; 0: the default.
        format: `json` or `avro`.
        envelope: of change events (`format.type: debezium`): `debezium` or `flat`; empty: records are rows.
        single: whether the topic has one partition, which TRUNCATE needs.
        arrow: whether the program has `stdin: arrow`; only with `filter` and `flatmap`.
        shape: how a record holds its row twice: `array`, `documents`, or `explode` (a list in `x`); empty: it is one object.
        outer: whether a record without items is a row (`explode_outer`).
        ordinality: whether column `o` numbers the rows of a record.
        connect: whether records are Kafka Connect's JSON (`schemas_enable`), or change events have schemas.
        stamps: texts of a member that no column is declared for, with `infer_timestamps`: `zone`, `local` or `text`; empty:
            there is none.
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
    divided: str = ""
    partitions: int = 1
    timeout: int = 0
    format: str = "json"
    envelope: str = ""
    single: bool = False
    arrow: bool = False
    shape: str = ""
    outer: bool = False
    ordinality: bool = False
    connect: bool = False
    stamps: str = ""

    def rows(self, meaning: Meaning) -> int:
        """How many rows a record gives, if it gives any."""
        return 2 if (self.shape and meaning.kind != "empty") or self.program == "flatmap" else 1

    @property
    def is_plain(self) -> bool:
        """Whether a record is one JSON object with the row's members."""
        return not (self.shape or self.connect or self.envelope)

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

    def keeps(self, column: str) -> bool:
        """Whether updates are drawn that leave out the column's value.

        Servers keep no nested value (docs/how-to/change-streams.md). Where a value may break a CHECK, it depends on the batch
        whether a later write keeps it. An expression over a value that is not there stops a run.
        """
        if self.prepared == "check" or (column == "id" and self.where):
            return False
        nested = self.type in ("BIGINT[]", "STRUCT(a BIGINT, b VARCHAR)", "MAP(VARCHAR, BIGINT)")
        refused = {"postgres": nested, "mysql": nested or self.type == "JSON"}
        return column != "x" or not refused.get(self.destination, False)

    @property
    def columns(self) -> dict[str, str]:
        """Declared columns."""
        plain = {"id": "BIGINT", "k": "VARCHAR", "x": self.type, "g": "BIGINT", "m": "BIGINT"}
        plain |= {"o": "BIGINT"} if self.ordinality else {}
        plain |= {BYTES: "BLOB"} if self.envelope else {}
        return {**plain, "w": "JSON"} if self.format == "avro" else plain

    def kind(self, column: str) -> str:
        """Type of a column, declared or inferred."""
        inferred = {"zone": "TIMESTAMP WITH TIME ZONE", "local": "TIMESTAMP"}.get(self.stamps, "VARCHAR")
        return {**self.columns, "at": inferred}.get(column, "VARCHAR")

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
            out |= {"key": ["k"]}
        if self.key_column and not self.envelope:
            out |= {"on_null": self.on_null}
            if self.keyed:
                out["on_conflict"] = "update" if self.conflict == "count" else self.conflict
                out |= {"update": {"n": "n + 1"}} if self.conflict == "count" else {}
        if self.divided:
            out |= {"partition_by": [self.divided]}
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
            fields["metadata"] = ["partition", "offset", "timestamp", "key", *(["headers"] if self.envelope else [])]
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
        options: dict[str, Any] = dict(SHAPES[self.shape]) if self.shape else {}
        options |= {"explode_outer": True} if self.outer else {}
        options |= {"ordinality": "o"} if self.ordinality else {}
        options |= {"schemas_enable": True} if self.connect and not self.envelope else {}
        options |= {"infer_timestamps": True} if self.stamps else {}
        if options:
            fields["format"] = {**fields.get("format", {}), **options}
        if self.envelope:
            fields["format"] = {"type": "debezium", "envelope": self.envelope, "types": {BYTES: "bytes"}}
        if self.also:
            every = ", ".join(self.columns)
            fields["select"] = f"SELECT {every} FROM records" + (" WHERE id % 3 <> 0" if self.where else "")
            fields.pop("where", None)
            fields["also"] = [{"table": f"{self.table}_also", "select": f"SELECT {every} FROM records"}]
        return fields
