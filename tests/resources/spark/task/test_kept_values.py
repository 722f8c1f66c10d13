"""Columns whose value a change event left out: those that the row's commit keeps, and those that an expression reads."""

from __future__ import annotations

import pyarrow as pa

from kpipe.tables.changes import UNCHANGED, marked_columns, marks
from resources.decode.block import Decoded
from resources.spark.task.kept_values import settled


def kept(names: set[str], decoded: Decoded) -> bool:
    return marked_columns(filter(None, decoded.table.column(UNCHANGED).to_pylist())) == names


def test_only_columns_of_the_row_keep_a_value() -> None:
    """A member without a column is marked, too, but rows of a SELECT have the columns that it lists, and never get others."""
    decoded = Decoded(pa.table({"id": [1, 2], UNCHANGED: [marks({"a", "b", "more"}), None]}), 2)
    assert kept({"a", "more"}, settled(decoded, (), {"b"}))
    assert kept({"a"}, settled(decoded, (), {"b"}, {"id", "a", "b"}))
    found = settled(decoded, ["More"], ())
    assert kept({"a", "b", "more"}, found) and [at for at, _, _ in found.stops] == [0]
