"""Add a batch's new columns and fields to column types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kpipe.schema.columns import Columns, ListOf, Struct, Type
from resources.type_compatibility import Path

__all__ = ["added", "grown"]


def grown(known: Columns, steps: Iterable[tuple[Path, Type]]) -> Columns:
    """Return the columns with all steps added: new columns at the end, new fields inside structs."""
    result = list(known.items)
    for path, new in steps:
        if len(path) == 1:
            result.append((path[0], new))
            continue
        at = next(at for at, (name, _) in enumerate(result) if name.lower() == path[0].lower())
        result[at] = (result[at][0], added(result[at][1], path[1:], new))
    return Columns(tuple(result))


def added(kind: Type, path: Sequence[str], new: Type) -> Type:
    """Return a column type with one more field at the end of a path."""
    if isinstance(kind, ListOf):
        return ListOf(added(kind.item, path[1:], new))
    assert isinstance(kind, Struct)
    if len(path) == 1:
        return Struct((*kind.fields, (path[0], new)))
    return Struct(
        tuple((name, added(item, path[1:], new) if name.lower() == path[0].lower() else item) for name, item in kind.fields)
    )
