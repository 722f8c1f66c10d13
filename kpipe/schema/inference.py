"""Infer columns from JSON values, as far as no value loses information."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kpipe.schema.columns import (  # fmt: skip
    BIGINT,
    BOOLEAN,
    DOUBLE,
    JSON,
    NOTHING,
    VARCHAR,
    WIDEST_STRUCT,
    Columns,
    ListOf,
    MapOf,
    Struct,
    Type,
    merge,
    settled,
)
from kpipe.schema.nesting import ends

__all__ = ["Values", "infer", "nameable"]

_LONGEST = 255


def nameable(name: str) -> bool:
    """Return whether a column or field can have that name: 1 to 255 characters without NUL (which DuckDB rejects)."""
    return 0 < len(name) <= _LONGEST and "\0" not in name


class Values(tuple[object, ...]):
    """Values of a MAP."""


def infer(values: Iterable[Mapping[str, object]], apart: bool = False) -> Columns:
    """Infer the columns of JSON objects, in order of first appearance.

    Fields that are only ever null are left out, and so are names that start with `_kafka_`, which are reserved for
    Kafka's coordinates. Names that differ by case only are one column, as in SQL. An object with an invalid name
    (`nameable`) gives no column, as it gives no row; inside a column it becomes JSON. So does a value that is nested
    too deeply (`ends`).

    Args:
        values: the objects.
        apart: see `settled`.
    """
    seen: dict[str, tuple[str, Type]] = {}
    for value in values:
        if not all(map(nameable, value)):
            continue
        for name, item in value.items():
            folded = name.lower()
            if folded.startswith("_kafka_"):
                continue
            have = seen.get(folded)
            seen[folded] = (name, _kind(item)) if have is None else (have[0], merge(have[1], _kind(item)))
    found = [(name, settled(kind, apart)) for name, kind in seen.values()]
    return Columns(tuple((name, kind) for name, kind in found if kind is not None))


def _kind(value: object, levels: int = 0, lists: int = 0) -> Type:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return BIGINT if -(2**63) <= value < 2**63 else DOUBLE
    if isinstance(value, float):
        return DOUBLE
    if isinstance(value, str):
        return VARCHAR
    if isinstance(value, Mapping):
        if ends(levels, lists, is_list=False) or len(value) > WIDEST_STRUCT or not all(map(nameable, value)):
            return JSON
        return Struct(tuple((name, _kind(item, levels + 1, lists)) for name, item in value.items() if item is not None))
    if isinstance(value, Iterable):
        if ends(levels, lists, is_list=True):
            return JSON
        kind: Type = NOTHING
        for item in value:
            kind = merge(kind, _kind(item, levels + 1, lists + 1))
        return MapOf(kind) if isinstance(value, Values) else ListOf(kind)
    return JSON
