"""How deep types and JSON may be nested: what is inferred beyond that is JSON, and what is declared beyond it is refused."""

from __future__ import annotations

from kpipe.schema.columns import JSON, ListOf, MapOf, Scalar, Struct, Type

__all__ = ["DEEPEST", "DEEPEST_JSON", "MOST_LISTS", "ends", "shallow"]

#: Lists, MAPs and STRUCTs around a value, in all. DuckDB reads Parquet of at most 100 levels, a list counts for two of them.
DEEPEST = 20
#: Lists and MAPs among them. Each doubles the time that DuckDB 2.0 takes to read a column of Parquet: no time up to 12, at 22
#: a second, at 26 ten.
MOST_LISTS = 8
#: Lists and objects in a JSON document. Deeper ones end Arrow's reader (its stack) and Python's (its recursion limit).
DEEPEST_JSON = 200


def ends(levels: int, lists: int, is_list: bool) -> bool:
    """Return whether a list (a MAP counts as one) or STRUCT with so many levels and lists around it is JSON instead."""
    return levels >= DEEPEST or (is_list and lists >= MOST_LISTS)


def shallow(kind: Type, levels: int = 0, lists: int = 0) -> Type:
    """Return the type of a column with JSON for what is nested deeper than a column's values may be.

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
