"""Definition of a pipeline: every field of design.md 4.2, with its default and its limits.

One model serves all notations (YAML, Python, SQL). Credentials stay templates such as `{{ env('KAFKA_PASSWORD') }}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from kpipe.definition.base import Model
from kpipe.definition.formats import Format
from kpipe.definition.lookups import Lookup, check_names
from kpipe.definition.sink_options import TOPIC
from kpipe.definition.source import Offsets, Source, Timestamp, addresses, not_brokers
from kpipe.definition.target import NAME, Also, Into, declarations
from kpipe.definition.transaction_topic import transaction_topic
from kpipe.definition.transform import Transform
from kpipe.schema.columns import Columns

__all__ = [
    "Also", "BatchLimits", "CoordinateName", "Errors", "Format", "Into", "Offsets", "Pipeline", "Policy", "Shown", "Source",
    "Timestamp", "Transform", "not_brokers",
]  # fmt: skip

Policy = Literal["fail", "dead_letter", "skip"]
CoordinateName = Literal["partition", "offset", "timestamp", "topic", "key", "headers"]


#: Fields of `into` that rows of change events need: an update replaces the row of its key, a delete removes it.
_CHANGES = {"on_conflict": "replace", "on_null": "delete"}
_LONGEST_MS = 366 * 86_400_000  # a year: a longer wait is a mistake, and no clock can wait for any number


class BatchLimits(Model):
    """Limits of one batch, and its retries.

    Attributes:
        interval_ms: time from one batch to the next, only when caught up.
        max_offsets_per_partition: offsets (not records) of one partition in a batch.
        max_bytes_per_partition: bytes of one partition in a batch, by the mean size seen so far; None: no bound.
        max_partitions: partitions in a batch; None: all.
        max_retries: attempts after the first.
        retry_interval_ms: wait before the first of them; None: `interval_ms`, 100 at least.
        max_retry_interval_ms: longest wait; None: ten times the first.
        exponential: whether the wait doubles each time.
        cut: where batches end: at any offset, or with `transaction` where the source of Debezium's events committed.
    """

    interval_ms: int = Field(default=2500, ge=0, le=_LONGEST_MS)
    max_offsets_per_partition: int = Field(default=1_000_000, ge=1)
    max_bytes_per_partition: int | None = Field(default=None, ge=1)
    max_partitions: int | None = Field(default=None, ge=1)
    max_retries: int = Field(default=4, ge=0)
    retry_interval_ms: int | None = Field(default=None, ge=1, le=_LONGEST_MS)
    max_retry_interval_ms: int | None = Field(default=None, ge=1, le=_LONGEST_MS)
    exponential: bool = True
    cut: Literal["offset", "transaction"] = "offset"

    def backoff_s(self, failures: int) -> float:
        """Seconds before the next try, after so many failures."""
        first = (self.retry_interval_ms or max(100, self.interval_ms)) / 1000
        longest = self.max_retry_interval_ms / 1000 if self.max_retry_interval_ms is not None else 10 * first
        return float(min(first * 2 ** (failures - 1) if self.exponential else first, longest))


class Errors(Model):
    """Policies for records and batches. `fail` stops the run, `dead_letter` stores the record, `skip` filters it.

    Attributes:
        parse: a payload, or a program's row, that cannot become a row.
        transform: a record that cannot be passed to the program, or makes it fail.
        constraint: a record whose expression fails, or whose value does not fit its column without loss.
        duplicate_key: for `into.on_conflict: error`, a row whose key is in the table, or earlier in the batch.
        batch: `fail` stops the pipeline after the last retry; `skip` records the offsets that make the batch fail as skipped.
        max_dead_letters: the pipeline stops before it exceeds this number; None: no limit.
        topic: topic of the source's brokers that also receives each dead letter; None: no topic. Created if missing.
    """

    parse: Policy = "dead_letter"
    transform: Policy = "fail"
    constraint: Policy = "fail"
    duplicate_key: Policy = "fail"
    batch: Literal["fail", "skip"] = "fail"
    max_dead_letters: int | None = Field(default=None, ge=0)
    topic: str | None = None

    @field_validator("topic")
    @classmethod
    def _topic(cls, value: str | None) -> str | None:
        if value is not None and not TOPIC.fullmatch(value):
            msg = f"{value!r} is not a topic's name (1 to 249 of letters, digits, '.', '_', '-')"
            raise ValueError(msg)
        return value


def _type_of(kind: Any) -> Any:
    """Return the type of a format that is not validated yet."""
    return kind.get("type") if isinstance(kind, Mapping) else getattr(kind, "type", None)


def _of_changes(into: Any) -> Any:
    """Return `into` with what change events need, unless it is set."""
    if isinstance(into, Into):
        return into.model_copy(update={name: value for name, value in _CHANGES.items() if name not in into.model_fields_set})
    return {**_CHANGES, **into} if isinstance(into, Mapping) else into


def _coordinates() -> list[CoordinateName]:
    return ["partition", "offset", "timestamp"]


class Shown(Model):
    """Options of the table's display in Dagster's catalog.

    Attributes:
        group: group of the table's asset.
        owners: e-mail addresses, or `team:name`.
        tags: key to value.
        description: Markdown; generated from the definition by default.
    """

    group: str = Field(default="kpipe", pattern=r"^[A-Za-z0-9_]+$")
    owners: list[str] = Field(default_factory=list)
    tags: dict[str, str] = Field(default_factory=dict)
    description: str | None = None


class Pipeline(Model):
    """A pipeline: a source, transformations, and a table. Only name, source and into have no default.

    Attributes:
        name: a letter or `_`, then letters, digits and `_`, 63 at most; the ledger belongs to it.
        source: topics, brokers, and where to begin.
        batch: limits of a batch, and its retries.
        transform: a program between Kafka and the table.
        format: how a record's value becomes columns; `arrow`, and no other, with a program whose stdin is `arrow`.
        key_format: how a record's key becomes additional columns, with the fields of `format`.
        columns: types by column or `@variable`; others are those of the table, or inferred.
        lookups: reference tables for expressions, by name.
        select: `SELECT expression AS column, ... FROM records WHERE ...`, instead of `where` and `set`.
        where: an expression, evaluated before `set`; records for which it is not true are filtered.
        set: column to the expression that gives its value.
        metadata: Kafka's coordinates that are columns; `partition`, `offset` and `timestamp` always are.
        evolution: new fields in the records (`schema` in YAML): add columns, leave them out, or fail the batch.
        errors: policies for records and batches that fail.
        delivery: `at_most_once` may lose the records of a killed run, `at_least_once` may repeat them.
        into: the destination and its table.
        also: further tables for rows of the same records, in the same transaction.
        asset: display of the table in Dagster.
    """

    name: str
    source: Source
    batch: BatchLimits = BatchLimits()
    transform: Transform | None = None
    format: Format = Format()
    key_format: Format | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    lookups: dict[str, Lookup] = Field(default_factory=dict)
    select: str | None = None
    where: str | None = None
    set: dict[str, str] = Field(default_factory=dict)
    metadata: list[CoordinateName] = Field(default_factory=_coordinates)
    evolution: Literal["evolve", "ignore", "fail"] = Field(default="evolve", alias="schema")
    errors: Errors = Errors()
    delivery: Literal["exactly_once", "at_least_once", "at_most_once"] = "exactly_once"
    into: Into
    also: list[Also] = Field(default_factory=list)
    asset: Shown = Shown()

    @model_validator(mode="before")
    @classmethod
    def _implied(cls, data: Any) -> Any:
        """Set what a format implies: rows of change events have a key, and a program with Arrow's columns has one format."""
        if isinstance(data, Mapping) and _type_of(data.get("format")) == "debezium":
            return {**data, "into": _of_changes(data.get("into"))}
        if not isinstance(data, Mapping) or data.get("format") is not None:
            return data
        program = data.get("transform")
        stdin = program.get("stdin") if isinstance(program, Mapping) else getattr(program, "stdin", None)
        return {**data, "format": {"type": "arrow"}} if stdin == "arrow" else data

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            msg = f"{value!r} is not a pipeline's name (a letter or _, then letters, digits, _; 63 at most)"
            raise ValueError(msg)
        return value

    @field_validator("columns")
    @classmethod
    def _columns(cls, value: dict[str, str]) -> dict[str, str]:
        return declarations(value)

    @model_validator(mode="after")
    def _tables(self) -> Pipeline:
        names = [item.table.lower() for item in self.tables]
        if len(set(names)) < len(names):
            msg = f"also: table {next(name for name in names if names.count(name) > 1)} is named twice"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _changes(self) -> Pipeline:
        for name, expected in _CHANGES.items() if self.format.type == "debezium" else ():
            if (found := getattr(self.into, name)) != expected:
                msg = f"into.{name}: expected {expected} with format: debezium, found {found}; remove it"
                raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _no_loop(self) -> Pipeline:
        topic = self.errors.topic
        written = {} if topic is None else {"errors.topic": topic}
        if set(addresses(self.source.brokers)) & set(addresses(self.into.brokers)):  # other names: the destination compares ids
            written |= {f"into.{field}": name for field, name in self.into.topics(self.name).items()}
        for field, name in written.items():
            if self.source.matches(name):
                msg = f"{field}: expected a topic that the source does not read, found {name}: its records would come back"
                raise ValueError(msg)
        if topic == self.positions_topic:
            msg = f"errors.topic: {topic} contains the positions of errors.topic; use another name"
            raise ValueError(msg)
        return self

    @field_validator("lookups")
    @classmethod
    def _lookups(cls, value: dict[str, Lookup]) -> dict[str, Lookup]:
        check_names(value)
        return value

    @property
    def tables(self) -> tuple[Also, ...]:
        """Each table's own fields, in one form: those of `into`, then those of `also`."""
        shared = {name: getattr(self.into, name) for name in ("table", "key", "on_conflict", "update")}
        own = Also.model_construct(**shared, columns={}, select=self.select, where=self.where, set=self.set)
        return (own, *self.also)

    @property
    def coordinates(self) -> tuple[CoordinateName, ...]:
        """Kafka's coordinates that are columns. With several topics the topic is one: verification of rows needs it."""
        return (*self.metadata, *(("topic",) if self.source.multi_topic and "topic" not in self.metadata else ()))

    @property
    def transaction_topic(self) -> str | None:
        """The source's topic with its transactions, whose records give no rows; None: batches end at any offset."""
        return transaction_topic(self.source.names) if self.batch.cut == "transaction" else None

    @property
    def positions_topic(self) -> str:
        """The compacted topic with the positions of `errors.topic` (docs/adr/0068-dead-letters-in-a-topic.md)."""
        return f"__kpipe-dead-letters-{self.name}"

    @property
    def declared(self) -> Columns:
        """The table's declared columns; variables, which can be declared, too, are left out."""
        return Columns.of({name: kind for name, kind in self.columns.items() if not name.startswith("@")})

    def format_of(self, name: str) -> Format:
        """Return the key's format for a column or @variable that only the key lists, else the value's."""
        key, folded = self.key_format, name.lower()
        of_key = key is not None and folded in map(str.lower, key.listed or ())
        return key if key is not None and of_key and folded not in map(str.lower, self.format.listed or ()) else self.format

    def to_dict(self) -> dict[str, Any]:
        """Return the differences from the defaults, in the order of the model: the shortest equal definition."""
        fields = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        if self.transform is not None and self.transform.stdin == "arrow":  # `_implied` sets another default
            written = fields.pop("format", {})
            if written != {"type": "arrow"}:
                fields["format"] = {"type": self.format.type, **written}
        return fields
