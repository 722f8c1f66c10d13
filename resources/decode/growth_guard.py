"""Reject records with more new columns than kpipe/column_growth.py allows."""

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
from kpipe.tables.upsert import naming_of
from resources.decode.block import Decoded, Decoder, Payloads

__all__ = ["Bound", "Bounded", "bound_of", "joined"]

_FAN_OUT = 32  # as in json/decoder.py


@dataclass(frozen=True)
class Bound:
    """Limits on a record's new columns.

    Attributes:
        columns: the decoder's columns.
        free: columns of the definition, in lower case. They do not count; members inside them do.
        closed: the reason why the table takes no more columns; None: it takes more.
        room: the destination's limits; None: not checked.
        table: the table's columns, which may differ from the decoder's.
        rejects: whether a record beyond the limits is a reject. If not, its first new columns are reported.
        ignored: whether nothing uses new columns (`schema: ignore`).
        copied: columns of the table that a `select` copies and records may widen. A record that adds there what no column can
            take (`refused`) is a reject whatever `rejects` is.
        destination: whose rules apply to the names of new columns (`rules` in kpipe/schema/column_names.py).
    """

    columns: Columns = field(default_factory=Columns)
    free: frozenset[str] = frozenset()
    closed: Closed | None = None
    rejects: bool = True
    ignored: bool = False
    copied: Columns = field(default_factory=Columns)
    destination: str = ""
    room: Room | None = None
    table: Columns = field(default_factory=Columns)

    def unfit(self, names: Iterable[str]) -> list[str]:
        """Return the names that the destination does not allow for new columns."""
        return [
            name for name in names
            if column_names.fault(self.destination, name) and name not in self.columns and name.lower() not in self.free
        ]  # fmt: skip

    @cached_property
    def _left(self) -> Left | None:
        """The number of columns that the table can still take, counted once."""
        return None if self.room is None else Left(self.table, self.room)

    @cached_property
    def certain(self) -> int:
        """The number of new columns without fields that a record may have for certain, if each of them may be a column."""
        if self.closed is not None:
            return 0
        return MOST_IN_RECORD if self._left is None else max(0, min(MOST_IN_RECORD, self._left.scalars()))

    def beyond(self, new: Columns, alone: bool = False) -> str:
        """Return the reason why a record with these new columns is a reject; empty if it is not.

        Each record is judged by its own columns, so that no record makes others dead letters. For several records, empty means
        that none is a reject; otherwise each has to be checked alone.

        Args:
            new: the columns; names that differ by case only are separate (`settled`).
            alone: whether they belong to one record.
        """
        if not new:
            return ""
        if not self.rejects:
            why = refused(self.copied, new)
            return f"{why}: {ADVICE}" if why else ""
        outer = [name for name in new.names() if name not in self.columns and name.lower() not in self.free]
        if len(outer) > MOST_IN_RECORD:
            return (
                f"expected at most {MOST_IN_RECORD:,} members without a column, found {len(outer):,} ({listed(outer)}): {ADVICE}"
            )
        bad = self.unfit(outer)
        if bad:
            names = listed([repr(name) for name in sorted(bad)])
            return f"no column for {names}: {column_names.fault(self.destination, min(bad))}: {column_names.RENAME}"
        if why := refused(self.columns, new):
            return f"{why}: {ADVICE}"
        own = self._left.beyond(self.table, new, self.free, alone) if self._left is not None else Closed()
        if self.closed is None and own == Closed():
            return ""
        # Columns that only this record of its batch has, and that were not counted with the others.
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
        """Return the new columns that a task reports."""
        return trimmed(new, self.columns, self.free)


def bound_of(pipeline: Pipeline, closed: Closed | None, table: Columns) -> Bound:
    """Return the limits for one of a pipeline's tables; `closed` and `table` are those of `Bound`."""
    kind, ignored = naming_of(pipeline), pipeline.evolution == "ignore"
    return Bound(
        free=named(pipeline),
        closed=closed,
        rejects=widened(pipeline),
        ignored=ignored,
        copied=_copied(pipeline, table),
        destination=kind,
        room=room(kind),
        table=table,
    )


def _copied(pipeline: Pipeline, table: Columns) -> Columns:
    """Return the columns of a table that a `select` copies, if records may widen them."""
    from kpipe.expressions.projection import Selection  # the compiler of expressions: tasks do without

    selection = Selection.of(pipeline) if pipeline.evolution == "evolve" else None
    names = {name.lower() for name in (selection.only or ())} if selection is not None else set()
    return Columns(tuple(item for item in table if item[0].lower() in names))


class Bounded:
    """A decoder that rejects records with too many new columns.

    Args:
        inner: the decoder.
        bound: the limits.
        checks: whether `inner` rejects such records itself, which is faster than searching for them. `found` is searched.
    """

    def __init__(self, inner: Decoder, bound: Bound, checks: bool = False) -> None:
        self._inner, self._bound, self._checks = inner, bound, checks
        self.takes_nulls = inner.takes_nulls

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`."""
        decoded = self._inner.decode(payloads, keys)
        why = self._bound.beyond(decoded.found if self._checks else decoded.new_columns, alone=len(payloads) == 1)
        if not why:
            return replace(decoded, new_columns=self._bound.report(decoded.new_columns))
        if len(payloads) == 1:
            return replace(decoded, table=decoded.table.slice(0, 0), rows=0, kept=[], rejects=[(0, why)], new_columns=Columns())
        size = max(1, -(-len(payloads) // _FAN_OUT))
        starts = range(0, len(payloads), size)
        ends = [min(start + size, len(payloads)) for start in starts]
        whole = joined([
            (start, end, self.decode(payloads.part(start, end), None if keys is None else keys.slice(start, end - start)))
            for start, end in zip(starts, ends, strict=True)
        ])  # fmt: skip
        return replace(whole, new_columns=self._bound.report(whole.new_columns))


def joined(decoded: Sequence[tuple[int, int, Decoded]]) -> Decoded:
    """Join the decoded parts of a block; each part is (start, end, decoded payloads `[start, end)`)."""
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
        [start + at for start, _, part in decoded for at in part.deleted],
        pa.concat_tables(keys) if (keys := [part.keys for _, _, part in decoded if part.keys is not None]) else None,
        [(start + at, why, hint) for start, _, part in decoded for at, why, hint in part.stops],
    )
