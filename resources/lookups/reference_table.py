"""A lookup in memory: its rows in Arrow format, and an index of its keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.definition.lookups import Version
from kpipe.schema.columns import Columns
from resources.decode.repeated import sizes
from resources.duckdb_engine import in_memory

__all__ = ["Here", "LookupRows", "Reference", "packed"]


class LookupRows(Protocol):
    """Provider of a lookup's rows in the process that reads them: Spark's broadcast, or `Here`."""

    @property
    def value(self) -> Reference:
        """The lookup."""


@dataclass(frozen=True)
class Here:
    """Provider of a lookup that is already in this process."""

    value: Reference


@dataclass(frozen=True, eq=False)
class Reference:
    """One version of a lookup. Pickles as its rows; each process builds the index once.

    Attributes:
        name: of the lookup.
        keys: number of key columns.
        columns: the key's columns, then the requested ones, in the source's spelling.
        required: whether a key without a row is an error of the record.
        version: hash of the content.
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
        """Hashes of the keys in order, the row of each, and the largest number of rows with the same hash (normally one)."""
        hashes = _hashed(self.table.select(list(range(self.keys))))
        rows = np.argsort(hashes, kind="stable")
        hashes = hashes[rows]
        ends = np.flatnonzero(np.append(hashes[1:] != hashes[:-1], True)) if len(hashes) else np.zeros(0, np.int64)
        return hashes, rows, int(np.diff(np.append(-1, ends)).max(initial=0))

    @cached_property
    def _sizes(self) -> dict[int, np.ndarray[Any, Any]]:
        return {}

    def sizes(self, column: int) -> np.ndarray[Any, Any]:
        """Return about how many bytes a copy of each row's value takes."""
        if column not in self._sizes:
            self._sizes[column] = sizes(self.table.column(column).combine_chunks())
        return self._sizes[column]

    def find(self, keys: pa.Table) -> pa.Array:
        """Return the row of each key; null without a row, or if a part of the key is NULL.

        The cost is that of a binary search, so that a batch of a few records stays cheap with a
        large lookup.

        Args:
            keys: columns with the types of the key.
        """
        hashes, order, most = self._index
        wanted = _hashed(keys)
        rows = np.full(len(wanted), -1, np.int64)
        at = np.searchsorted(hashes, wanted)
        for step in range(most):
            near = np.flatnonzero((rows < 0) & (at + step < len(hashes)))
            near = near[hashes[at[near] + step] == wanted[near]]
            if not len(near):
                break
            candidates = order[at[near] + step]
            same = np.ones(len(near), bool)
            for column in range(self.keys):
                mine = self.table.column(column).take(pa.array(candidates))
                equal = pc.equal(mine, keys.column(column).take(pa.array(near)))
                same &= pc.fill_null(equal, False).to_numpy()
            rows[near[same]] = candidates[same]
        return pa.array(rows, mask=rows < 0)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("table", "_index", "_sizes")}


def _hashed(keys: pa.Table) -> np.ndarray[Any, Any]:
    """Return a number for each row of these columns: a single integer itself, else DuckDB's hash.

    Hashes are compared only within a process: versions of DuckDB may differ.
    """
    if keys.num_columns == 1 and pa.types.is_integer(keys.column(0).type):  # a query for each block costs more than the search
        return np.asarray(pc.fill_null(keys.column(0), 0).to_numpy())
    names = [f"k{at}" for at in range(keys.num_columns)]
    hashes = in_memory.query(f"SELECT hash({', '.join(names)}) AS h FROM block", keys.rename_columns(names))  # noqa: S608 - our own names
    return np.asarray(hashes.column("h").to_numpy())


def packed(table: pa.Table) -> bytes:
    """Serialize rows for `Reference.data`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
