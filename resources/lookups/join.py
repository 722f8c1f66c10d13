"""Join lookups to blocks of records: one column for each value that expressions read from a lookup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.errors import InvalidPipeline
from kpipe.expressions.lookup_calls import Call
from kpipe.schema.columns import Columns, Type
from resources.decode.repeated import MOST_BYTES, crowded
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.expressions import Assigned, Evaluator, fitted
from resources.lookups.reference_table import LookupRows, Reference

__all__ = ["Join"]

Rows = np.ndarray[Any, Any]

# Maximum number of records in a block whose reasons contain the key.
_MOST_SHOWN = 100


class Join:
    """Joins of lookups to blocks. Rows stay, and gain one value for each column read from a lookup.

    Args:
        calls: calls of lookups, each after those that its own key needs.
        lookups: by name.
        inputs: names and types of the columns that keys read.

    Raises:
        InvalidPipeline: a key's type does not fit the lookup's.
    """

    def __init__(self, calls: Sequence[Call], lookups: Mapping[str, LookupRows], inputs: Columns) -> None:
        self._steps: list[_Step] = []
        for call in calls:
            self._steps.append(_Step(call, lookups[call.lookup].value, inputs))
            inputs = Columns((*inputs.items, *self._steps[-1].columns.items))
        #: The inputs, followed by the columns read from lookups.
        self.columns = inputs

    def apply(self, block: pa.Table, payloads: Rows | None = None) -> tuple[pa.Table, dict[int, str]]:
        """Return the block with the columns appended, and reasons by row of failed lookups (NULL there).

        Args:
            block: the rows.
            payloads: of each row; None: each row is of its own payload.

        Raises:
            TooManyRows: the values of lookups for several payloads take too much memory together.
        """
        reasons: dict[int, str] = {}
        if not self._steps:
            return block, reasons
        copied = _Copied(np.arange(block.num_rows) if payloads is None else payloads)
        for step in self._steps:
            block = step.apply(block, reasons, copied)
        return block, reasons


class _Copied:
    """Bytes of the lookups' values that the rows of a block get a copy of.

    Args:
        payloads: of each row.
    """

    def __init__(self, payloads: Rows) -> None:
        self._payloads, self._bytes = payloads, np.zeros(len(payloads), np.int64)

    def bounded(self, name: str, matches: Rows, sizes: Sequence[Rows], reasons: dict[int, str]) -> Rows:
        """Return the matches without those of payloads whose copies are too large, and add reasons for their rows.

        Args:
            name: of the call.
            matches: the lookup's row for each row of the block; -1 for none.
            sizes: bytes of each row of the lookup, for each column read from it.
            reasons: by row.

        Raises:
            TooManyRows: see `crowded`.
        """
        found = matches >= 0
        for column in sizes:
            self._bytes[found] += column[matches[found]]
        large = {
            payload: f"{name}: {rows:,} rows, each with a copy of the lookup's values: {size:,} bytes, over {MOST_BYTES:,}"
            for payload, (rows, size) in crowded(self._bytes, self._payloads).items()
        }
        if not large:
            return matches
        bad = np.isin(self._payloads, list(large))
        for row in np.flatnonzero(bad).tolist():
            reasons.setdefault(row, large[int(self._payloads[row])])
        self._bytes[bad] = 0
        return np.where(bad, -1, matches)


class _Step:
    """Join of one call."""

    def __init__(self, call: Call, reference: Reference, inputs: Columns) -> None:
        self._call, self._reference = call, reference
        kinds = reference.columns.items[: reference.keys]
        texts = []
        for key, (name, kind) in zip(call.keys, kinds, strict=True):
            try:
                texts.append(fitted(inputs, call.name, key, kind))
            except InvalidPipeline as error:
                what = f"{error.what}; the key {name} of lookup {call.lookup} is {kind}"
                raise InvalidPipeline(what, error.hint) from error
        assigned = [Assigned(call.name, text, kind) for text, (_, kind) in zip(texts, kinds, strict=True)]
        self._plain = [_plain(key, kind, inputs) for key, (_, kind) in zip(call.keys, kinds, strict=True)]
        self._keys = Evaluator(inputs, "", assigned)
        names = [column.lower() for column in reference.columns.names()]
        self._places = [names.index(member.lower()) for member in call.members]
        outputs: list[tuple[str, Type]] = []
        for member, at in zip(call.members, self._places, strict=True):
            outputs.append((call.column(member), reference.columns.items[at][1]))
        self.columns = Columns(tuple(outputs))

    def apply(self, block: pa.Table, reasons: dict[int, str], copied: _Copied) -> pa.Table:
        keys, failed = self._of(block)
        for row, why in failed.items():
            reasons.setdefault(row, why)
        matches = self._reference.find(keys)
        if failed:  # rows without a key match nothing
            good = np.ones(block.num_rows, bool)
            good[list(failed)] = False
            places = np.full(block.num_rows, -1, np.int64)
            places[good] = matches.fill_null(-1).to_numpy()
            rows = np.flatnonzero(good)
            matches = pa.array(places, mask=places < 0)
        else:
            rows = np.arange(block.num_rows)
        if self._reference.required and matches.null_count:
            missing = np.flatnonzero(matches.is_null().to_numpy(zero_copy_only=False)[rows])
            for count, at in enumerate(missing.tolist()):
                reasons.setdefault(int(rows[at]), self._missing(keys.slice(at, 1) if count < _MOST_SHOWN else None))
        sizes = [self._reference.sizes(at) for at in self._places]
        places = copied.bounded(self._call.name, matches.fill_null(-1).to_numpy(), sizes, reasons)
        matches = pa.array(places, mask=places < 0)
        for (name, _), at in zip(self.columns, self._places, strict=True):
            block = block.append_column(name, self._reference.table.column(at).take(matches))
        return block

    def _of(self, block: pa.Table) -> tuple[pa.Table, dict[int, str]]:
        """Return the keys of the rows, and the reasons of rows whose key cannot be computed."""
        if all(self._plain):  # columns of the record: nothing to evaluate
            return pa.table([block.column(name) for name in self._plain], names=self._plain), {}
        return self._keys.values(block)

    def _missing(self, key: pa.Table | None) -> str:
        if key is None:
            return f"{self._call.name}: the lookup has no row for it"
        return f"{self._call.name}: the lookup has no row for {', '.join(_shown(column[0]) for column in key.columns)}"


def _shown(value: pa.Scalar) -> str:
    if not value.is_valid:
        return "NULL"
    return (repr(value.as_py()) if pa.types.is_string(value.type) else in_memory.text_of(value))[:40]


def _plain(key: str, kind: Type, inputs: Columns) -> str:
    """Return the column that a key expression names, if it has the wanted type; else an empty text."""
    name = key[1:-1].replace('""', '"') if key.startswith('"') else key
    column = next(((other, have) for other, have in inputs if other.lower() == name.lower()), None)
    return column[0] if column is not None and column[1] == kind else ""
