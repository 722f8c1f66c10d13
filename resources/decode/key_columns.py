"""Columns of the record's key beside those of its value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.schema.columns import Columns
from resources.decode.block import Decoded, Decoder, Payloads
from resources.duckdb_engine.arrow_types import schema

__all__ = ["KeyedDecoder"]


class KeyedDecoder:
    """Decodes values and keys, each by its own format, into the same columns.

    A record without a key has NULL in the key's columns. A column that both have is taken if both say the same; where they do
    not, the record is a reject: either answer would lose the other.

    Args:
        value: decoder of values, for some of the columns or all.
        key: decoder of keys, likewise.
        columns: what the two give together.
    """

    def __init__(self, value: Decoder, key: Decoder, columns: Columns) -> None:
        self._value, self._key, self._schema = value, key, schema(columns)
        self.takes_nulls = value.takes_nulls

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`. Without keys, only the values."""
        values = self._value.decode(payloads, keys)
        if keys is None:
            return replace(values, table=self._whole(values.table, values.rows))
        given = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
        nothing, newline = pa.scalar(b"", pa.large_binary()), pa.scalar(b"\n", pa.large_binary())
        lines = pc.binary_join_element_wise(keys.drop_null().cast(pa.large_binary()), nothing, newline)
        found = self._key.decode(Payloads.of_array(lines))
        of = given if found.kept is None else given[np.asarray(found.kept, np.int64)]
        bad = {int(given[at]): f"key: {why}" for at, why in found.rejects}
        for at in of[1:][of[1:] == of[:-1]].tolist():
            bad.setdefault(at, "key: it holds several rows")
        place = np.full(len(payloads), -1, np.int64)
        place[of] = np.arange(len(of))
        records = np.arange(values.rows) if values.kept is None else np.asarray(values.kept, np.int64)
        rows = place[records]
        take = pa.array(rows, pa.int64(), mask=rows < 0)
        one, other = self._whole(values.table, values.rows), self._whole(found.table, found.rows)
        names = self._schema.names
        columns = [self._joined(name, one.column(name), other.column(name), take, records, bad) for name in names]
        table = pa.table(columns, schema=self._schema) if columns else one
        new = values.new_columns.joined(found.new_columns)
        if not bad:
            return Decoded(table, values.rows, values.kept, values.rejects, new)
        good = ~np.isin(records, list(bad))
        known = {at for at, _ in values.rejects}
        rejects = sorted([*values.rejects, *(item for item in bad.items() if item[0] not in known)])
        return Decoded(table.filter(pa.array(good)), int(good.sum()), records[good].tolist(), rejects, new)

    def _whole(self, table: pa.Table, rows: int) -> pa.Table:
        """The table with all columns."""
        given = set(table.column_names)
        arrays = [table.column(item.name) if item.name in given else pa.nulls(rows, item.type) for item in self._schema]
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
        except pa.ArrowNotImplementedError:  # STRUCTs and lists
            pairs = zip(value.to_pylist(), mine.to_pylist(), both.to_pylist(), strict=True)
            differ = np.array([there and one != other for one, other, there in pairs], bool)
        for row in np.flatnonzero(differ).tolist():
            bad.setdefault(int(records[row]), f"key: {name} is another value in the key than in the value")
        return pc.coalesce(value, mine)
