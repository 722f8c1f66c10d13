"""Limits of times, numbers and texts in a destination's columns, where they are narrower than DuckDB's.

Sources: Parquet, "LogicalTypes", and the Delta and Iceberg specs (no infinite time); PostgreSQL 17 and MySQL 8.4 manuals, "Date
and Time Types"; PostgreSQL 17, "Numeric Types", and numeric_in in its numeric.c. MariaDB also accepts years 1 to 999.
"""

from __future__ import annotations

from dataclasses import dataclass

from kpipe.definition.pipeline import Pipeline
from kpipe.schema.columns import INSTANT, JSON, VARCHAR, Type

__all__ = ["Limits", "limits_of", "types_without_nul"]

Ends = tuple[int, int]

# Arrow's integers; DuckDB's infinite times are the largest and smallest ones.
_INSTANTS, _DAYS = (-(2**63) + 2, 2**63 - 2), (-(2**31) + 2, 2**31 - 2)
_MIDNIGHT = 86_400_000_000  # in DuckDB and PostgreSQL a day ends at 24:00:00; Iceberg and Java end it a microsecond before
_YEARS = ((-62_135_596_800_000_000, 253_402_300_799_999_999), (-719_162, 2_932_896))  # 1 to 9999


@dataclass(frozen=True)
class Limits:
    """First and last values of types, inclusive.

    Attributes:
        place: display name of the destination.
        instants: TIMESTAMP and TIMESTAMP WITH TIME ZONE, µs since 1970.
        days: DATE, days since 1970.
        times: TIME, µs since midnight.
        infinite: whether infinite times are allowed in addition.
        finite: whether NaN, and infinite FLOAT and DOUBLE, are not allowed.
        nested_json: whether lists and STRUCTs become JSON, which allows every time but not NaN.
        digits: limit of a JSON number's digits before and after the point; None: no limit.
        exponent: limit of a JSON number's exponent as written, positive or negative.
        divided: partition columns, in lower case: partition names have years 1 to 9999.
        blank: whether a string in a partition column may be empty.
    """

    place: str
    instants: Ends = _INSTANTS
    days: Ends = _DAYS
    times: Ends = (0, _MIDNIGHT)
    infinite: bool = False
    finite: bool = False
    nested_json: bool = False
    digits: tuple[int, int] | None = None
    exponent: int = 0
    divided: tuple[str, ...] = ()
    blank: bool = True

    def ends(self, kind: str, column: str) -> Ends | None:
        """Return the limits of a type in a column; None: no limits."""
        instants, days = _YEARS if column.lower() in self.divided else (self.instants, self.days)
        return {"DATE": days, "TIME": self.times, "TIMESTAMP": instants, str(INSTANT): instants}.get(kind)


def limits_of(pipeline: Pipeline) -> Limits | None:
    """Return the limits of the pipeline's destination; None: those of DuckDB."""
    kind, divided = pipeline.into.type, tuple(part.column.lower() for part in pipeline.into.parts)
    if kind == "delta":
        return Limits("Delta", divided=divided, blank=False)
    if kind == "iceberg":
        return Limits("Iceberg", times=(0, _MIDNIGHT - 1), divided=divided)
    if kind == "parquet":
        return Limits("Parquet", times=(0, _MIDNIGHT - 1))
    if kind == "postgres":  # from 24 November 4714 BC; dates to the end of 5874897
        instants, days = (-210_866_803_200_000_000, 2**63 - 2), (-2_440_588, 2_145_042_905)
        digits = (131_072, 16_383)  # JSON is jsonb, a number in it a numeric
        return Limits("PostgreSQL", instants, days, infinite=True, nested_json=True, digits=digits, exponent=2**30 - 2)
    if kind in ("mysql", "singlestore"):
        return Limits("MySQL", *_YEARS, finite=True, nested_json=True)
    return None


def types_without_nul(pipeline: Pipeline) -> frozenset[Type]:
    """Return the types whose values tasks check for the character NUL; in JSON that is its escape.

    PostgreSQL rejects both and names the record, so tasks check only if the policy keeps or skips such records. DuckLake stores
    NUL in texts, and its queries then miss rows (ducklake/footers.py): tasks check whatever the policy is.
    """
    if pipeline.into.type == "ducklake":
        return frozenset({VARCHAR})
    if pipeline.into.type == "postgres" and pipeline.errors.constraint != "fail":
        return frozenset({VARCHAR, JSON})
    return frozenset()
