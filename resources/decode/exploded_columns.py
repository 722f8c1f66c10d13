"""Explode lists of typed columns, of Avro and Protobuf: each item takes the place of its list, as in json/divided.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.definition.formats import Format, Mapped
from kpipe.definition.json_path import parse_path
from kpipe.schema.columns import BIGINT, Columns, ListOf, Struct, Type
from resources.decode.block import TooManyRows
from resources.decode.payload_schemas import Unfit
from resources.decode.repeated import MOST_BYTES, copies, repeated_too_often

__all__ = ["ColumnLists", "column_lists"]

# Records whose copies are in memory together; each has the limit of one.
_TOGETHER = 4

Rows = np.ndarray[Any, Any]
Place = tuple[int, ...]


def column_lists(kind: Format, natural: Columns, columns: Columns) -> ColumnLists | None:
    """Return the explosion that a format requires; None: none.

    Args:
        kind: the format.
        natural: columns of the schema.
        columns: the wanted columns; other columns are not repeated.

    Raises:
        Unfit: the schema has no list at the path.
    """
    if kind.explode is None:
        return None
    used = {name.lower() for name in columns.names()}
    if kind.mapping is not None:
        paths = [parse_path(item.path if isinstance(item, Mapped) else item) for item in kind.mapping.values()]
        used = {str(parts[0]).lower() for parts in paths if parts}
        if not all(paths):  # one is the whole record
            used = {name.lower() for name in natural.names()}
    return ColumnLists(natural, kind.explode, kind.explode_outer, used, kind.ordinality)


class ColumnLists:
    """Expander of the lists on a path.

    Args:
        natural: columns of the schema.
        path: of the last list.
        outer: whether a record without items is one row.
        used: columns to repeat, in lower case.
        number: name of a further column, for the number of the row in its record; None: none.

    Raises:
        Unfit: the schema has no list at the path, or has a column of that name.
    """

    def __init__(self, natural: Columns, path: str, outer: bool, used: set[str], number: str | None = None) -> None:
        self._outer, self._path, self._numbered = outer, path, number is not None
        if number is not None and number in natural:
            raise Unfit(f"ordinality: the schema has a field {number}, too")
        self._used = [name.lower() in used for name in natural.names()]
        #: The place of each list, as indices of fields, from the outside in.
        self._places: list[Place] = []
        whole = self._exploded(Struct(natural.items), [str(part) for part in parse_path(path)], ())
        assert isinstance(whole, Struct)
        #: Columns with items in place of their lists.
        self.columns = Columns((*whole.fields, *(((number, BIGINT),) if number is not None else ())))

    def _exploded(self, kind: Type, steps: Sequence[str], place: Place) -> Type:
        if isinstance(kind, ListOf):
            self._places.append(place)
            return self._exploded(kind.item, steps, place) if steps else kind.item
        names = [name for name, _ in kind.fields] if isinstance(kind, Struct) else []
        if not steps or not isinstance(kind, Struct) or steps[0] not in names:
            raise Unfit(f"explode: the schema has no list at {self._path}")
        at = names.index(steps[0])
        inner = self._exploded(kind.fields[at][1], steps[1:], (*place, at))
        return Struct(tuple((name, inner if index == at else item) for index, (name, item) in enumerate(kind.fields)))

    def apart(self, arrays: Sequence[pa.Array], rows: int) -> tuple[list[pa.Array], Rows]:
        """Return the columns with a row for each item, and the row from which each comes.

        Args:
            arrays: columns of the schema.
            rows: number of their rows.

        Raises:
            MemoryError: the repeated columns of a record are too large.
            TooManyRows: those of all records together are.
        """
        there = [
            array if used or any(place[0] == at for place in self._places) else pa.nulls(rows, array.type)
            for at, (array, used) in enumerate(zip(arrays, self._used, strict=True))
        ]
        whole = pa.StructArray.from_arrays(there, names=[str(at) for at in range(len(there))])
        parents = np.arange(rows)
        for place in self._places:
            whole, from_rows = self._one(whole, place)
            parents = parents[from_rows]
        found = [whole.field(at) for at in range(len(there))]
        if self._numbered:
            found.append(pa.array(np.arange(len(parents)) - np.searchsorted(parents, parents, "left") + 1, pa.int64()))
        return found, parents

    def _one(self, whole: pa.StructArray, place: Place) -> tuple[pa.StructArray, Rows]:
        """Explode the list at a place."""
        lists: pa.Array = whole
        for at in place:
            lists = pc.struct_field(lists, [at])
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        counts = np.maximum(lengths, 1) if self._outer else lengths
        parents = np.repeat(np.arange(len(whole)), counts)
        rest = _replaced(whole, place, pa.nulls(len(whole)))
        if repeated_too_often(rest, counts):
            raise MemoryError(f"{len(parents):,} rows")
        if len(whole) > 1 and copies(rest, counts) > _TOGETHER * MOST_BYTES:
            raise TooManyRows
        first, of_items = np.cumsum(counts) - counts, np.cumsum(lengths) - lengths
        items = np.arange(len(parents)) + np.repeat(of_items - first, counts)
        taken = pc.list_flatten(lists).take(pa.array(items, pa.int64(), mask=np.repeat(lengths == 0, counts)))
        return _replaced(rest.take(pa.array(parents, pa.int64())), place, taken), parents


def _replaced(array: pa.Array, place: Place, new: pa.Array) -> pa.Array:
    """Return structs with another field at a place."""
    if not place:
        return new
    fields = [pc.struct_field(array, [at]) for at in range(array.type.num_fields)]
    fields[place[0]] = _replaced(fields[place[0]], place[1:], new)
    return pa.StructArray.from_arrays(fields, names=[item.name for item in array.type], mask=array.is_null())
