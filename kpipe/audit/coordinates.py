"""Find the columns of a table that contain Kafka's partition and offset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kpipe.errors import InvalidPipeline

__all__ = ["Column", "Coordinates", "Fields", "find_coordinates"]

#: Columns of a table, each with the fields of its struct; None: not a struct.
Fields = Mapping[str, Sequence[str] | None]

# Names of partition, offset and topic in the tables of known loaders.
_FLAT = (
    ("_kafka_partition", "_kafka_offset", "_kafka_topic"),  # kpipe, Spark programs
    ("__kafka_partition", "__kafka_offset", "__kafka_topic"),
    ("kafka_partition", "kafka_offset", "kafka_topic"),
    ("_kafka_metadata_partition", "_kafka_metadata_offset", "_kafka_metadata_topic"),  # Iceberg's KafkaMetadataTransform
    ("_partition", "_offset", "_topic"),  # ClickPipes, and ClickHouse's table engine
    ("partition", "offset", "topic"),  # Structured Streaming's source
)
# Columns that contain the three as fields of a struct, or as members of a JSON document.
_NESTED = ("record_metadata", "_kafka_metadata", "__kafka_metadata", "kafka_metadata", "_kafka", "kafka")
_MEMBERS = (("partition", "offset", "topic"), ("__kafka_partition", "__kafka_offset", "__kafka_topic"), *_FLAT[:3])


@dataclass(frozen=True)
class Column:
    """A column, a field of a struct, or a member of a JSON document.

    Attributes:
        root: name of the column.
        field: name of the field or member; None: the column itself.
        struct: whether the column is a struct; otherwise its text is a JSON document.
    """

    root: str
    field: str | None = None
    struct: bool = False

    def __str__(self) -> str:
        """Return the name as it is written in an option."""
        return self.root if self.field is None else f"{self.root}.{self.field}"


@dataclass(frozen=True)
class Coordinates:
    """Columns that identify a record, or a row of a record.

    Attributes:
        partition, offset: of the record.
        topic: name of its topic; None: the table contains rows of one topic.
        number: of the row in its record; None: a record has one row.
    """

    partition: Column
    offset: Column
    topic: Column | None = None
    number: Column | None = None

    @property
    def all(self) -> tuple[Column, ...]:
        """Partition, offset, the number if there is one, and the topic if there is one."""
        return (*self.named.values(), *([] if self.topic is None else [self.topic]))

    @property
    def named(self) -> Mapping[str, Column]:
        """Columns of the report's rows, by their names there."""
        number = {} if self.number is None else {"number": self.number}
        return {"partition": self.partition, "offset": self.offset, **number}


def find_coordinates(
    fields: Fields,
    partition: str | None = None,
    offset: str | None = None,
    topic: str | None = None,
    number: str | None = None,
) -> Coordinates:
    """Return the columns that the options name, or those of the only known layout that the table has.

    Args:
        fields: the table's columns.
        partition: name of the column, `COLUMN` or `COLUMN.FIELD`; None: by a known layout.
        offset: the same.
        topic: the same; empty: ignore a topic column.
        number: the same, of the row in its record; None: a record has one row.

    Raises:
        InvalidPipeline: a column does not exist, or no layout matches, or more than one does.
    """
    found = _found(fields, partition, offset, topic)
    return found if number is None else replace(found, number=_named(fields, number))


def _found(fields: Fields, partition: str | None, offset: str | None, topic: str | None) -> Coordinates:
    if (partition is None) != (offset is None):
        raise InvalidPipeline("--partition-column and --offset-column: expected both, found one", "name both columns")
    if partition is not None and offset is not None:
        return Coordinates(_named(fields, partition), _named(fields, offset), _named(fields, topic) if topic else None)
    found = list(_layouts(fields))
    if len(found) != 1:
        names = "; ".join(f"{item.partition} and {item.offset}" for item in found) or f"columns {', '.join(list(fields)[:30])}"
        problem = "more than one pair of columns for partition and offset" if found else "no columns for partition and offset"
        raise InvalidPipeline(f"the table has {problem}: found {names}", "name them: --partition-column and --offset-column")
    if topic is None:
        return found[0]
    return Coordinates(found[0].partition, found[0].offset, _named(fields, topic) if topic else None)


def _layouts(fields: Fields) -> Iterator[Coordinates]:
    folded = {name.lower(): name for name in reversed(list(fields))}
    for partition, offset, topic in _FLAT:
        if partition in folded and offset in folded:
            yield Coordinates(
                Column(folded[partition]), Column(folded[offset]), Column(folded[topic]) if topic in folded else None
            )
    for name in (folded[item] for item in _NESTED if item in folded):
        inside = fields[name]
        if inside is None:
            if name.lower() == "record_metadata":  # Snowflake's connector; a document's members cannot be listed
                yield Coordinates(Column(name, "partition"), Column(name, "offset"), Column(name, "topic"))
            continue
        members = {member.lower(): member for member in inside}
        for partition, offset, topic in _MEMBERS:
            if partition in members and offset in members:
                yield Coordinates(
                    Column(name, members[partition], True),
                    Column(name, members[offset], True),
                    Column(name, members[topic], True) if topic in members else None,
                )


def _named(fields: Fields, text: str) -> Column:
    root = _match(fields, text)
    if root is not None:
        return Column(root)
    for at in (place for place, letter in enumerate(text) if letter == "."):
        root = _match(fields, text[:at])
        if root is not None:
            inside = fields[root]
            if inside is None:
                return Column(root, text[at + 1 :])
            field = _match(dict.fromkeys(inside), text[at + 1 :])
            if field is not None:
                return Column(root, field, True)
    raise InvalidPipeline(
        f"column {text!r} does not exist: found {', '.join(list(fields)[:30])}", "name a column, or COLUMN.FIELD"
    )


def _match(names: Mapping[str, object], text: str) -> str | None:
    """Return the name that equals the text, else the single name that differs from it in case."""
    if text in names:
        return text
    near = [name for name in names if name.lower() == text.lower()]
    return near[0] if len(near) == 1 else None
