"""Decoders that take no record with more new columns than kpipe/column_growth.py allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.column_growth import ADVICE, MOST_IN_BATCH, MOST_IN_RECORD, Closed, Left, listed, named, refused, trimmed, widened
from kpipe.definition.pipeline import Pipeline
from kpipe.schema import column_names
from kpipe.schema.columns import Columns
from kpipe.schema.growth_limits import Room, room
from resources.decode.block import Decoded, Decoder, Payloads

__all__ = ["Bound", "Bounded", "bound_of", "joined"]

_FAN_OUT = 32  # as in json/decoder.py


@dataclass(frozen=True)
class Bound:
    """Which new columns a record may hold.

    Attributes:
        columns: that a decoder gives.
        free: columns, in lower case, that the definition names: they do not count; what is inside of them does.
        closed: why there are no further columns; None: there are.
        room: of the destination; None: not looked at.
        table: the columns of the table, which may be others than the decoder gives.
        rejects: whether a record beyond the bounds is no row; else its new columns are only reported, the first of them.
        destination: its type (`into.type`), whose rules the names of new columns keep (kpipe/schema/column_names.py).
    """

    columns: Columns = field(default_factory=Columns)
    free: frozenset[str] = frozenset()
    closed: Closed | None = None
    rejects: bool = True
    destination: str = ""
    room: Room | None = None
    table: Columns = field(default_factory=Columns)

    def unfit(self, names: Iterable[str]) -> list[str]:
        """Return the names of new columns that the destination's columns cannot have."""
        return [
            name for name in names
            if column_names.fault(self.destination, name) and name not in self.columns and name.lower() not in self.free
        ]  # fmt: skip

    @cached_property
    def _left(self) -> Left | None:
        """What the table leaves room for: counted once."""
        return None if self.room is None else Left(self.table, self.room)

    def beyond(self, new: Columns, alone: bool = False) -> str:
        """Return why a record with these new columns is no row; empty where it may be one.

        A record is judged by what it holds itself, so that no record makes its neighbours dead letters. Of several records:
        empty means that each of them may be a row; else each of them has to be looked at.

        Args:
            new: the columns, with names that differ by case only kept apart (`settled`).
            alone: whether they are those of one record.
        """
        if not self.rejects or not new:
            return ""
        outer = [name for name in new.names() if name not in self.columns and name.lower() not in self.free]
        if len(outer) > MOST_IN_RECORD:
            return f"{len(outer):,} members without a column ({listed(outer)}), {MOST_IN_RECORD:,} at most: {ADVICE}"
        bad = self.unfit(outer)
        if bad:
            shown = listed([repr(name) for name in sorted(bad)])
            return f"no column for {shown}: {column_names.fault(self.destination, min(bad))}: {column_names.RENAME}"
        if why := refused(self.columns, new):
            return f"{why}: {ADVICE}"
        own = self._left.beyond(self.table, new, self.free, alone) if self._left is not None else Closed()
        if self.closed is None and own == Closed():
            return ""
        # What a record has beyond all others of its batch, and was not counted with them.
        other, most = self.closed or Closed(), f"a batch adds {MOST_IN_BATCH:,} columns and fields to a table at most"
        if outer and (self.closed is not None or own.column):
            why = own.column or other.column or most
            return f"no column for {listed(outer)}: {why}: {ADVICE}"
        inner = [name for name in new.names() if name in self.columns]
        if inner:
            why = own.field or other.field or most
            return f"{listed(inner)}: no field for some members inside: {why}: {ADVICE}"
        return ""

    def report(self, new: Columns) -> Columns:
        """Return new columns as a task reports them."""
        return trimmed(new, self.columns, self.free)


def bound_of(pipeline: Pipeline, closed: Closed | None, table: Columns) -> Bound:
    """Return the bound of records for one of a pipeline's tables; `closed` and `table` as of `Bound`."""
    kind = pipeline.into.type
    return Bound(free=named(pipeline), closed=closed, rejects=widened(pipeline), destination=kind, room=room(kind), table=table)


class Bounded:
    """A decoder that rejects records with too many new columns.

    Args:
        inner: the decoder.
        bound: which new columns there may be.
        looks: whether `inner` rejects such records by itself, which takes less time than to search for them.
    """

    def __init__(self, inner: Decoder, bound: Bound, looks: bool = False) -> None:
        self._inner, self._bound, self._looks = inner, bound, looks
        self.takes_nulls = inner.takes_nulls

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`."""
        found = self._inner.decode(payloads, keys)
        why = "" if self._looks else self._bound.beyond(found.new_columns, alone=len(payloads) == 1)
        if not why:
            return replace(found, new_columns=self._bound.report(found.new_columns))
        if len(payloads) == 1:
            return replace(found, table=found.table.slice(0, 0), rows=0, kept=[], rejects=[(0, why)], new_columns=Columns())
        size = max(1, -(-len(payloads) // _FAN_OUT))
        starts = range(0, len(payloads), size)
        ends = [min(start + size, len(payloads)) for start in starts]
        whole = joined([
            (start, end, self.decode(payloads.part(start, end), None if keys is None else keys.slice(start, end - start)))
            for start, end in zip(starts, ends, strict=True)
        ])  # fmt: skip
        return replace(whole, new_columns=self._bound.report(whole.new_columns))


def joined(decoded: Sequence[tuple[int, int, Decoded]]) -> Decoded:
    """Join the parts of a block, each of which is the payloads `[start, end)`."""
    kept: list[Any] = [
        start + (np.asarray(part.kept, np.int64) if part.kept is not None else np.arange(end - start))
        for start, end, part in decoded
    ]
    new = Columns()
    for _, _, part in decoded:
        new = new.joined(part.new_columns, apart=True)
    return Decoded(
        pa.concat_tables([part.table for _, _, part in decoded]),
        sum(part.rows for _, _, part in decoded),
        np.concatenate(kept).tolist(),
        [(start + at, why) for start, _, part in decoded for at, why in part.rejects],
        new,
        [(start + at, why) for start, _, part in decoded for at, why in part.refused],
    )
