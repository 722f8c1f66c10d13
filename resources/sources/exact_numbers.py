"""Keep the digits of numbers whose type the source has: from JSON alone, DECIMAL and integers beyond 64 bits become DOUBLE."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from kpipe.definition.formats import VARIABLE, Format, Mapped
from kpipe.definition.json_path import parse_path
from kpipe.schema.columns import BIGINT, DOUBLE, JSON, Columns, ListOf, MapOf, Scalar, Struct, Type
from resources.destinations.arrow_types import of_type
from resources.sources.json_rows import exact_type

__all__ = ["decimal", "joined", "numbers", "of_arrow", "refined", "selected"]

_WIDEST = 38
#: Integers, and their digits.
_INTEGERS = {
    "TINYINT": 3, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 19, "HUGEINT": 39,
    "UTINYINT": 3, "USMALLINT": 5, "UINTEGER": 10, "UBIGINT": 20,
}  # fmt: skip


#: Types whose values are written as DOUBLE.
_FLOATS = {"FLOAT", "DOUBLE"}


def decimal(precision: int | None, scale: int | None) -> Type:
    """Return the type of a DECIMAL; JSON, which keeps numbers as written, if its values may have more than 38 digits."""
    if precision is None or scale is None or not 0 <= scale <= precision <= _WIDEST:
        return JSON
    return Scalar(f"DECIMAL({precision},{scale})")


def of_arrow(schema: pa.Schema) -> Columns:
    """Return the columns of a file or table, without those that have no type in kpipe."""
    found = ((field.name, of_type(exact_type(field.type))) for field in schema)
    return Columns(tuple((name, kind) for name, kind in found if kind is not None))


def selected(known: Columns, kind: Format) -> Columns:
    """Return the types of a format's columns: with a mapping, those at its paths in the source's columns."""
    if kind.mapping is None:
        return known
    found: list[tuple[str, Type]] = []
    for name, item in kind.mapping.items():
        type = _followed(Struct(known.items), parse_path(item.path if isinstance(item, Mapped) else item))
        if type is not None and not VARIABLE.fullmatch(name):
            found.append((name, type))
    return Columns(tuple(found))


def _followed(kind: Type, path: tuple[str | int, ...]) -> Type | None:
    """Return the type at a path; None: the source gives none, as inside of JSON."""
    if not path:
        return kind
    if isinstance(kind, ListOf):
        return _followed(kind.item, path if isinstance(path[0], str) else path[1:])  # a name: the list is exploded
    if isinstance(kind, MapOf):
        return _followed(kind.item, path[1:])
    inner = dict(kind.fields).get(str(path[0])) if isinstance(kind, Struct) else None
    return None if inner is None else _followed(inner, path[1:])


def joined(found: Iterable[Columns]) -> Columns:
    """Return the columns of several splits, with types that have the digits of all."""
    types: dict[str, tuple[str, Type]] = {}
    for columns in found:
        for name, kind in columns:
            known = types.get(name.lower())
            types[name.lower()] = (name, kind) if known is None else (known[0], _wider(known[1], kind))
    return Columns(tuple(types.values()))


def _wider(first: Type, second: Type) -> Type:
    if isinstance(first, ListOf) and isinstance(second, ListOf):
        return ListOf(_wider(first.item, second.item))
    if isinstance(first, MapOf) and isinstance(second, MapOf):
        return MapOf(_wider(first.item, second.item))
    if isinstance(first, Struct) and isinstance(second, Struct):
        return Struct(joined([Columns(first.fields), Columns(second.fields)]).items)
    if first == second or not (_is_exact(first) or _is_exact(second)):
        return DOUBLE if _FLOATS & {str(first), str(second)} else first
    one, other = _digits(first), _digits(second)
    if one is None or other is None:
        return JSON
    return decimal(max(one[0], other[0]) + max(one[1], other[1]), max(one[1], other[1]))


def _digits(kind: Type) -> tuple[int, int] | None:
    """Return the digits before and after the point that the values of a number may have; None: any number, or no number."""
    if found := re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", str(kind)):
        return int(found[1]) - int(found[2]), int(found[2])
    before = _INTEGERS.get(str(kind))
    return None if before is None else (before, 0)


def numbers(inferred: Columns, known: Columns) -> Columns:
    """Return inferred columns, with the source's types for numbers that a DOUBLE or BIGINT does not keep.

    Databases write 5.0 as 5, so the first records of a FLOAT or DOUBLE may be integers: the column is a DOUBLE.

    Args:
        inferred: the columns of the records.
        known: columns of the source; other types than these numbers are ignored, as records have them in JSON's form.
    """
    return Columns(tuple((name, kind if (own := known.get(name)) is None else _refined(kind, own)) for name, kind in inferred))


def refined(inferred: Columns, known: Columns) -> Columns:
    """Return `numbers`, followed by the source's columns of such numbers that are NULL in all of the records."""
    found = numbers(inferred, known).items
    empty = tuple((name, kind) for name, kind in known if (_is_exact(kind) or kind == JSON) and name not in inferred)
    return Columns((*found, *(item for item in empty if not item[0].lower().startswith("_kafka_"))))


def _refined(inferred: Type, known: Type) -> Type:
    if isinstance(known, ListOf):  # without a list in the records, it is exploded: they have its items
        return ListOf(_refined(inferred.item, known.item)) if isinstance(inferred, ListOf) else _refined(inferred, known.item)
    if isinstance(inferred, Struct) and isinstance(known, MapOf):
        return Struct(tuple((name, _refined(kind, known.item)) for name, kind in inferred.fields))
    if isinstance(inferred, Struct) and isinstance(known, Struct):
        own = {name.lower(): kind for name, kind in known.fields}
        fields = ((name, kind, own.get(name.lower())) for name, kind in inferred.fields)
        return Struct(tuple((name, kind if type is None else _refined(kind, type)) for name, kind, type in fields))
    if inferred not in (BIGINT, DOUBLE):
        return inferred
    if str(known) in _FLOATS:
        return DOUBLE
    return known if _is_exact(known) or known == JSON else inferred


def _is_exact(kind: Type) -> bool:
    return isinstance(kind, Scalar) and (kind.name.startswith("DECIMAL") or kind.name in ("HUGEINT", "UBIGINT"))
