"""Combine paths to trees: the values that a decoder must build, and how to select leaves from its result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.schema.columns import Columns, ListOf, Struct, Type
from resources.decode.json.native import NativeJson, Place

__all__ = ["Trees", "picked"]

Parts = tuple[str | int, ...]


def picked(value: Any, parts: Parts) -> tuple[bool, Any]:
    """Return whether the path exists in a value, and the value at it."""
    for part in parts:
        if isinstance(part, str):
            if not isinstance(value, dict) or part not in value:
                return False, None
        elif not isinstance(value, list) or part >= len(value):
            return False, None
        value = value[part]
    return True, value


@dataclass
class _Node:
    """Members by name, or the items of a list (under the name None), or a leaf."""

    kind: Type | None = None
    below: dict[str | None, _Node] = field(default_factory=dict)

    def type(self) -> Type:
        if self.kind is not None:
            return self.kind
        if None in self.below:
            return ListOf(self.below[None].type())
        return Struct(tuple((str(name), node.type()) for name, node in self.below.items()))

    def ways(self) -> Iterator[Place]:
        """Yield the places of this node and of all nodes below it, except leaves."""
        if self.kind is None:
            yield ()
            for name, node in self.below.items():
                yield from ((name, *place) for place in node.ways())


class Trees:
    """Leaves divided into trees, so that in a tree no path is a prefix of another.

    Args:
        leaves: name, type and path of each; no path is empty. A path that begins with an array index is always absent.
    """

    def __init__(self, leaves: Sequence[tuple[str, Type, Parts]]) -> None:
        roots: list[_Node] = []
        self._leaves: list[list[tuple[str, Parts]]] = []
        for name, kind, parts in leaves:
            if isinstance(parts[0], int):
                continue
            for root, mine in zip(roots, self._leaves, strict=True):
                if _insert(root, kind, parts):
                    mine.append((name, parts))
                    break
            else:
                roots.append(_Node())
                _insert(roots[-1], kind, parts)
                self._leaves.append([(name, parts)])
        #: Columns to decode for each tree.
        self.columns = [Columns(tuple((str(name), node.type()) for name, node in root.below.items())) for root in roots]
        #: By tree, the places of objects and lists on the paths to leaves.
        self.ways = [frozenset(root.ways()) for root in roots]

    def leaves(self, at: int, table: pa.Table, native: NativeJson) -> dict[str, tuple[pa.Array, np.ndarray[Any, Any]]]:
        """Return the leaves of a tree by name: the values, and which are absent.

        Args:
            at: index of the tree.
            table: its decoded columns.
            native: the decoder, which still has the state of this table.
        """
        columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        places, node = {}, 1
        for name, kind in self.columns[at]:
            places[name] = (node, kind)
            node += _size(kind)
        found = {}
        for name, (first, *rest) in self._leaves[at]:
            found[name] = _taken(columns[str(first)], *places[str(first)], tuple(rest), native)
        return found


def _insert(root: _Node, kind: Type, parts: Parts) -> bool:
    """Insert a path into a tree, and return whether it fits."""
    node, steps = root, [part if isinstance(part, str) else None for part in parts]
    for at, step in enumerate(steps):
        if node.kind is not None or (node.below and (None in node.below) != (step is None)):
            return False
        if step not in node.below:
            break
        node = node.below[step]
        if at == len(steps) - 1:
            return False
    else:
        return False
    for step in steps[at:]:
        node.below[step] = node = _Node()
    node.kind = kind
    return True


def _size(kind: Type) -> int:
    """Return the number of nodes of a type."""
    if isinstance(kind, Struct):
        return 1 + sum(_size(item) for _, item in kind.fields)
    return 1 + _size(kind.item) if isinstance(kind, ListOf) else 1


def _taken(array: pa.Array, node: int, kind: Type, parts: Parts, native: NativeJson) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    rows = np.arange(len(array))
    gone = np.zeros(len(array), bool)
    moved = False
    for part in parts:
        if isinstance(part, str):
            assert isinstance(kind, Struct)
            place = [name for name, _ in kind.fields].index(part)
            node += 1 + sum(_size(item) for _, item in kind.fields[:place])
            kind, array = kind.fields[place][1], array.field(place)  # null where the object is null
        else:
            assert isinstance(kind, ListOf)
            bounds = np.asarray(array.offsets)
            if not len(array):
                short = np.ones(len(rows), bool)
            else:
                here = np.where(gone, 0, rows)
                short = bounds[here + 1] - bounds[here] <= part
                rows = bounds[here] + part
            gone = gone | short
            node, kind, array, moved = node + 1, kind.item, array.values, True
    absent = native.absent(node, len(array))
    if not moved:
        return array, absent
    gone = gone | (absent[np.where(gone, 0, rows)] if len(absent) else True)
    return array.take(pa.array(np.where(gone, 0, rows), mask=gone)), gone
