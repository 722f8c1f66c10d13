"""Tables of a pipeline: that of `into`, and those of `also`. Fields of design.md 4.2."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from kpipe.definition.base import Model
from kpipe.definition.lakehouse_options import LakeOut
from kpipe.definition.sink_options import TopicOut, WebhookOut, check_outlet, is_unnamed, table_of
from kpipe.definition.store_paths import check_store_path, in_store
from kpipe.definition.table_template import NAME, OF_FIELD, OF_TOPIC, field_of, fill, is_template, of_value, problem_of
from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import parse_type
from kpipe.schema.nesting import DEEPEST, MOST_LISTS, shallow

__all__ = ["AT_ONCE", "NAME", "ONE_BY_ONE", "Also", "Into", "declarations"]

#: Destinations with one transaction over any number of tables.
AT_ONCE = ("duckdb", "ducklake", "postgres", "mysql", "singlestore")
#: Destinations with a commit, and a part of the ledger, for each table.
ONE_BY_ONE = ("delta", "iceberg", "parquet")


class Into(LakeOut, WebhookOut, TopicOut):
    """Destination of the rows, and its table.

    Attributes:
        type: type of destination.
        database: file, or connection string without secrets; None: the home's own DuckDB file.
        credentials: secrets of the connection.
        table: name of the table, a plain identifier. With `{topic}` in it, each topic has its own table of that name; with
            `{field.NAME}`, each value of that field.
        max_tables: most tables of a template with `{field.NAME}`; records of further values are dead letters. None: 100.
        key: columns of the key, for on_conflict; None: the table's primary key.
        on_conflict: what happens to a row whose key exists.
        on_null: `skip` leaves out a record without a value (a tombstone); `delete` deletes the row of its key. The record's
            key is the text of one column, or a JSON object of several.
        update: for `update`, column to expression (`excluded.COLUMN` or `VALUES(COLUMN)` is the new row's value); empty: every
            column that the new row has.
    """

    type: str = "duckdb"
    database: str | None = None
    credentials: dict[str, str] = Field(default_factory=dict)
    table: str
    max_tables: int | None = Field(default=None, ge=1, le=1000)
    key: list[str] | None = None
    on_conflict: Literal["error", "replace", "ignore", "update"] = "error"
    on_null: Literal["skip", "delete"] = "skip"
    update: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        return {**given, "table": table_of(given["topic"])} if isinstance(given, dict) and is_unnamed(given) else given

    @model_validator(mode="after")
    def _outlet(self) -> Into:
        check_outlet(self, self.type)
        self.check_catalog(self.type)
        if self.type == "webhook" and (self.url is None) == ("url" not in self.credentials):
            msg = "type: webhook needs url" if self.url is None else "url is also set in credentials; remove one of them"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _updates(self) -> Into:
        _check_update(self)
        return self

    @model_validator(mode="after")
    def _most_tables(self) -> Into:
        if self.max_tables is not None and not self.by_field:
            msg = "max_tables: only allowed with a table by a field, such as table: 'events_{field.type}'"
            raise ValueError(msg)
        return self

    @property
    def by_topic(self) -> bool:
        """True if each topic has a table of its own (kpipe/tables/topic_tables.py)."""
        return is_template(self.table)

    @property
    def by_field(self) -> bool:
        """True if each value of a record's field has a table of its own (kpipe/tables/field_tables.py)."""
        return field_of(self.table) is not None

    @property
    def is_template(self) -> bool:
        """True if the name depends on topics or records."""
        return self.by_topic or self.by_field

    @property
    def one_by_one(self) -> bool:
        """True if each topic's table has a commit of its own, so that a batch is not visible at once."""
        return self.by_topic and self.type in ONE_BY_ONE

    @field_validator("database")
    @classmethod
    def _database(cls, value: str | None) -> str | None:
        if value is not None and in_store(value):
            check_store_path(("into", "database"), value)
        return value

    @field_validator("table")
    @classmethod
    def _table(cls, value: str) -> str:
        if re.search("[{}]", OF_FIELD.sub("", value.replace(OF_TOPIC, "", 1), 1)):
            msg = f"{value!r}: expected one {OF_TOPIC} or {{field.NAME}} at most, and no other braces"
            raise ValueError(msg)
        if field_of(value) is not None:
            return _by_field(value)
        # An empty name shows the prefix: that of `raw_{topic}` is a name, that of `{topic}` depends on each topic.
        fixed = fill(value, "")
        return value if is_template(value) and not fixed else _table_name(value, fixed)

    @field_validator("key")
    @classmethod
    def _key(cls, value: list[str] | None) -> list[str] | None:
        return _distinct(value)


def _by_field(value: str) -> str:
    """Check a template with `{field.NAME}`, and return it unchanged."""
    if is_template(value):
        msg = f"{value!r}: expected {OF_TOPIC} or {{field.NAME}}, found both"
        raise ValueError(msg)
    if not (fixed := of_value(value, "")).strip("_"):
        msg = f"{value!r}: expected a prefix or suffix, as in 'events_{{field.type}}': a record must not name any table"
        raise ValueError(msg)
    _table_name(value, fixed if value[0] != "{" else "_" + fixed)
    return value


class Also(Model):
    """A further table for rows of the same records, in the same transaction and at the same place as `into`.

    Attributes:
        table: name of the table, a plain identifier.
        key, on_conflict, update: as for `into`.
        columns: types in addition to those of the pipeline.
        select, where, set: as in the pipeline, for this table.
    """

    table: str
    key: list[str] | None = None
    on_conflict: Literal["error", "replace", "ignore", "update"] = "error"
    update: dict[str, str] = Field(default_factory=dict)
    columns: dict[str, str] = Field(default_factory=dict)
    select: str | None = None
    where: str | None = None
    set: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _updates(self) -> Also:
        _check_update(self)
        return self

    @field_validator("table")
    @classmethod
    def _table(cls, value: str) -> str:
        return _table_name(value)

    @field_validator("key")
    @classmethod
    def _key(cls, value: list[str] | None) -> list[str] | None:
        return _distinct(value)

    @field_validator("columns")
    @classmethod
    def _columns(cls, value: dict[str, str]) -> dict[str, str]:
        return declarations(value)


def declarations(value: dict[str, str]) -> dict[str, str]:
    """Check declared types, and return them unchanged.

    Raises:
        ValueError: a type is invalid or nested too deeply, or a name cannot be a column's.
    """
    for name, text in value.items():
        try:
            kind = parse_type(text)
        except InvalidPipeline as error:
            raise ValueError(str(error)) from error
        except RecursionError:
            raise _deep(name) from None
        if shallow(kind) != kind:
            raise _deep(name)
    taken = sorted(name for name in value if name.lower().startswith("_kafka_"))
    if taken:
        msg = f"{', '.join(taken)}: names that begin with _kafka_ are reserved for Kafka's coordinates"
        raise ValueError(msg)
    if len({name.lower() for name in value}) < len(value):
        msg = "two columns differ only by upper and lower case"
        raise ValueError(msg)
    return value


def _deep(name: str) -> ValueError:
    return ValueError(
        f"column {name}: nested too deeply: {DEEPEST} lists, MAPs and STRUCTs at most, {MOST_LISTS} of them lists or MAPs;"
        " declare the nested part as JSON"
    )


def _table_name(value: str, fixed: str | None = None) -> str:
    if msg := problem_of(value if fixed is None else fixed):
        raise ValueError(msg)
    return value


def _distinct(key: list[str] | None) -> list[str] | None:
    if len({name.lower() for name in key or ()}) < len(key or ()):
        msg = "names a column twice"
        raise ValueError(msg)
    return key


def _check_update(into: Into | Also) -> None:
    if into.update and into.on_conflict != "update":
        msg = "update: only allowed with on_conflict: update, found on_conflict: " + into.on_conflict
        raise ValueError(msg)
