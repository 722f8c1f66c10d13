"""Limits on the nesting of types and JSON: deeper inferred types become JSON, deeper declared ones are rejected."""

from __future__ import annotations

from kpipe.schema.columns import JSON, ListOf, MapOf, Scalar, Struct, Type

__all__ = ["DEEPEST", "DEEPEST_JSON", "MOST_LISTS", "ends", "shallow"]

#: Lists, MAPs and STRUCTs around a value, in all. DuckDB reads Parquet of at most 100 levels; a list counts as two of them.
DEEPEST = 20
#: Lists and MAPs among them. Each doubles the time that DuckDB 2.0 takes to read a column of Parquet: 1 s at 22, 10 s at 26,
#: not measurable up to 12.
MOST_LISTS = 8
#: Lists and objects in a JSON document. Deeper ones exceed the stack of Arrow's reader and Python's recursion limit.
DEEPEST_JSON = 200


def ends(levels: int, lists: int, is_list: bool) -> bool:
    """Return whether a list or STRUCT inside so many levels and lists becomes JSON; a MAP counts as a list."""
    return levels >= DEEPEST or (is_list and lists >= MOST_LISTS)


def shallow(kind: Type, levels: int = 0, lists: int = 0) -> Type:
    """Return a column's type with JSON in place of everything that is nested too deeply.

    Args:
        kind: the type.
        levels: lists, MAPs and STRUCTs around it.
        lists: lists and MAPs among them.
    """
    if isinstance(kind, Scalar):
        return kind
    if ends(levels, lists, not isinstance(kind, Struct)):
        return JSON
    if isinstance(kind, Struct):
        return Struct(tuple((name, shallow(item, levels + 1, lists)) for name, item in kind.fields))
    return (ListOf if isinstance(kind, ListOf) else MapOf)(shallow(kind.item, levels + 1, lists + 1))
