"""Source of a pipeline: topics with their brokers, files, or a table. Fields of design.md 4.2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from kpipe.definition.base import Model
from kpipe.definition.references import rotates
from kpipe.definition.sink_options import TOPIC
from kpipe.definition.source_files import Files
from kpipe.definition.source_http import SourceHttp
from kpipe.definition.source_lake import SourceLake
from kpipe.definition.source_table import SourceTable
from kpipe.topics import PART, unnamed

__all__ = [
    "EXTERNAL", "Files", "Offsets", "Source", "SourceHttp", "SourceLake", "SourceTable", "Timestamp", "addresses", "not_brokers",
]  # fmt: skip


class Timestamp(Model):
    """A moment in the topic: the first offset whose record has this timestamp or a later one.

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
Offsets = dict[_Number | Annotated[str, Field(pattern=f"^{PART}$")], _Number]


def not_brokers(text: str) -> str:
    """Return the first part of a list of brokers that is not an address, such as `<host>`; empty if all are valid."""
    parts = (part.strip() for part in text.split(","))
    return next((part for part in parts if re.search(r"[<>]|:$|^kafka:/", part, re.IGNORECASE)), "")


def addresses(brokers: str | list[str] | None) -> list[str]:
    """Return the addresses of brokers as `host:port`; a missing port is 9092."""
    parts = brokers.split(",") if isinstance(brokers, str) else brokers or ()
    hosts = [part.strip() for part in parts if part.strip()]
    return [host if re.search(r":\d+$", host) else f"{host}:9092" for host in hosts]


#: Fields that files and tables do not have; their `start` is always `earliest`.
#: Fields of sources other than topics.
EXTERNAL = ("files", "table", "lake", "http")
_SOURCES = ("topic", "topics", "topic_pattern", *EXTERNAL)
_OF_TOPICS = ("brokers", "end", "group", "config")


class Source(Model):
    """Topics with their brokers, files, or a table. Exactly one of `topic`, `topics`, `topic_pattern`, `files`, `table`,
    `lake`, `http`.

    Attributes:
        brokers: `host:port`, comma-separated or a list; a missing port is 9092. Topics need it.
        topic: name of a topic.
        topics: names of several topics.
        topic_pattern: a regular expression (Python's), searched in the names; internal topics never match.
        files: files that are written to a topic (`into.type: kafka`).
        table: a table whose rows are written to a topic.
        lake: a table of Delta Lake or Iceberg whose rows are written to a topic.
        http: a list that an HTTP API returns in pages, whose records are written to a topic.
        start: where the first run begins; partitions without an offset begin at earliest. So do partitions and topics that
            appear later.
        end: exclusive end of a bounded pipeline, fixed at the first plan; None: no end.
        config: librdkafka settings from a list, without secrets.
        credentials: librdkafka settings that are secrets; for files and tables, credentials of the store or
            server.
        group: a consumer group whose offsets follow the commits, for tools that monitor lag; never read back.
        on_data_loss: `fail` needs an operator if unread offsets were deleted; `record` marks them as lost and continues.
            For files: what happens if a file that can grow is removed.
    """

    brokers: str | list[str] | None = None
    topic: str | None = None
    topics: list[str] | None = None
    topic_pattern: str | None = None
    files: Files | None = None
    table: SourceTable | None = None
    lake: SourceLake | None = None
    http: SourceHttp | None = None
    start: Literal["earliest", "latest"] | Timestamp | Offsets = "earliest"
    end: Literal["latest"] | Timestamp | Offsets | None = None
    config: dict[str, str | int | float | bool] = Field(default_factory=dict)
    credentials: dict[str, str] = Field(default_factory=dict)
    group: str | None = Field(default=None, min_length=1)
    on_data_loss: Literal["fail", "record"] = "fail"

    @property
    def multi_topic(self) -> bool:
        """True if partitions are named with their topic, file or table: several topics are named, or a pattern selects them."""
        return not self.reads_topics or self.topic_pattern is not None or len(set(self.topics or ())) > 1

    @property
    def names(self) -> tuple[str, ...]:
        """Named topics, each once; none if a pattern selects them."""
        return tuple(dict.fromkeys([self.topic] if self.topic is not None else self.topics or ()))

    def matches(self, topic: str) -> bool:
        """Return whether records of a topic are read: it is named, or the pattern selects it, which no internal topic does."""
        pattern = self.topic_pattern if not topic.startswith("__") else None
        return topic in self.names or (pattern is not None and re.search(pattern, topic) is not None)

    def __str__(self) -> str:
        """Return the topics, files or table for messages."""
        if self.files is not None:
            return self.files.path
        if (other := self.table or self.lake or self.http) is not None:
            return other.name
        return f"/{self.topic_pattern}/" if self.topic_pattern is not None else ", ".join(self.names)

    @property
    def bootstrap(self) -> str:
        """Brokers in the format of Kafka's clients; a missing port is 9092. Empty for files."""
        return ",".join(addresses(self.brokers))

    @property
    def most_offsets(self) -> int | None:
        """Most offsets of a batch over all files; None for topics. Offsets of lines are bytes."""
        external = self.files or self.table or self.lake or self.http
        return external.most_offsets if external is not None else None

    @property
    def reads_topics(self) -> bool:
        """True if records are read from Kafka."""
        return all(getattr(self, name) is None for name in EXTERNAL)

    @property
    def rotates(self) -> bool:
        """True if a credential is a file or the output of a command, which may be replaced while a run lasts."""
        return rotates(self.credentials.values())

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and isinstance(given.get("files"), str):
            return {**given, "files": {"path": given["files"]}}
        return given

    @field_validator("brokers")
    @classmethod
    def _brokers(cls, value: str | list[str] | None) -> str | list[str] | None:
        if value is None:
            return None
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
            if isinstance(given, dict) and (wrong := unnamed(given, self.multi_topic)):
                msg = f"{name}: {wrong}"
                raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _one(self) -> Source:
        given = [name for name in _SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            msg = f"needs exactly one of {', '.join(_SOURCES)}; {' and '.join(given) or 'none'} given"
            raise ValueError(msg)
        if self.reads_topics and self.brokers is None:
            msg = "brokers is missing: topics need it"
            raise ValueError(msg)
        extra = [name for name in _OF_TOPICS if getattr(self, name) != _default(type(self), name)]
        if not self.reads_topics and (extra or self.start != "earliest"):
            msg = f"{(extra or ['start'])[0]} belongs to topics, not to {'files' if self.files is not None else 'tables'}"
            raise ValueError(msg)
        if self.lake is not None and self.on_data_loss == "record":
            msg = "on_data_loss: record belongs to topics and files: a lake's file that was removed may have been replaced"
            raise ValueError(msg)
        return self


def _default(model: type[Model], name: str) -> Any:
    return model.model_fields[name].get_default(call_default_factory=True)
