"""Write DuckDB's SQL that converts a typed value to JSON text. DuckDB's to_json drops digits of numbers in JSON inside of it."""

from __future__ import annotations

import json
from collections.abc import Callable

from kpipe.schema.columns import ListOf, MapOf, Scalar, Struct, Type

__all__ = ["composed", "contains", "json_text"]


def json_text(value: str, kind: Type) -> str:
    """Return the SQL of a value as JSON text; NULL stays NULL.

    JSON inside of it is copied, bytes are base64. Everything else is as DuckDB's to_json writes it: NaN and infinite numbers
    are bare words, which is not JSON.
    """
    return composed(value, kind, lambda part: contains(part, {"JSON", "BLOB"}), _scalar)


def composed(value: str, kind: Type, divides: Callable[[Type], bool], text: Callable[[str, Type], str], depth: int = 0) -> str:
    """Return the SQL of a value as JSON text, composed from the texts of its parts; NULL stays NULL.

    Args:
        value: the SQL of the value.
        kind: its type.
        divides: returns whether a list, STRUCT or MAP of this type is divided into its parts.
        text: returns the SQL of a scalar, or of an undivided value, as JSON text.
        depth: lists and MAPs around the value.
    """
    if isinstance(kind, Scalar) or not divides(kind):
        return text(value, kind)
    if isinstance(kind, Struct):
        parts = []
        for at, (name, inner) in enumerate(kind.fields):
            head = _literal(("," if at else "{") + json.dumps(name, ensure_ascii=False) + ":")
            member = composed(f"struct_extract({value}, {_literal(name)})", inner, divides, text, depth)
            parts.append(f"{head}, coalesce({member}, 'null')")
        return f"CASE WHEN {value} IS NOT NULL THEN concat({', '.join(parts)}, '}}') END"
    each = f"e{depth}"
    if isinstance(kind, ListOf):
        item = f"coalesce({composed(each, kind.item, divides, text, depth + 1)}, 'null')"
        return f"'[' || array_to_string(list_transform({value}, lambda {each}: {item}), ',') || ']'"
    item = f"to_json({each}.key) || ':' || coalesce({composed(f'{each}.value', kind.item, divides, text, depth + 1)}, 'null')"
    return f"'{{' || array_to_string(list_transform(map_entries({value}), lambda {each}: {item}), ',') || '}}'"


def contains(kind: Type, names: set[str]) -> bool:
    """Return whether a type is one of these scalars, or contains one at any depth."""
    if isinstance(kind, ListOf | MapOf):
        return contains(kind.item, names)
    if isinstance(kind, Struct):
        return any(contains(inner, names) for _, inner in kind.fields)
    return kind.name in names


def _scalar(value: str, kind: Type) -> str:
    if isinstance(kind, Scalar) and kind.name == "JSON":
        return f"CAST({value} AS VARCHAR)"
    if isinstance(kind, Scalar) and kind.name == "BLOB":
        return f"""'"' || base64({value}) || '"'"""
    return f"CAST(to_json({value}) AS VARCHAR)"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
