"""Tables by topic: `into.table` with `{topic}` gives each topic a table of its own, in one commit (ADR 63).

Table formats have a commit for each table, with its topic's part of the ledger (ADR 67).

Such a pipeline has no fixed list of tables: those of a batch are those of its topics. A record has rows in its topic's table
only. The ledger's ranges name the table that they were written to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from kpipe.batch.batch import Batch
from kpipe.batch.table_write import BatchTables
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.table_template import fill, problem_of
from kpipe.definition.target import AT_ONCE, ONE_BY_ONE
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.interfaces import Destination
from kpipe.schema.columns import Columns
from kpipe.tables.field_tables import of_table
from kpipe.tables.multi_table import table_destinations, table_pipelines
from kpipe.tables.upsert import KeyRule

__all__ = [
    "TableNames", "TopicTables", "batch_columns", "batch_tables", "check_by_topic", "check_names", "of_topic", "table_of_topic",
    "topic_parts",
]  # fmt: skip


@runtime_checkable
class TopicTables(Protocol):
    """A destination with a table for each topic. The tables are those of the commit."""

    def columns_of(self, tables: Sequence[str]) -> Sequence[Columns | None]:
        """Read the payload columns of tables as `Destination.columns` does, over one connection."""
        ...

    def rows_of_tables(self) -> Mapping[str, int]:
        """Return the number of the pipeline's rows in each table that it has written according to the ledger, by table name."""
        ...

    def topics_written(self) -> Mapping[str, str]:
        """Return the topics that the pipeline has read into tables of their own, each with the newest table, by topic."""
        ...

    def topics_of_tables(self) -> Mapping[str, Collection[str]]:
        """Return the topics of which a table has rows of the pipeline, or may get rows of dead letters, by table."""
        ...


def batch_tables(pipeline: Pipeline, batch: Batch) -> BatchTables:
    """Return the tables that a batch writes: those of the definition, of the batch's topics, or of a field's values, in order."""
    if pipeline.into.by_field:
        routes = batch.routes
        return BatchTables(tuple(of_table(pipeline, name) for name in routes.tables) if routes is not None else ())
    if not pipeline.into.by_topic:
        return BatchTables(table_pipelines(pipeline))
    found, log = {step.source.topic.name for step in batch.steps}, pipeline.transaction_topic
    # Records of the transaction topic give no rows: they count with another table, which exists if the batch has no other.
    topics = sorted(found - {log}) or sorted({*pipeline.source.names} - {log})[:1]
    places = {name: at for at, name in enumerate(topics)}
    return BatchTables(tuple(of_topic(pipeline, name) for name in topics), places if log is None else {**places, log: 0})


def batch_columns(pipeline: Pipeline, destination: Destination, batch: Batch) -> list[tuple[Pipeline, Columns | None]]:
    """Return the definition of each table that a batch writes, and its columns; None for a table that does not exist."""
    if not pipeline.into.is_template:
        return [(part, place.columns()) for part, place in table_destinations(pipeline, destination)]
    parts = batch_tables(pipeline, batch).parts
    assert isinstance(destination, TopicTables)  # validated with the definition
    return list(zip(parts, destination.columns_of([part.into.table for part in parts]), strict=True))


def table_of_topic(pipeline: Pipeline, topic: str) -> str:
    """Return the name of the table that has the rows of a topic, or would have: that of `into` if there is one table."""
    return fill(pipeline.into.table, topic) if pipeline.into.by_topic else pipeline.into.table


def topic_parts(pipeline: Pipeline, topics: Sequence[str]) -> list[tuple[Pipeline, Sequence[str]]]:
    """Return the definition of each table that has rows of these topics, and those of the topics that it has rows of."""
    if pipeline.into.by_topic:
        return [(of_topic(pipeline, topic), [topic]) for topic in topics]
    return [(part, topics) for part in table_pipelines(pipeline)]


def of_topic(pipeline: Pipeline, topic: str) -> Pipeline:
    """Return the pipeline as seen by the table of a topic."""
    return of_table(pipeline, table_of_topic(pipeline, topic))


def check_names(pipeline: Pipeline, topics: Iterable[str]) -> None:
    """Check that each topic has a table of its own.

    Raises:
        InvalidPipeline: a topic gives no name of a table, or that of another topic's table; the message names both.
    """
    if not pipeline.into.by_topic:
        return
    taken: dict[str, str] = {}
    for topic in sorted(topics):
        name = table_of_topic(pipeline, topic)
        reserved = pipeline.into.type == "postgres" and name.lower().startswith("pg_")
        problem = f"{name!r}: names with pg_ are reserved by PostgreSQL" if reserved else problem_of(name)
        if problem:
            raise InvalidPipeline(
                f"pipeline {pipeline.name}: topic {topic}: {problem}",
                f"set a prefix, such as into.table: 'raw_{{topic}}', or leave the topic out of {_source(pipeline)}",
            ).about("into", "table")
        if (other := taken.setdefault(name.lower(), topic)) != topic:
            raise InvalidPipeline(
                f"pipeline {pipeline.name}: topics {other} and {topic}: both would be written to table {name}",
                f"leave one of them out of {_source(pipeline)}, and load it with another pipeline",
            ).about("into", "table")


@dataclass
class TableNames:
    """Check during a run that each topic has a table of its own, also among topics that were read before.

    A topic that Kafka or the definition no longer has leaves its rows in its table. Rows of another topic beside them would be
    merged by a key, retried and emptied (a TRUNCATE of its source) with them.

    Attributes:
        pipeline: the definition.
        destination: queried once for each new topic, because the query reads the history.
    """

    pipeline: Pipeline
    destination: Destination
    _checked: set[str] = field(default_factory=set, init=False)

    def check(self, topics: Collection[str]) -> None:
        """Check the tables of these topics.

        Raises:
            InvalidPipeline: as `check_names`, or a topic's table has rows of other topics; the message names them.
        """
        check_names(self.pipeline, topics)
        if not self.pipeline.into.by_topic or self._checked.issuperset(topics):
            return
        assert isinstance(self.destination, TopicTables)  # validated with the definition
        written = {table.lower(): (table, found) for table, found in self.destination.topics_of_tables().items()}
        for topic in sorted(topics):
            table, found = written.get(table_of_topic(self.pipeline, topic).lower(), ("", ()))
            if others := sorted({*found} - {topic}):
                raise InvalidPipeline(
                    f"pipeline {self.pipeline.name}: topic {topic}: table {table} has rows of"
                    f" topic{'s' * (len(others) > 1)} {', '.join(others)}",
                    f"leave topic {topic} out of {_source(self.pipeline)}, and load it with another pipeline; or, to lose"
                    f" these rows in a database: TRUNCATE TABLE {table}",
                ).about("into", "table")
        self._checked.update(topics)


def check_by_topic(pipeline: Pipeline) -> None:
    """Reject fields that tables by topic do not support.

    Raises:
        NotAvailable: such a field is set; the message names it.
        InvalidPipeline: rows have a key, and the definition does not name its columns.
    """
    if not pipeline.into.by_topic:
        return
    into, where = pipeline.into, f"pipeline {pipeline.name}: into.table {pipeline.into.table}"
    if into.type not in (*AT_ONCE, *ONE_BY_ONE):
        raise NotAvailable(
            f"{where}: a table for each topic is not available for into.type {into.type}",
            f"use into.type: {', '.join((*AT_ONCE, *ONE_BY_ONE))}; or one pipeline for each topic",
        ).about("into", "table")
    if into.audit:
        raise NotAvailable(
            f"{where}: not available together with into.audit", "use one pipeline for each topic, or remove into.audit"
        ).about("into", "audit")
    if into.one_by_one and pipeline.delivery == "at_most_once":
        raise NotAvailable(
            f"{where} in {into.type}: not available together with delivery: at_most_once, whose claims would be a commit of"
            " each table",
            "set delivery: exactly_once; or use one pipeline for each topic, or a database",
        ).about("delivery")
    if not pipeline.source.multi_topic:
        raise InvalidPipeline(
            f"{where}: the source is one topic", "name the table, or read several topics: source.topic_pattern, or source.topics"
        ).about("into", "table")
    if pipeline.also:
        raise NotAvailable(f"{where}: not available together with also", "use one pipeline for each topic").about("also")
    if KeyRule.of(pipeline) is not None and into.key is None:
        raise InvalidPipeline(
            f"{where}: the tables have no common primary key", "name the key's columns, the same in each table: into.key"
        ).about("into", "on_conflict")


def _source(pipeline: Pipeline) -> str:
    return "source.topic_pattern" if pipeline.source.topic_pattern is not None else "source.topics"
