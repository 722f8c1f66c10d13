"""Expand a list of each record into one row for each element, before other expressions are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.errors import InvalidPipeline
from kpipe.expressions.select import Unnest
from kpipe.schema.columns import Columns, ListOf, Type
from resources.decode.repeated import MOST_BYTES, MOST_CELLS, bytes_copied, crowded
from resources.duckdb_engine.expressions import Assigned, Evaluator

__all__ = ["Lists", "bounded"]

_LIST = "list"


class Lists:
    """Expander of lists.

    Args:
        unnest: the list, and the names of its elements.
        inputs: names and types of the columns that its expression reads.

    Raises:
        InvalidPipeline: the expression does not fit these types, or does not return a list.
    """

    def __init__(self, unnest: Unnest, inputs: Columns) -> None:
        self._unnest = unnest
        self._evaluator = Evaluator(inputs, "", [Assigned(_LIST, unnest.text)])
        kind: Type | None = self._evaluator.columns.get(_LIST)
        if not isinstance(kind, ListOf):
            raise InvalidPipeline(
                f"select: UNNEST({unnest.text}): not a list: expected a list, found {kind}",
                "declare its type, for example columns: {lines: 'STRUCT(sku VARCHAR, quantity BIGINT)[]'}",
            )
        numbers = {unnest.number: "BIGINT"} if unnest.number is not None else {}
        #: Columns that every row gains.
        self.columns = Columns(((unnest.element, kind.item), *Columns.of(numbers).items))

    def apart(
        self, given: pa.Table, payloads: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], list[pa.Array], dict[int, str]]:
        """Return the source row of each new row, the new columns, and the payloads for which the expression fails."""
        values, failed = self._evaluator.values(given)
        good = np.ones(given.num_rows, bool)
        good[list(failed)] = False
        rows = np.flatnonzero(good)
        lists = values.column(0).combine_chunks()
        parents = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
        arrays: list[pa.Array] = [pc.list_flatten(lists)]
        if self._unnest.number is not None:
            first = np.searchsorted(parents, parents, side="left")  # parents are in order
            arrays.append(pa.array(np.arange(len(parents)) - first + 1, pa.int64()))
        bad: dict[int, str] = {}
        for row, why in sorted(failed.items()):
            bad.setdefault(int(payloads[row]), why.replace(f"{_LIST}: ", "UNNEST: ", 1))
        return rows[parents], arrays, bad


def bounded(
    tables: Sequence[pa.Table],
    rows: np.ndarray[Any, Any],
    elements: list[pa.Array],
    payloads: np.ndarray[Any, Any],
    bad: dict[int, str],
    width: int,
) -> tuple[np.ndarray[Any, Any], list[pa.Array]]:
    """Return the rows and elements of payloads whose other columns may be repeated so often; add the others to `bad`.

    Args:
        tables: the columns that are repeated.
        rows: see `Lists.apart`.
        elements: the new columns.
        payloads: of each source row.
        bad: payloads with the reasons.
        width: number of columns and members of a new row.

    Raises:
        TooManyRows: the copies of several payloads take too much memory together.
    """
    counts = np.bincount(rows, minlength=len(payloads))
    for payload, (number, _) in crowded(bytes_copied(tables, counts), payloads, counts, width).items():
        why = f"UNNEST: {number:,} rows, each with the record's other columns: over {MOST_BYTES >> 20} MiB"
        bad.setdefault(payload, f"{why} or {MOST_CELLS:,} values in all: select only the columns that you need")
    stay = ~np.isin(payloads[rows], list(bad))
    return (rows, elements) if stay.all() else (rows[stay], [array.filter(pa.array(stay)) for array in elements])
