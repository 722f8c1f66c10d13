"""Where a table in a lake is known, and how it lies there. The fields of `into` that only such a destination has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from kpipe.definition.base import Model

__all__ = ["LakeOut", "Part", "part"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True)
class Part:
    """What a table is divided by: files hold rows of one value each.

    Attributes:
        column: name of the column.
        unit: `year`, `month`, `day` or `hour` of it; empty: its value.
    """

    column: str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.unit}({self.column})" if self.unit else self.column


def part(text: str) -> Part:
    """`column`, or `day(column)`.

    Raises:
        ValueError: it is neither.
    """
    found = re.fullmatch(r"(?:(year|month|day|hour)\((?P<of>[^()\x00]{1,255})\)|(?P<plain>[^()\x00]{1,255}))", text.strip())
    if found is None:
        msg = f"{text!r} divides no table; write a column's name, or year, month, day or hour of one: day(created)"
        raise ValueError(msg)
    return Part((found["of"] or found["plain"]).strip(), found[1] or "")


class LakeOut(Model):
    """`type: iceberg`, and `delta` for some of it.

    Attributes:
        catalog: address of the catalogue, `postgresql://user@host/database` or that of a REST catalogue; None: a file beside
            the tables.
        catalog_name: of the catalogue, where its database keeps several; of the warehouse that a REST catalogue is asked for.
        namespace: of the table.
        audit: what must be true of every row of a batch before it is published, by the check's name; SQL over the columns.
        partition_by: columns that a table that kpipe makes is divided by; of Iceberg also `day(column)` and the like.
    """

    catalog: str | None = None
    catalog_name: str | None = None
    namespace: str = "default"
    audit: dict[str, str] = Field(default_factory=dict)
    partition_by: list[str] = Field(default_factory=list)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the table is divided by."""
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
        if parts is None or parts.scheme not in ("postgresql", "http", "https") or not value.isprintable():
            msg = "no catalogue is known by this address; write postgresql://user@host:5432/database, or https://host/path"
            raise ValueError(msg)
        if parts.password is not None or (parts.scheme != "postgresql" and (parts.username or parts.query or not parts.hostname)):
            msg = "the address holds a secret, or has none of a server in it; secrets belong under credentials"
            raise ValueError(msg)
        return value

    @field_validator("catalog_name")
    @classmethod
    def _catalog_name(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[\w.:/-]{1,255}", value, re.ASCII):
            msg = f"{value!r} is no catalogue's name (1 to 255 of letters, digits, '_', '.', ':', '/', '-')"
            raise ValueError(msg)
        return value

    @field_validator("namespace")
    @classmethod
    def _namespace(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            msg = f"{value!r} is no namespace's name (a letter or _, then letters, digits, _; 63 at most)"
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
