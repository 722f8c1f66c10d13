"""Fields of `source.lake`: a table of Delta Lake or Iceberg whose appended rows are read."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from kpipe.definition.base import Model
from kpipe.definition.store_paths import check_store_path

__all__ = ["SourceLake"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,255}(\.[A-Za-z0-9_-]{1,255})*")


class SourceLake(Model):
    """A lake's table as a source: first the rows that it has, then the rows that each new snapshot appends.

    Attributes:
        type: format of the table.
        database: folder, or prefix in an object store, that contains the table's folder (Delta) or the warehouse (Iceberg).
        name: name of the table; for Iceberg `table` or `namespace.table`.
        catalog: of Iceberg: address of the catalog, as for `into`; None: a file beside the tables.
        catalog_name: as for `into`.
        max_files: most data files that the pipeline can have read; the ledger names each of them.
        max_batch_rows: most rows in one batch.
    """

    type: Literal["delta", "iceberg"]
    database: str = Field(min_length=1)
    name: str
    catalog: str | None = None
    catalog_name: str | None = None
    max_files: int = Field(default=5_000, ge=1, le=15_000)
    max_batch_rows: int = Field(default=250_000, ge=1)

    @property
    def most_offsets(self) -> int:
        """Most offsets of one batch: rows."""
        return self.max_batch_rows

    @property
    def table(self) -> str:
        """Name of the table without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        """Namespace of an Iceberg table."""
        return self.name.rpartition(".")[0] or "default"

    @field_validator("database")
    @classmethod
    def _database(cls, value: str) -> str:
        check_store_path(("source", "lake", "database"), value)
        if "://" not in value and not value.startswith("/"):
            msg = f"{value!r} is not an absolute path or an object store's: expected /folder or s3://bucket/folder"
            raise ValueError(msg)
        return value

    @field_validator("name")
    @classmethod
    def _table(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            msg = f"{value!r} is not a table's name: expected table or namespace.table"
            raise ValueError(msg)
        return value

    @field_validator("catalog")
    @classmethod
    def _catalog(cls, value: str | None) -> str | None:
        if value is not None and urlsplit(value).scheme not in ("postgresql", "http", "https"):
            msg = "expected postgresql://user@host/database, or the URL of a REST catalog"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _fitting(self) -> SourceLake:
        if self.type == "delta" and (self.catalog or self.catalog_name or "." in self.name):
            msg = "delta has no catalog: expected the name of a folder in database, without catalog, catalog_name and namespace"
            raise ValueError(msg)
        return self
