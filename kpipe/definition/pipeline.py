"""The definition of a pipeline: every field of design.md 4.2, with its default and its limits.

One model behind all notations (YAML, Python, SQL). It holds what the user wrote and no secret: credentials stay
templates such as `{{ env('KAFKA_PASSWORD') }}` until a client is made (resources/).
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from kpipe.definition.base import Model
from kpipe.definition.formats import Format
from kpipe.definition.lookups import Lookup, check_names
from kpipe.definition.sink_options import TOPIC
from kpipe.definition.target import NAME, Also, Into, declarations
from kpipe.schema.columns import Columns
from kpipe.topics import unnamed

__all__ = [
    "Also", "BatchLimits", "CoordinateName", "Errors", "Format", "Into", "Offsets", "Pipeline", "Policy", "Shown", "Source",
    "Timestamp", "Transform", "not_brokers",
]  # fmt: skip

Policy = Literal["fail", "dead_letter", "skip"]
CoordinateName = Literal["partition", "offset", "timestamp", "topic", "key", "headers"]


class Timestamp(Model):
    """A moment in the topic: the first offset whose record is not older.

    Attributes:
        timestamp: ISO 8601; without a zone it is UTC.
    """

    timestamp: datetime

    @property
    def ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, Kafka's unit."""
        moment = self.timestamp if self.timestamp.tzinfo else self.timestamp.replace(tzinfo=timezone.utc)
        return int(moment.timestamp() * 1000)


#: Offsets by partition: its number, or TOPIC:NUMBER where there are several topics.
_Number = Annotated[int, Field(ge=0)]
Offsets = dict[_Number | Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}:[0-9]{1,9}$")], _Number]


def not_brokers(text: str) -> str:
    """Return the first part of a list of brokers that is no address, such as a placeholder `<host>`; empty: there is none."""
    parts = (part.strip() for part in text.split(","))
    return next((part for part in parts if re.search(r"[<>]|:$|^kafka:/", part, re.IGNORECASE)), "")


class Source(Model):
    """What to read. Exactly one of `topic`, `topics`, `topic_pattern`.

    Attributes:
        brokers: `host:port`, comma-separated or a list.
        topic_pattern: a regular expression (Python's), looked for anywhere in the names; never those of internal topics.
        start: where partitions begin at the pipeline's first run: `earliest`, `latest`, a timestamp, or offsets by
            partition (others begin at earliest). Partitions that appear later, and topics that a pattern finds later, always
            begin at earliest.
        end: exclusive end of a bounded pipeline, fixed at the first plan; None reads for ever.
        config: librdkafka settings, allow-listed, no secrets.
        credentials: librdkafka settings that are secrets; templates, masked wherever they are shown.
        group: a consumer group whose offsets in Kafka follow the commits, for tools that watch lag; never read back.
        on_data_loss: `fail` needs an operator when offsets vanished from Kafka; `record` notes them as lost and goes on.
    """

    brokers: str | list[str]
    topic: str | None = None
    topics: list[str] | None = None
    topic_pattern: str | None = None
    start: Literal["earliest", "latest"] | Timestamp | Offsets = "earliest"
    end: Literal["latest"] | Timestamp | Offsets | None = None
    config: dict[str, str | int | float | bool] = Field(default_factory=dict)
    credentials: dict[str, str] = Field(default_factory=dict)
    group: str | None = Field(default=None, min_length=1)
    on_data_loss: Literal["fail", "record"] = "fail"

    @property
    def several(self) -> bool:
        """Whether partitions are told apart by their topic: several are named, or a pattern finds them."""
        return self.topic_pattern is not None or len(set(self.topics or ())) > 1

    @property
    def names(self) -> tuple[str, ...]:
        """Topics that are named, each once; none where a pattern finds them."""
        return tuple(dict.fromkeys([self.topic] if self.topic is not None else self.topics or ()))

    def __str__(self) -> str:
        """The topics, for people."""
        return f"/{self.topic_pattern}/" if self.topic_pattern is not None else ", ".join(self.names)

    @property
    def bootstrap(self) -> str:
        """Brokers as Kafka's clients take them; a missing port is 9092."""
        parts = self.brokers.split(",") if isinstance(self.brokers, str) else self.brokers
        hosts = [part.strip() for part in parts if part.strip()]
        return ",".join(host if re.search(r":\d+$", host) else f"{host}:9092" for host in hosts)

    @field_validator("brokers")
    @classmethod
    def _brokers(cls, value: str | list[str]) -> str | list[str]:
        text = value if isinstance(value, str) else ",".join(value)
        if not text.strip(" ,"):
            msg = "names no broker; write host:port"
            raise ValueError(msg)
        if wrong := not_brokers(text):
            msg = f"{wrong!r} is not a broker's address: expected host:port"
            raise ValueError(msg)
        return text  # one spelling, so that all notations give equal definitions

    @field_validator("topic", "topics")
    @classmethod
    def _topics(cls, value: str | list[str] | None) -> str | list[str] | None:
        for name in [value] if isinstance(value, str) else value or []:
            if not TOPIC.fullmatch(name):
                msg = f"{name!r} is not a topic's name (1 to 249 of letters, digits, '.', '_', '-')"
                raise ValueError(msg)
        return value

    @field_validator("topic_pattern")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            msg = f"{value!r} is not a regular expression: {error}"
            raise ValueError(msg) from error
        return value

    @model_validator(mode="after")
    def _parts(self) -> Source:
        for name, given in (("start", self.start), ("end", self.end)):
            if isinstance(given, dict) and (wrong := unnamed(given, self.several)):
                msg = f"{name}: {wrong}"
                raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _one(self) -> Source:
        given = [name for name in ("topic", "topics", "topic_pattern") if getattr(self, name) is not None]
        if len(given) != 1:
            msg = f"needs exactly one of topic, topics, topic_pattern; {' and '.join(given) or 'none'} given"
            raise ValueError(msg)
        return self


class BatchLimits(Model):
    """Bounds of one batch, and what happens when it fails.

    Attributes:
        interval_ms: time from one batch to the next, only when caught up.
        max_offsets_per_partition: offsets (not records) of one partition in a batch.
        max_bytes_per_partition: bytes of one partition in a batch, by the mean size seen so far; None: no bound.
        max_partitions: partitions in a batch; None: all.
        max_retries: tries after the first.
        retry_interval_ms: wait before the first of them; None: `interval_ms`, 100 at least.
        max_retry_interval_ms: longest wait; None: ten times the first.
        exponential: whether the wait doubles each time.
    """

    interval_ms: int = Field(default=2500, ge=0)
    max_offsets_per_partition: int = Field(default=1_000_000, ge=1)
    max_bytes_per_partition: int | None = Field(default=None, ge=1)
    max_partitions: int | None = Field(default=None, ge=1)
    max_retries: int = Field(default=4, ge=0)
    retry_interval_ms: int | None = Field(default=None, ge=1)
    max_retry_interval_ms: int | None = Field(default=None, ge=1)
    exponential: bool = True

    def backoff_s(self, failures: int) -> float:
        """Seconds before the next try, after so many failures."""
        first = (self.retry_interval_ms or max(100, self.interval_ms)) / 1000
        longest = self.max_retry_interval_ms / 1000 if self.max_retry_interval_ms is not None else 10 * first
        return float(min(first * 2 ** (failures - 1) if self.exponential else first, longest))


class Transform(Model):
    """A program that reads records on stdin and writes rows on stdout.

    Attributes:
        program: path; relative to the current folder, or inside the archive.
        archive: .tar.gz, .tgz or .zip that holds it.
        stdin: framing of records.
        mode: `map` one row for each record, `filter` at most one, `flatmap` any number.
        idle_timeout_s: longest time without progress while there is something to do.
        trial_timeout_s: the same while the record is searched that makes the program fail; None: as above.
        memory_mb: memory that the program and its processes may hold together, in MiB; None: no limit but the machine's.
        max_output_mb: what a `flatmap` program may write for one range of offsets, in MiB.
        env: names of variables that the program may see.
    """

    program: str
    archive: str | None = None
    args: list[str] = Field(default_factory=list)
    stdin: Literal["lines", "length-prefixed", "json"] = "lines"
    mode: Literal["map", "filter", "flatmap"] = "map"
    idle_timeout_s: float = Field(default=60, gt=0)
    trial_timeout_s: float | None = Field(default=None, gt=0)
    memory_mb: int | None = Field(default=None, ge=1)
    max_output_mb: int = Field(default=10240, ge=1)
    env: list[str] = Field(default_factory=list)


class Errors(Model):
    """What happens to a record that fails a stage, and to a batch that fails for good.

    Attributes:
        duplicate_key: for into.on_conflict: error, a row whose key is in the table, or came before.
        batch: `fail` stops the pipeline after the last retry; `skip` records the ranges of the batch as skipped and goes on.
        max_dead_letters: the pipeline stops before it holds more than these; None: no limit.
    """

    parse: Policy = "dead_letter"
    transform: Policy = "fail"
    constraint: Policy = "fail"
    duplicate_key: Policy = "fail"
    batch: Literal["fail", "skip"] = "fail"
    max_dead_letters: int | None = Field(default=None, ge=0)


def _coordinates() -> list[CoordinateName]:
    return ["partition", "offset", "timestamp"]


class Shown(Model):
    """How the table is shown in Dagster's catalog.

    Attributes:
        group: group of the table's asset.
        owners: e-mail addresses, or `team:name`.
        tags: key to value.
        description: Markdown; made from the definition by default.
    """

    group: str = Field(default="kpipe", pattern=r"^[A-Za-z0-9_]+$")
    owners: list[str] = Field(default_factory=list)
    tags: dict[str, str] = Field(default_factory=dict)
    description: str | None = None


class Pipeline(Model):
    """A pipeline: a source, what happens on the way, and a table. Only name, source and into have no default."""

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
        names = [self.into.table.lower(), *(item.table.lower() for item in self.also)]
        if len(set(names)) < len(names):
            msg = f"also: table {next(name for name in names if names.count(name) > 1)} is named twice"
            raise ValueError(msg)
        return self

    @field_validator("lookups")
    @classmethod
    def _lookups(cls, value: dict[str, Lookup]) -> dict[str, Lookup]:
        check_names(value)
        return value

    @property
    def coordinates(self) -> tuple[CoordinateName, ...]:
        """Kafka's coordinates that are columns. With several topics the topic is one: rows could not be proven without it."""
        return (*self.metadata, *(("topic",) if self.source.several and "topic" not in self.metadata else ()))

    @property
    def declared(self) -> Columns:
        """The declared columns of the table; variables, which may be declared beside them, left out."""
        return Columns.of({name: kind for name, kind in self.columns.items() if not name.startswith("@")})

    def format_of(self, name: str) -> Format:
        """Return the format of the key for a column or @variable that only the key lists, else that of the value."""
        key, folded = self.key_format, name.lower()
        of_key = key is not None and folded in map(str.lower, key.listed or ())
        return key if key is not None and of_key and folded not in map(str.lower, self.format.listed or ()) else self.format

    def to_dict(self) -> dict[str, Any]:
        """What differs from the defaults, in the order of the model: the shortest definition that means the same."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
