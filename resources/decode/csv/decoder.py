"""Decode CSV payloads to columns by the rules of MySQL's LOAD DATA: a payload is one or more lines, each line a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.definition.formats import VARIABLE, Format
from kpipe.schema.columns import VARCHAR, Columns
from resources.decode.block import Decoded, Payloads, TooManyRows
from resources.decode.cast_text import Texts
from resources.decode.csv.native import native_csv
from resources.decode.csv.rows import Rules, lines
from resources.decode.json.native import LOOK
from resources.decode.json.rows import Reject
from resources.decode.repeated import MOST_CELLS
from resources.duckdb_engine.arrow_types import schema

__all__ = ["CsvDecoder"]


class CsvDecoder:
    """Decodes lines of fields.

    A payload becomes rows only if every field of every line converts to its column's type without loss. Otherwise the whole
    payload is a reject. A payload without lines has no rows. Fields without a column are reported as new columns, and so are
    members of JSON text that a STRUCT lacks.

    Args:
        kind: the format.
        columns: the payload columns.
        keys: whether payloads are keys: an empty key is a line with one empty field.
    """

    takes_nulls = False

    def __init__(self, kind: Format, columns: Columns, keys: bool = False) -> None:
        self._keys = keys
        self._rules, self._schema = Rules.of(kind), schema(columns)
        fields = kind.fields or list(columns.names())
        places = {name.lower(): at for at, name in enumerate(fields)}
        #: For each column that has a field: the index of the field.
        self._places = [places[name.lower()] for name in columns.names() if name.lower() in places]
        self._texts = Texts(Columns(tuple((name, kind) for name, kind in columns if name.lower() in places)))
        self._wanted = len(fields)
        self._native = native_csv(self._rules, self._wanted, self._places)
        new = [name for name in fields if not VARIABLE.fullmatch(name) and name not in columns]
        self._new = Columns(tuple((name, VARCHAR) for name in new))

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`."""
        if self._keys and (np.diff(payloads.bounds) == 1).any():
            payloads = Payloads.of([payload or self._rules.line_end for payload in payloads.values])
        fields, kept, rejects = self._split(payloads)
        if len(kept) * len(self._schema) > MOST_CELLS:
            if len(payloads) > 1:
                raise TooManyRows
            why = f"{len(kept):,} lines are too many for the {len(self._schema):,} columns of the table"
            return Decoded(self._schema.empty_table(), 0, [], [(0, why)])
        table, reasons, inside = self._texts.read(fields)
        if reasons:  # a payload with a bad line is rejected whole
            bad: dict[int, str] = {}
            for row in sorted(reasons):
                bad.setdefault(int(kept[row]), self._where(kept, row) + reasons[row])
            good = ~np.isin(kept, list(bad))
            table, kept = table.filter(pa.array(good)), kept[good]
            if inside:  # a dead letter adds no members
                inside = self._texts.read([field.filter(pa.array(good)) for field in fields])[2]
            rejects = sorted([*rejects, *bad.items()])
        names = set(table.column_names)
        whole = [table.column(item.name) if item.name in names else pa.nulls(len(kept), item.type) for item in self._schema]
        each = len(kept) == len(payloads) and bool((kept == np.arange(len(kept))).all())
        new = self._new.joined(inside, apart=True)
        return Decoded(pa.table(whole, schema=self._schema), len(kept), None if each else kept.tolist(), rejects, new)

    def _where(self, kept: np.ndarray[Any, Any], row: int) -> str:
        """Return the prefix of a reason: the line in its payload; empty if the payload has one line."""
        before, after = np.searchsorted(kept, kept[row], "left"), np.searchsorted(kept, kept[row], "right")
        if after - before == 1 and not self._rules.skip_lines:
            return ""
        number = row - int(before) + 1
        return f"row {number}: " if self._rules.line_start else f"line {number + self._rules.skip_lines}: "

    def _split(self, payloads: Payloads) -> tuple[list[pa.Array], np.ndarray[Any, Any], list[tuple[int, str]]]:
        """Return the fields of each column, the payload of each line, and the rejects."""
        if self._native is not None and payloads.bounds[-1] < 2**31:
            fields, rows, status = self._native.split(payloads)
            others = np.flatnonzero(status == LOOK).tolist()
            slow, _, rejects = self._line_by_line(payloads, others)
            if not slow:
                return fields, np.repeat(np.arange(len(payloads)), rows), rejects
        slow, kept, rejects = self._line_by_line(payloads, range(len(payloads)))
        fields = [pa.array([row[field] for row in slow], pa.binary()) for field in self._places]
        return fields, np.array(kept, np.int64), rejects

    def _line_by_line(
        self, payloads: Payloads, indices: Iterable[int]
    ) -> tuple[list[Sequence[bytes | None]], list[int], list[tuple[int, str]]]:
        rows: list[Sequence[bytes | None]] = []
        kept: list[int] = []
        rejects: list[tuple[int, str]] = []
        for at in indices:
            try:
                split = lines(payloads[at], self._rules, self._wanted)
            except Reject as error:
                rejects.append((at, str(error)))
                continue
            rows += split
            kept += repeat(at, len(split))
        return rows, kept, rejects
