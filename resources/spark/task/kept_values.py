"""Rows of change events whose update left out a value that it did not change (kpipe/tables/changes.py)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.tables.changes import UNCHANGED, mark, marked_columns, marks
from resources.decode.block import Decoded

__all__ = ["missing", "settled"]

_HINT = "set REPLICA IDENTITY FULL for the source's table, or remove the column from the expression"


def settled(decoded: Decoded, inputs: Iterable[str], assigned: Collection[str]) -> Decoded:
    """Stop at rows whose expressions read a value that is not in the record; a column that is assigned has its value.

    Args:
        decoded: the rows, before expressions are evaluated.
        inputs: columns that expressions read.
        assigned: columns that expressions set, in lower case.
    """
    if UNCHANGED not in decoded.table.column_names or not (flags := decoded.table.column(UNCHANGED)).is_valid().to_numpy().any():
        return decoded
    read, places = {name.lower() for name in inputs}, range(decoded.rows) if decoded.kept is None else decoded.kept
    stops, rest = list(decoded.stops), list[str | None]()
    for at, text in zip(places, flags.to_pylist(), strict=True):
        names = marked_columns([text or ""])
        found = sorted(names & read)
        if found:
            stops.append((int(at), f"an expression reads {found[0]}, which the update did not change and left out", _HINT))
        rest.append(marks(names - set(assigned)))
    column = decoded.table.column_names.index(UNCHANGED)
    table = decoded.table.set_column(column, UNCHANGED, pa.array(rest, pa.string()))
    return replace(decoded, table=table, stops=sorted(stops))


def missing(table: pa.Table, name: str) -> list[int]:
    """Return the rows with NULL in a column, except those whose value the commit keeps."""
    column = table.column(name)
    if not column.null_count:
        return []
    nulls = pc.is_null(column)
    if UNCHANGED in table.column_names:
        kept = pc.fill_null(pc.match_substring(table.column(UNCHANGED), mark(name)), False)
        nulls = pc.and_(nulls, pc.invert(kept))
    return np.flatnonzero(nulls.to_numpy()).tolist()
