"""Fields of `source.table`: a table whose rows are read in the order of a column."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from kpipe.definition.base import Model

__all__ = ["SourceTable"]

_NAME = re.compile(r"[^\x00-\x1f\x7f/:\"`]{1,63}(\.[^\x00-\x1f\x7f/:\"`]{1,63})?")


class SourceTable(Model):
    """A table as a source. Its rows are read in the order of an integer column whose values only grow.

    Attributes:
        type: type of database.
        database: file of DuckDB, or connection string without secrets.
        name: name of the table, or `schema.name`.
        column: the column: an integer, unique and never NULL, such as an identity column; values of later rows are higher.
        query: a SELECT whose rows are read in place of the table's, such as a join; it returns `column` of the table,
            each value at most once. None: all columns of the table.
        max_batch_rows: most values of the column in one batch.
    """

    type: Literal["duckdb", "mysql", "postgres"]
    database: str = Field(min_length=1)
    name: str
    column: str = Field(min_length=1, max_length=63)
    query: str | None = Field(default=None, min_length=1)
    max_batch_rows: int = Field(default=250_000, ge=1)

    @property
    def most_offsets(self) -> int:
        """Most offsets of one batch."""
        return self.max_batch_rows

    @field_validator("name")
    @classmethod
    def _table(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            msg = f"{value!r} is not a table's name: expected name or schema.name"
            raise ValueError(msg)
        return value

    @field_validator("column")
    @classmethod
    def _column(cls, value: str) -> str:
        if not value.isprintable():
            msg = f"{value!r} is not a column's name"
            raise ValueError(msg)
        return value
