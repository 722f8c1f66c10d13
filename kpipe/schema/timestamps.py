"""Infer timestamps from texts of ISO 8601, in columns that are inferred as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from kpipe.schema.columns import INSTANT, TIMESTAMP, VARCHAR, Columns, ListOf, Struct, Type

__all__ = ["has_text", "with_timestamps"]

# RFC 3339's profile of ISO 8601, with T or a blank, and a zone or none. Digits beyond microseconds would be lost.
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(Z|[+-](?:0\d|1[0-4]):[0-5]\d)?", re.ASCII
)


def has_text(columns: Columns) -> bool:
    """Return whether a column, or a part of one, is text."""
    return any(_has_text(kind) for _, kind in columns)


def _has_text(kind: Type) -> bool:
    if isinstance(kind, Struct):
        return any(_has_text(item) for _, item in kind.fields)
    return _has_text(kind.item) if isinstance(kind, ListOf) else kind == VARCHAR


def with_timestamps(columns: Columns, records: Iterable[Mapping[str, object]]) -> Columns:
    """Return the columns with timestamps in place of text, where every value is a timestamp.

    With a zone in every text, the type is TIMESTAMP WITH TIME ZONE; without any, TIMESTAMP. Other columns stay as they are.

    Args:
        columns: as inferred from the records.
        records: name to value; names of columns match in any case.
    """
    values: dict[str, list[object]] = {name.lower(): [] for name, kind in columns if _has_text(kind)}
    for record in records:
        for name, value in record.items():
            if (found := values.get(name.lower())) is not None:
                found.append(value)
    return Columns(tuple((name, _typed(kind, values.get(name.lower(), ()))) for name, kind in columns))


def _typed(kind: Type, values: Sequence[object]) -> Type:
    if kind == VARCHAR:
        return _timestamp(values)
    if isinstance(kind, ListOf):
        return ListOf(_typed(kind.item, [item for value in values if isinstance(value, list) for item in value]))
    if isinstance(kind, Struct):
        objects = [value for value in values if isinstance(value, Mapping)]
        return Struct(tuple((name, _typed(item, [value.get(name) for value in objects])) for name, item in kind.fields))
    return kind


def _timestamp(values: Iterable[object]) -> Type:
    """Return the type of these values of a text column; it is text unless all are timestamps of one kind."""
    zones: set[bool] = set()
    for value in values:
        if value is None:
            continue
        found = _TIMESTAMP.fullmatch(value) if isinstance(value, str) else None
        if found is None or not _is_day(*map(int, found.groups()[:3])):
            return VARCHAR
        zones.add(found[4] is not None)
        if len(zones) > 1:
            return VARCHAR
    return VARCHAR if not zones else INSTANT if True in zones else TIMESTAMP


def _is_day(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True
