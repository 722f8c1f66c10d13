"""Decode a record's key and value to columns of one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.schema.columns import Columns
from resources.decode.block import Decoded, Decoder, Payloads, filtered
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import schema

__all__ = ["KeyedDecoder"]


class KeyedDecoder:
    """Decodes values and keys, each by its own format, into the same columns.

    A record without a key has NULL in the key's columns; a key is one row. If key and value contain the same column with
    different values, the record is a reject: choosing one would lose the other. The value and the key of a reject add no columns.

    Args:
        value: decoder of values, for some or all columns.
        key: decoder of keys, for some or all columns.
        columns: the columns of both.
    """

    def __init__(self, value: Decoder, key: Decoder, columns: Columns) -> None:
        self._value, self._key, self._schema = value, key, schema(columns)
        self.takes_nulls = value.takes_nulls

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`. Without keys, decodes the values only."""
        values = self._value.decode(payloads, keys)
        if keys is None:
            return replace(values, table=self._whole(values.table, values.rows))
        keyed = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
        nothing, newline = pa.scalar(b"", pa.large_binary()), pa.scalar(b"\n", pa.large_binary())
        lines = pc.binary_join_element_wise(keys.drop_null().cast(pa.large_binary()), nothing, newline)
        decoded = self._key.decode(Payloads.of_array(lines))
        owners = keyed[decoded.owners]
        bad = {int(keyed[index]): f"key: {why}" for index, why in decoded.rejects}
        for owner in owners[1:][owners[1:] == owners[:-1]].tolist():
            bad.setdefault(owner, "key: expected one row, found several")
        for owner in np.setdiff1d(keyed, owners).tolist():
            bad.setdefault(owner, "key: expected one row, found none")
        key_rows = np.full(len(payloads), -1, np.int64)
        key_rows[owners] = np.arange(len(owners))
        records = values.owners
        rows = key_rows[records]
        take = pa.array(rows, pa.int64(), mask=rows < 0)
        one, other = self._whole(values.table, values.rows), self._whole(decoded.table, decoded.rows)
        names = self._schema.names
        columns = [self._joined(name, one.column(name), other.column(name), take, records, bad) for name in names]
        table = pa.table(columns, schema=self._schema) if columns else one
        new = values.new_columns.joined(decoded.new_columns)
        if not bad and not (values.rejects and len(decoded.new_columns)):
            return Decoded(table, values.rows, values.kept, values.rejects, new)
        good = ~np.isin(records, list(bad))
        rejected = {index for index, _ in values.rejects}
        rejects = sorted([*values.rejects, *(item for item in bad.items() if item[0] not in rejected)])
        if len(new):  # some may be of rejects only
            return self._without(rejects, payloads, keys)
        return Decoded(filtered(table, good), int(good.sum()), records[good].tolist(), rejects)

    def _without(self, rejects: Sequence[tuple[int, str]], payloads: Payloads, keys: pa.Array) -> Decoded:
        """Decode the other records of a block again."""
        stay = np.setdiff1d(np.arange(len(payloads)), [index for index, _ in rejects])
        rest = self.decode(payloads.take(stay), keys.take(pa.array(stay)))
        kept = stay if rest.kept is None else stay[np.asarray(rest.kept, np.int64)]
        more = [(int(stay[at]), why) for at, why in rest.rejects]
        return replace(rest, kept=kept.tolist(), rejects=sorted([*rejects, *more]))

    def _whole(self, table: pa.Table, rows: int) -> pa.Table:
        """Add columns of NULLs for those that the table lacks."""
        names = set(table.column_names)
        arrays = [table.column(item.name) if item.name in names else pa.nulls(rows, item.type) for item in self._schema]
        return pa.table(arrays, schema=self._schema)

    def _joined(
        self,
        name: str,
        value: pa.ChunkedArray,
        key: pa.ChunkedArray,
        take: pa.Array,
        records: np.ndarray[Any, Any],
        bad: dict[int, str],
    ) -> pa.ChunkedArray:
        if key.null_count == len(key):
            return value
        mine = key.take(take)
        if value.null_count == len(value):
            return mine
        both = pc.and_(value.is_valid(), mine.is_valid())
        try:
            differ = pc.fill_null(pc.and_(both, pc.not_equal(value, mine)), False).to_numpy()
        except pa.ArrowNotImplementedError:  # STRUCTs and lists; Python has no times beyond the year 9999
            pairs = pa.table([value, mine], names=["v", "k"])
            distinct = in_memory.query("SELECT v IS DISTINCT FROM k AS differ FROM block", pairs).column("differ")
            differ = pc.and_(both, distinct).to_numpy()
        for row in np.flatnonzero(differ).tolist():
            bad.setdefault(int(records[row]), f"key: {name} differs between key and value")
        return pc.coalesce(value, mine)
