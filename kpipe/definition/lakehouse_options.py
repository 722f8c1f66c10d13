"""Fields of `into` for tables in a lakehouse: catalog, partitions and checks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from kpipe.definition.base import Model

__all__ = ["LakeOut", "Maintenance", "Part", "part"]

_FILES = ("duckdb", "sqlite")  # types of catalogs in files
_SERVERS = "postgresql://user@host:5432/database, or https://host/path"
_OF_DUCKLAKE = "duckdb:FILE or sqlite:FILE"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True)
class Part:
    """One part of the table's partitioning: each file contains rows of one value.

    Attributes:
        column: name of the column.
        unit: `year`, `month`, `day` or `hour` of the column; empty: its value.
    """

    column: str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.unit}({self.column})" if self.unit else self.column


def part(text: str) -> Part:
    """Parse `column`, or `day(column)`.

    Raises:
        ValueError: the text is invalid.
    """
    found = re.fullmatch(r"(?:(year|month|day|hour)\((?P<of>[^()\x00]{1,255})\)|(?P<plain>[^()\x00]{1,255}))", text.strip())
    if found is None:
        msg = f"{text!r}: invalid partition: expected a column, or year, month, day or hour of one, such as day(created)"
        raise ValueError(msg)
    return Part((found["of"] or found["plain"]).strip(), found[1] or "")


_CRON = re.compile(r"@(?:hourly|daily|weekly|monthly)|[\d*/,A-Za-z-]+(?: +[\d*/,A-Za-z#?-]+){4}", re.ASCII)


class Maintenance(Model):
    """Thresholds of `kpipe maintain`, and of Dagster's job `NAME_maintenance`.

    Attributes:
        cron: schedule of the job, in UTC, such as `0 3 * * *`; None: it is started by hand.
        target_file_mb: size of new files.
        min_input_files: number of small files of one partition, or of its files of deletes, that are rewritten together.
        delete_ratio: share of deleted rows from which a file is rewritten alone, too.
        retention_hours: how long superseded snapshots and files are kept; None: nothing is removed.
    """

    cron: str | None = None
    target_file_mb: int = Field(default=128, ge=1, le=10_240)
    min_input_files: int = Field(default=5, ge=2)
    delete_ratio: float = Field(default=0.3, gt=0, le=1)
    retention_hours: int | None = Field(default=None, ge=1)

    @field_validator("cron")
    @classmethod
    def _cron(cls, value: str | None) -> str | None:
        if value is not None and not _CRON.fullmatch(value.strip()):
            msg = f"{value!r}: invalid schedule: expected minute, hour, day, month and weekday, such as 0 3 * * *"
            raise ValueError(msg)
        return value


class LakeOut(Model):
    """`type: iceberg`, and some fields of `delta` and `ducklake`.

    Attributes:
        catalog: address of the catalog, `postgresql://user@host/database`, that of a REST catalog (Iceberg), or `duckdb:FILE` or
            `sqlite:FILE` (DuckLake); None: a file beside the tables.
        catalog_name: name of the catalog, if its database contains several; name of the warehouse in a REST catalog.
        namespace: namespace of the table.
        audit: checks that every row of a batch must pass before it is published, by name; SQL over the columns.
        partition_by: columns that a new table is partitioned by; for Iceberg also `day(column)` and the like.
        maintenance: thresholds of maintenance, and a schedule for it.
    """

    catalog: str | None = None
    catalog_name: str | None = None
    namespace: str = "default"
    audit: dict[str, str] = Field(default_factory=dict)
    partition_by: list[str] = Field(default_factory=list)
    maintenance: Maintenance | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """Parts of the table's partitioning."""
        return tuple(map(part, self.partition_by))

    @field_validator("catalog")
    @classmethod
    def _catalog(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            _ = parts.port
        except ValueError:
            parts = None
        if parts is None or parts.scheme not in ("postgresql", "http", "https", *_FILES) or not value.isprintable():
            msg = f"invalid catalog address: expected {_SERVERS}; or {_OF_DUCKLAKE} of a DuckLake"
            raise ValueError(msg)
        if parts.scheme in _FILES:
            return value
        if parts.password is not None or (parts.scheme != "postgresql" and (parts.username or parts.query or not parts.hostname)):
            msg = "the address contains a secret, or no server; move secrets to into.credentials"
            raise ValueError(msg)
        return value

    def check_catalog(self, kind: str) -> None:
        """Check that a type of destination has such a catalog.

        Raises:
            ValueError: it has not.
        """
        scheme = (self.catalog or "").partition(":")[0].lower()
        if kind == "iceberg" and scheme in _FILES:
            msg = f"{scheme}: is a catalog of type: ducklake; expected {_SERVERS}"
            raise ValueError(msg)
        if kind == "ducklake" and scheme in ("http", "https"):
            msg = f"{scheme}: is a catalog of type: iceberg; expected {_OF_DUCKLAKE}, or postgresql://user@host:5432/database"
            raise ValueError(msg)

    @field_validator("catalog_name")
    @classmethod
    def _catalog_name(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[\w.:/-]{1,255}", value, re.ASCII):
            msg = f"{value!r}: invalid catalog name: expected 1 to 255 letters, digits, '_', '.', ':', '/', '-'"
            raise ValueError(msg)
        return value

    @field_validator("namespace")
    @classmethod
    def _namespace(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            msg = f"{value!r}: invalid namespace name: expected a letter or _, then letters, digits, _; 63 at most"
            raise ValueError(msg)
        return value

    @field_validator("audit")
    @classmethod
    def _audit(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _NAME.fullmatch(name) or not text.strip():
                msg = f"{name!r}: a check is a name (a letter or _, then letters, digits, _; 63 at most) and an expression"
                raise ValueError(msg)
        return value

    @field_validator("partition_by")
    @classmethod
    def _partition_by(cls, value: list[str]) -> list[str]:
        parts = [str(part(text)) for text in value]
        if len({text.lower() for text in parts}) < len(parts):
            msg = "a column is given twice"
            raise ValueError(msg)
        return parts
