"""A list of each record taken apart: one row for each element, before anything else is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.errors import InvalidPipeline
from kpipe.expressions.select import Unnest
from kpipe.schema.columns import Columns, ListOf, Type
from resources.duckdb_engine.expressions import Assigned, Evaluator

__all__ = ["Lists"]

_LIST = "list"


class Lists:
    """Takes lists apart.

    Args:
        unnest: which list, and what its elements are called.
        inputs: names and types of what its expression takes values from.

    Raises:
        InvalidPipeline: the expression does not fit these types, or gives no list.
    """

    def __init__(self, unnest: Unnest, inputs: Columns) -> None:
        self._unnest = unnest
        self._evaluator = Evaluator(inputs, "", [Assigned(_LIST, unnest.text)])
        kind: Type | None = self._evaluator.columns.get(_LIST)
        if not isinstance(kind, ListOf):
            raise InvalidPipeline(
                f"select: UNNEST({unnest.text}) takes a list, and that is {kind}",
                "declare its type, for example columns: {lines: 'STRUCT(sku VARCHAR, quantity BIGINT)[]'}",
            )
        numbers = {unnest.number: "BIGINT"} if unnest.number is not None else {}
        #: What every row gains.
        self.columns = Columns(((unnest.element, kind.item), *Columns.of(numbers).items))

    def apart(
        self, given: pa.Table, payloads: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], list[pa.Array], dict[int, str]]:
        """Which of the given rows each new row comes of, the new columns, and the payloads for which the expression fails."""
        found, failed = self._evaluator.values(given)
        good = np.ones(given.num_rows, bool)
        good[list(failed)] = False
        rows = np.flatnonzero(good)
        lists = found.column(0).combine_chunks()
        parents = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
        arrays: list[pa.Array] = [pc.list_flatten(lists)]
        if self._unnest.number is not None:
            first = np.searchsorted(parents, parents, side="left")  # parents are in order
            arrays.append(pa.array(np.arange(len(parents)) - first + 1, pa.int64()))
        bad: dict[int, str] = {}
        for row, why in sorted(failed.items()):
            bad.setdefault(int(payloads[row]), why.replace(f"{_LIST}: ", "UNNEST: ", 1))
        return rows[parents], arrays, bad
