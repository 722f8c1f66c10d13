"""A lookup that has been read: its rows in Arrow's own format, and where a key stands among them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.definition.lookups import Version
from kpipe.schema.columns import Columns
from resources.duckdb_engine import in_memory

__all__ = ["Held", "Here", "Reference", "packed"]


class Held(Protocol):
    """What gives a lookup's rows in the process that asks: Spark's broadcast, or `Here`."""

    @property
    def value(self) -> Reference:
        """The lookup."""


@dataclass(frozen=True)
class Here:
    """A lookup that is in this process already."""

    value: Reference


@dataclass(frozen=True, eq=False)
class Reference:
    """One version of a lookup. Pickles as its rows; what is made of them is made once in each process.

    Attributes:
        name: of the lookup.
        keys: how many of the columns are the key.
        columns: the key's columns, then those that are asked for, as they are spelt where it comes from.
        required: whether a key without a row is an error of the record.
        version: what was read.
        data: the rows, an Arrow IPC stream of staged types.
    """

    name: str
    keys: int
    columns: Columns
    required: bool
    version: Version
    data: bytes = field(repr=False)

    @cached_property
    def table(self) -> pa.Table:
        """The rows; nothing is copied."""
        return pa.ipc.open_stream(pa.py_buffer(self.data)).read_all().combine_chunks()

    @cached_property
    def _index(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], int]:
        """Hashes of the keys in order, the row of each, and how many rows share one at most (one, but by chance)."""
        hashes = _hashed(self.table.select(list(range(self.keys))))
        rows = np.argsort(hashes, kind="stable")
        hashes = hashes[rows]
        ends = np.flatnonzero(np.append(hashes[1:] != hashes[:-1], True)) if len(hashes) else np.zeros(0, np.int64)
        return hashes, rows, int(np.diff(np.append(-1, ends)).max(initial=0))

    def find(self, keys: pa.Table) -> pa.Array:
        """Row of each key; null where there is none, or a part of the key is NULL.

        The cost does not depend on how many rows there are, but for the depth of a binary search: a batch of a few records
        must not pay for a large lookup.

        Args:
            keys: columns of the types of the key.
        """
        hashes, rows, most = self._index
        wanted = _hashed(keys)
        found = np.full(len(wanted), -1, np.int64)
        at = np.searchsorted(hashes, wanted)
        for step in range(most):
            near = np.flatnonzero((found < 0) & (at + step < len(hashes)))
            near = near[hashes[at[near] + step] == wanted[near]]
            if not len(near):
                break
            candidates = rows[at[near] + step]
            same = np.ones(len(near), bool)
            for column in range(self.keys):
                mine = self.table.column(column).take(pa.array(candidates))
                equal = pc.equal(mine, keys.column(column).take(pa.array(near)))
                same &= pc.fill_null(equal, False).to_numpy()
            found[near[same]] = candidates[same]
        return pa.array(found, mask=found < 0)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("table", "_index")}


def _hashed(keys: pa.Table) -> np.ndarray[Any, Any]:
    """A number for each row of these columns: of one integer itself, else DuckDB's hash.

    Only compared within a process: versions of DuckDB may differ.
    """
    if keys.num_columns == 1 and pa.types.is_integer(keys.column(0).type):  # a query for each block costs more than the search
        return np.asarray(pc.fill_null(keys.column(0), 0).to_numpy())
    names = [f"k{at}" for at in range(keys.num_columns)]
    found = in_memory.query(f"SELECT hash({', '.join(names)}) AS h FROM block", keys.rename_columns(names))  # noqa: S608 - our own names
    return np.asarray(found.column("h").to_numpy())


def packed(table: pa.Table) -> bytes:
    """The rows as `Reference.data`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
