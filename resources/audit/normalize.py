"""Convert partition and offset of rows to integers, and count the rows where that is not possible."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kpipe.audit.coordinates import Column, Coordinates
from kpipe.errors import InvalidPipeline
from resources.duckdb_engine import in_memory

__all__ = ["Normalized", "Normalizer", "extract", "plain"]

_SAMPLES = 20
_TEXT = r"^(0|[1-9][0-9]{0,17})$"  # at most 18 digits: always fits into 64 bits
_EXACT = float(2**53)
"""From here on, a float may differ from the integer that was stored."""


@dataclass
class Normalized:
    """Counts of the rows of a table.

    Attributes:
        total: all rows.
        other_topic: rows of other topics.
        invalid: rows that identify no record.
        samples: some of their values, as text.
    """

    total: int = 0
    other_topic: int = 0
    invalid: int = 0
    samples: list[str] = field(default_factory=list)


class Normalizer:
    """Converter of batches; counts what it leaves out.

    Args:
        topic: rows of other topics are left out, if batches have a topic column.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.counts = Normalized()

    def of(self, arrays: Sequence[pa.Array], coordinates: Coordinates) -> tuple[NDArray[np.int64], ...]:
        """Return partitions, offsets and, if there is such a column, numbers of the valid rows; for arguments see `extract`.

        Raises:
            InvalidPipeline: a column has a type that contains no integers.
        """
        numbers = arrays[2] if coordinates.number is not None else None
        return self(arrays[0], arrays[1], arrays[-1] if coordinates.topic is not None else None, numbers)

    def __call__(
        self, partitions: pa.Array, offsets: pa.Array, topics: pa.Array | None, rows: pa.Array | None = None
    ) -> tuple[NDArray[np.int64], ...]:
        """Return partitions and offsets of the valid rows of the topic, and their numbers in the record; -1 for NULL.

        Raises:
            InvalidPipeline: a column has a type that contains no integers.
        """
        counts = self.counts
        counts.total += len(partitions)
        mine = np.ones(len(partitions), bool)
        if topics is not None:
            names = plain(topics)
            if not (pa.types.is_string(names.type) or pa.types.is_large_string(names.type)):
                raise InvalidPipeline(f"the topic column has type {names.type}: expected text", "name it: --topic-column")
            other = pc.fill_null(pc.not_equal(names, self._topic), False).to_numpy(zero_copy_only=False)
            counts.other_topic += int(other.sum())
            mine = ~other
        numbers, good = _integers(partitions, "partition")
        places, right = _integers(offsets, "offset")
        valid = good & right & (numbers >= 0) & (places >= 0)
        if topics is not None:
            valid &= names.is_valid().to_numpy(zero_copy_only=False)
        numbered = []
        if rows is not None:
            which, whole = _integers(rows, "ordinality")
            absent = plain(rows).is_null().to_numpy(zero_copy_only=False)
            valid &= absent | (whole & (which >= 0))
            numbered = [np.where(absent, -1, which)]
        wrong = mine & ~valid
        if wrong.any():
            counts.invalid += int(wrong.sum())
            for at in np.flatnonzero(wrong)[: _SAMPLES - len(counts.samples)].tolist():
                found = f"partition {_shown(partitions[at])}, offset {_shown(offsets[at])}"
                counts.samples.append(found if topics is None else f"{found}, topic {_shown(topics[at])}")
        kept = mine & valid
        return numbers[kept], places[kept], *(item[kept] for item in numbered)


def extract(batch: pa.RecordBatch, coordinates: Coordinates) -> list[pa.Array]:
    """Return the arrays of the coordinates from a batch of whole columns: fields of structs, members of JSON documents."""
    return [_extracted(batch, column) for column in coordinates.all]


def _extracted(batch: pa.RecordBatch, column: Column) -> pa.Array:
    whole = plain(batch.column(column.root))
    if column.field is None:
        return whole
    if column.struct:
        inner = whole.field(column.field)
        # A NULL struct may have values in its fields.
        return pc.if_else(whole.is_valid(), inner, pa.scalar(None, inner.type)) if whole.null_count else inner
    path = "$." + json.dumps(column.field, ensure_ascii=False)
    table = pa.table({"v": pc.cast(whole, pa.string())})
    quoted = path.replace("'", "''")
    sql = f"SELECT CASE WHEN json_valid(v) THEN json_extract_string(v, '{quoted}') END AS v FROM block"  # noqa: S608 - quoted
    return pa.concat_arrays(in_memory.query(sql, table).column("v").chunks or [pa.array([], pa.string())])


def plain(values: pa.Array) -> pa.Array:
    """Return the array without a dictionary or chunks."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.string()) if pa.types.is_string_view(values.type) else values


def _integers(values: pa.Array, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the integers, and for each whether it is one."""
    values = plain(values)
    kind = values.type
    good = values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_null(kind):
        return np.zeros(len(values), np.int64), good
    if pa.types.is_integer(kind):
        if kind == pa.uint64():
            good &= pc.fill_null(pc.less(values, pa.scalar(2**63, pa.uint64())), False).to_numpy(zero_copy_only=False)
            values = pc.if_else(pa.array(good), values, pa.scalar(0, pa.uint64()))
        return pc.fill_null(values, 0).cast(pa.int64()).to_numpy(zero_copy_only=False), good
    if pa.types.is_floating(kind):
        numbers = pc.fill_null(values, 0).cast(pa.float64()).to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            good = good & np.isfinite(numbers) & (np.abs(numbers) < _EXACT) & (numbers == np.floor(numbers))
        return np.where(good, numbers, 0).astype(np.int64), good
    if pa.types.is_decimal(kind):
        values = values.cast(pa.string())
        trimmed = pc.replace_substring_regex(values, r"\.0*$", "")
        return _texts(trimmed, good)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(values, good)
    raise InvalidPipeline(
        f"the {name} column has type {kind}: expected integers, or text of integers", f"name it: --{name}-column"
    )


def _texts(values: pa.Array, good: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    good = good & pc.fill_null(pc.match_substring_regex(values, _TEXT), False).to_numpy(zero_copy_only=False)
    return pc.if_else(pa.array(good), values, pa.scalar("0", values.type)).cast(pa.int64()).to_numpy(zero_copy_only=False), good


def _shown(value: pa.Scalar) -> str:
    return "NULL" if not value.is_valid else repr(value.as_py())[:60]
