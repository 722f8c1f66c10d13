"""Lookups of a definition: small tables for expressions, such as `countries(code).name`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from kpipe.definition.base import Model
from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import Columns

__all__ = ["KINDS", "Lookup", "Version", "check_names"]

#: Sources of a lookup; each has exactly one.
KINDS = ("path", "table", "query", "url")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_ENDINGS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}


class Lookup(Model):
    """A reference table: one row at most for each key. Exactly one of `path`, `table`, `query`, `url`.

    Attributes:
        path: a file; relative to the current folder and below it, or absolute.
        table: a table of the destination.
        query: one SELECT, in the destination's SQL.
        url: an address that returns a file; https, except on this machine.
        key: columns that identify a row, in the order of the arguments.
        format: format of a file; None: by its name, or by the content type of the response.
        delimiter: delimiter between CSV fields; None: a comma, a tab in a .tsv.
        columns: types of a file's columns; all other columns of CSV are text.
        required: whether a record whose key has no row fails the stage `constraint`.
        refresh_s: seconds after which the next batch reads it again; None: once a run.
        timeout_s: maximum time for the whole response, of `url` and `query`.
        max_mb: maximum size, in MiB.
        credentials: for `url`: `username` and `password`, or `token`.
        ca: for `url`: a file of trusted certificates (PEM); None: those of the machine.
    """

    path: str | None = Field(default=None, min_length=1)
    table: str | None = Field(default=None, min_length=1, max_length=255)
    query: str | None = Field(default=None, min_length=1)
    url: str | None = Field(default=None, min_length=1)
    key: str | list[str]
    format: Literal["csv", "json", "parquet"] | None = None
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    columns: dict[str, str] = Field(default_factory=dict)
    required: bool = False
    refresh_s: float | None = Field(default=None, gt=0)
    timeout_s: float = Field(default=30, gt=0)
    max_mb: int = Field(default=64, ge=1, le=1024)
    credentials: dict[str, str] = Field(default_factory=dict)
    ca: str | None = Field(default=None, min_length=1)

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns of the key."""
        return tuple(self.key)

    @property
    def kind(self) -> str:
        """The element of `KINDS` that the lookup comes from."""
        return next(name for name in KINDS if getattr(self, name) is not None)

    def describe(self) -> str:
        """Describe the source of the lookup, for messages."""
        if self.kind == "query":
            return "its query"
        return f"{self.kind} {str(getattr(self, self.kind)).partition('?')[0]}"  # the query string may contain a secret

    @field_validator("key")
    @classmethod
    def _key(cls, value: str | list[str]) -> str | list[str]:
        names = [value] if isinstance(value, str) else value
        if not names or not all(names):
            msg = "names no column"
            raise ValueError(msg)
        if len({name.lower() for name in names}) < len(names):
            msg = "names a column twice"
            raise ValueError(msg)
        return names  # one spelling, so that all notations give equal definitions

    @field_validator("columns")
    @classmethod
    def _columns(cls, value: dict[str, str]) -> dict[str, str]:
        try:
            Columns.of(value)
        except InvalidPipeline as error:
            raise ValueError(str(error)) from error
        return value

    @model_validator(mode="after")
    def _one(self) -> Lookup:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            msg = f"needs exactly one of {', '.join(KINDS)}; {' and '.join(given) or 'none'} given"
            raise ValueError(msg)
        file = given[0] in ("path", "url")
        wrong = [name for name in ("format", "delimiter", "columns") if getattr(self, name) and not file]
        wrong += [name for name in ("credentials", "ca") if getattr(self, name) and given[0] != "url"]
        if wrong:
            msg = f"{wrong[0]} is not for a lookup from a {given[0]}"
            raise ValueError(msg)
        if self.delimiter is not None and self.format in ("json", "parquet"):
            msg = f"delimiter is an option of csv, not of {self.format}"
            raise ValueError(msg)
        return self

    def format_of(self, name: str) -> str | None:
        """Return the format: the configured one, else by the file name's extension."""
        return self.format or next((kind for end, kind in _ENDINGS.items() if name.lower().endswith(end)), None)

    def delimiter_of(self, name: str) -> str:
        """Return the delimiter between fields of a CSV file of that name."""
        return self.delimiter or ("\t" if name.lower().endswith(".tsv") else ",")


@dataclass(frozen=True)
class Version:
    """Version of a lookup when it was read, stored with every batch that used it.

    Attributes:
        sha256: of the file, or of the rows of a table or a query; hexadecimal.
        rows: number of rows.
        read_ms: time of the read, wall clock, UTC.
    """

    sha256: str
    rows: int
    read_ms: int

    def to_dict(self) -> dict[str, Any]:
        """Return the version as it is stored and displayed."""
        moment = datetime.fromtimestamp(self.read_ms / 1000, timezone.utc)
        return {"sha256": self.sha256, "rows": self.rows, "read": moment.isoformat(timespec="milliseconds")}


def check_names(lookups: Mapping[str, Lookup]) -> None:
    """Check the names of lookups.

    Raises:
        ValueError: a name is not a plain identifier, or two names are equal in SQL.
    """
    for name in lookups:
        if not _NAME.fullmatch(name):
            msg = f"{name!r} is not a lookup's name (a letter or _, then letters, digits, _; 63 at most)"
            raise ValueError(msg)
    if len({name.lower() for name in lookups}) < len(lookups):
        msg = "two lookups differ only by upper and lower case"
        raise ValueError(msg)
