"""Formats: how bytes of a record become columns."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from kpipe.definition.base import Model
from kpipe.definition.json_path import parse_path, write_path
from kpipe.schema.nesting import DEEPEST

__all__ = ["VARIABLE", "Format", "Mapped", "Member"]

#: A temporary value, for `set` and `where` only: not a column of the table.
VARIABLE = re.compile(r"@[A-Za-z_][A-Za-z0-9_]*")

# Options and the formats that use them; other formats reject them.
_ONLY = {
    "booleans": ("json",),
    "mapping": ("json", "avro", "protobuf"),
    "schema": ("json", "avro", "protobuf"),
    "registry": ("json", "avro", "protobuf", "debezium"),
    "descriptors": ("protobuf",),
    "message": ("protobuf",),
    "validate": ("json",),
    **dict.fromkeys(("explode", "explode_outer", "ordinality"), ("json", "avro", "protobuf")),
    **dict.fromkeys(("documents", "infer_timestamps", "schemas_enable"), ("json",)),
    **dict.fromkeys(("envelope", "source_table", "truncate", "types", "unavailable"), ("debezium",)),
    **dict.fromkeys(("fields", "delimiter", "quote", "escape", "line_end", "line_start", "null", "null_quoted", "skip_lines"),
                    ("csv",)),
}  # fmt: skip


def _target(name: str) -> str:
    if name.startswith("@"):
        if not VARIABLE.fullmatch(name):
            msg = f"{name!r} is not a variable (@, a letter or _, then letters, digits, _)"
            raise ValueError(msg)
    elif not name or "\0" in name or len(name) > 255:
        msg = f"{name!r} is not a column's name"
        raise ValueError(msg)
    elif name.lower().startswith("_kafka_"):
        msg = f"{name}: names that begin with _kafka_ are reserved for Kafka's coordinates"
        raise ValueError(msg)
    return name


def _path(text: str) -> str:
    return write_path(parse_path(text))


def _lists(text: str) -> str:
    """Check the path of a list: names of members only, as every list on it is exploded."""
    parts = parse_path(text)
    numbers = [part for part in parts if isinstance(part, int)]
    if numbers:
        msg = f"explode: {text!r} has the index {numbers[0]}: expected names of members; each list on the path gives its items"
        raise ValueError(msg)
    if len(parts) > DEEPEST:
        msg = f"explode: expected at most {DEEPEST} members, found {len(parts)}"
        raise ValueError(msg)
    return write_path(parts)


Target = Annotated[str, AfterValidator(_target)]
Path = Annotated[str, AfterValidator(_path)]
ListPath = Annotated[str, AfterValidator(_lists)]
Literally = str | int | Annotated[float, Field(allow_inf_nan=False)] | bool | None


class Mapped(Model):
    """A value of the record, and its default if the record has no such member.

    Attributes:
        path: kpipe/definition/json_path.py.
        default: used if the path leads nowhere. A member that exists and is null gives NULL.
    """

    path: Path
    default: Literally


class Member(Mapped):
    """A member of the record that `select` reads by name: a member that differs from it by case only rejects the record."""


class Format(Model):
    """Format of a record's bytes. `raw` keeps key and value as bytes (ELT).

    `arrow` is not a format of records: a program with `stdin: arrow` writes typed columns. It implies this format.

    Attributes:
        type: encoding of the record's value.
        mapping: column, or @variable, to path; null: by name.
        booleans: values of `true` and `false` in text and number columns with a path: as in JSON, or 1 and 0.
        fields: for CSV, the column or @variable of each field, in order; null: the table's columns.
        delimiter: delimiter between the fields of a line.
        quote: quote around a field; empty: none.
        escape: escape before a special character; empty: none.
        line_end: separator of the lines of one record.
        line_start: prefix of every line; it is removed, with everything before it.
        null: text that is NULL; null: `\\N`, and NULL without quotes if there is a quote.
        null_quoted: whether that text is NULL in quotes, too.
        skip_lines: number of first lines of every record to leave out.
        definition: the schema (`schema` in YAML) of Avro, Protobuf or JSON Schema, as text.
        registry: address of a schema registry; with Debezium records and keys are Avro or Protobuf.
        descriptors: path of a descriptor set of Protobuf (`protoc --include_imports -o`).
        message: full name of the message type; null: the only type of the schema, or with a registry each record's type.
        validated: whether JSON records must conform to their JSON Schema (`validate` in YAML).
        documents: number of JSON values in a record: `one`, or `many` one after another, such as one per line.
        explode: path of a list, such as `orders::lines`, or `%` for a record that is a list. Each item is a row with the
            record's other members. Lists on the way to it are exploded, too.
        explode_outer: whether a record without items is one row, whose member is null; else it is filtered.
        ordinality: name of a further member of each row, with `explode` or `documents`: its number in the record, from 1.
        schemas_enable: whether a record is Kafka Connect's JSON with its schema, `{"schema": …, "payload": …}`
            (`schemas.enable` of its converter), which gives the types.
        infer_timestamps: whether new columns of ISO 8601 texts are timestamps; else they are VARCHAR.
        envelope: form of the change events: Debezium's, `flat` (rows of `ExtractNewRecordState`), Maxwell's or Canal's.
        source_table: the source's table, such as `orders` or `shop.orders`, if events of other tables are in the topic, too:
            these are filtered.
        truncate: for Debezium, what a TRUNCATE of the source's table does: delete all rows (`apply`; the topic has one
            partition), stop the pipeline (`fail`), or nothing (`skip`).
        types: for Debezium without schemas or in Protobuf, column to the name of its semantic type, such as
            `io.debezium.time.Timestamp` or `org.apache.kafka.connect.data.Decimal(2)`.
        unavailable: for Debezium, the placeholder of a value that an update did not change (`unavailable.value.placeholder`).
    """

    type: Literal["json", "csv", "avro", "protobuf", "raw", "arrow", "debezium"] = "json"
    mapping: dict[Target, Path | Mapped] | None = None
    booleans: Literal["json", "number"] = "json"
    fields: list[Target] | None = None
    delimiter: str = Field(default="\t", min_length=1)
    quote: str = Field(default="", max_length=1)
    escape: str = Field(default="\\", max_length=1)
    line_end: str = Field(default="\n", min_length=1)
    line_start: str = ""
    null: str | None = None
    null_quoted: bool = False
    skip_lines: int = Field(default=0, ge=0)
    definition: str | None = Field(default=None, alias="schema")
    registry: str | None = None
    descriptors: str | None = None
    message: str | None = None
    validated: bool = Field(default=False, alias="validate")
    documents: Literal["one", "many"] = "one"
    explode: ListPath | None = None
    explode_outer: bool = False
    ordinality: Target | None = None
    schemas_enable: bool = False
    infer_timestamps: bool = False
    envelope: Literal["debezium", "flat", "maxwell", "canal"] = "debezium"
    source_table: str | None = Field(default=None, min_length=1)
    truncate: Literal["apply", "fail", "skip"] = "apply"
    types: dict[Target, str] = Field(default_factory=dict)
    unavailable: str = Field(default="__debezium_unavailable_value", min_length=1)

    @property
    def fan_out(self) -> bool:
        """True if a record may give several rows."""
        return self.type == "csv" or self.several

    @property
    def several(self) -> bool:
        """True if a record has its rows in a list, or one after another."""
        return self.documents == "many" or self.explode is not None

    @property
    def divided(self) -> bool:
        """True if a record is divided into JSON objects before these are decoded."""
        return self.several and self.type == "json"

    @property
    def listed(self) -> tuple[str, ...] | None:
        """Columns and @variables of a record; None: the columns are not listed."""
        if self.type == "raw":
            return ("key", "value")
        names = self.mapping if self.mapping is not None else self.fields
        return None if names is None else tuple(names)

    @model_validator(mode="after")
    def _fitting(self) -> Format:
        for name, info in type(self).model_fields.items():
            field = info.alias or name
            if self.type not in _ONLY.get(field, (self.type,)) and getattr(self, name) != info.get_default(
                call_default_factory=True
            ):
                msg = f"{field} is an option of {', '.join(_ONLY[field])}, not of {self.type}"
                raise ValueError(msg)
        names = [name.lower() for name in (*(self.mapping or ()), *(self.fields or ()))]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = f"{twice[0]} is duplicated (upper and lower case are the same)"
            raise ValueError(msg)
        if self.booleans != "json" and self.mapping is None:
            msg = "booleans: only allowed with a mapping"
            raise ValueError(msg)
        if self.mapping == {} or self.fields == []:
            msg = "names no column; remove it to map columns by their names"
            raise ValueError(msg)
        self._check_division()
        self._check_schemas()
        return self

    def _check_schemas(self) -> None:
        """Check that no other option gives the types of records with a schema."""
        others = {
            "validate": self.validated, "schema": self.definition is not None, "registry": self.registry is not None,
            "explode": self.explode is not None, "documents": self.documents == "many", "booleans": self.booleans != "json",
        }  # fmt: skip
        for name, used in others.items():
            if self.schemas_enable and used:
                msg = f"schemas_enable: not available with {name}: each record has its own schema"
                raise ValueError(msg)
        if self.infer_timestamps and self.validated:
            msg = "infer_timestamps: not available with validate: the JSON Schema gives the types (format: date-time)"
            raise ValueError(msg)

    def _check_division(self) -> None:
        """Check the options that make several rows of a record."""
        if self.explode_outer and self.explode is None:
            msg = "explode_outer: only allowed with explode"
            raise ValueError(msg)
        if self.ordinality is not None and (not self.several or self.ordinality.startswith("@")):
            msg = f"ordinality: {self.ordinality}: expected a name, with explode or documents"
            raise ValueError(msg)
        if self.divided and (self.validated or self.definition is not None):
            msg = "explode and documents: not available with a JSON Schema: remove schema and validate"
            raise ValueError(msg)
        if self.explode == "%" and self.type != "json":
            msg = f"explode: a record of {self.type} is not a list: expected names of members, such as orders::lines"
            raise ValueError(msg)
        if self.explode_outer and self.explode == "%":
            msg = "explode_outer: a record that is an empty list has no other members: remove explode_outer"
            raise ValueError(msg)
        if self.explode_outer and self.explode is not None:
            self._check_outer(parse_path(self.explode))

    def _check_outer(self, steps: tuple[str | int, ...]) -> None:
        """Check that paths into the items of the list have a default, as a record without items has none of them."""
        for name, item in (self.mapping or {}).items():
            if isinstance(item, Mapped):
                continue
            parts = parse_path(item)
            if len(parts) > len(steps) and parts[: len(steps)] == steps:
                msg = (
                    f"explode_outer: {name} has no default, but a record without items has no {item}:"
                    f" write {name}: {{path: {item}, default: null}}"
                )
                raise ValueError(msg)
