"""Reject rows with values that the destination's columns cannot store, a column at a time."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.schema.columns import JSON, VARCHAR, Columns, ListOf, MapOf, Scalar, Struct, Type
from resources.decode.block import Decoded
from resources.destinations.value_limits import Limits
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import entries
from resources.duckdb_engine.exact_numbers import extent
from resources.spark.task.keyed_rows import set_aside

__all__ = ["storable", "unstorable"]

_REAL = (Scalar("FLOAT"), Scalar("DOUBLE"))
Places = np.ndarray[Any, Any]
_NONE: Places = np.zeros(0, np.int64)
# JSON texts that may contain a number beyond 9,999 digits: an exponent of five digits, or a long run of digits.
_WIDE, _LONG, _RUN = "[eE][+-]?[0-9]{5}", 6_000, "[0-9]{1000}"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)', re.ASCII | re.DOTALL)


def storable(decoded: Decoded, columns: Columns, limits: Limits, computed: Collection[str] = ()) -> Decoded:
    """Remove rows with a value that its column cannot store.

    Args:
        decoded: rows of the table.
        columns: its payload columns.
        limits: of the destination.
        computed: columns, in lower case, that expressions compute: their values become refused, others become rejects.
    """
    if not decoded.rows:
        return decoded
    bad: dict[int, str] = {}
    refused: dict[int, str] = {}
    for name, kind in columns:
        reasons = refused if name.lower() in computed else bad
        for row, why in unstorable(decoded.table, Columns(((name, kind),)), limits).items():
            reasons.setdefault(row, why)
    return set_aside(decoded, bad, refused)


def unstorable(table: pa.Table, columns: Columns, limits: Limits) -> dict[int, str]:
    """Return by row the reasons of values that their columns cannot store."""
    reasons: dict[int, str] = {}
    for name, kind in columns:
        array = table.column(name).combine_chunks()
        divided = name.lower() in limits.divided
        where = f" as {kind}" + (" in a column of into.partition_by" if divided else "")
        for row in _beyond(array, kind, name, limits).tolist():
            reasons.setdefault(row, f"{name}: {_shown(array[row], kind)} is beyond what {limits.place} can store{where}")
        if divided and not limits.blank and kind == VARCHAR:
            for row in _where(pc.equal(array, "")).tolist():
                reasons.setdefault(row, f"{name}: {limits.place} cannot distinguish an empty text from NULL{where}")
    return reasons


def _beyond(array: pa.Array, kind: Type, column: str, limits: Limits, inside: bool = False) -> Places:
    """Return positions of values that the destination cannot store, or that contain such a value, in order."""
    if array.null_count == len(array):
        return _NONE
    if isinstance(kind, MapOf):
        return _beyond(entries(array), kind.entries, column, limits, inside)
    if isinstance(kind, ListOf):
        inner = _beyond(pc.list_flatten(array), kind.item, column, limits, True)
        return np.unique(np.asarray(pc.list_parent_indices(array))[inner]) if len(inner) else _NONE
    if isinstance(kind, Struct):
        parts = [_beyond(pc.struct_field(array, [at]), item, column, limits, True) for at, (_, item) in enumerate(kind.fields)]
        return np.unique(np.concatenate(parts)) if parts else _NONE
    if kind == JSON:
        return _NONE if limits.digits is None else _with_long_numbers(array, limits)
    text = inside and limits.nested_json
    if kind in _REAL:
        return _where(pc.invert(pc.is_finite(array))) if limits.finite or text else _NONE
    ends = limits.ends(kind.name, column)
    if ends is None or text:
        return _NONE
    width = pa.int32() if pa.types.is_date32(array.type) else pa.int64()
    numbers, (low, high) = array.cast(width).cast(pa.int64()), ends
    outer = pc.min_max(numbers).as_py()
    if low <= outer["min"] and outer["max"] <= high:
        return _NONE
    beyond = pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
    if limits.infinite:
        most = 2 ** (width.bit_width - 1) - 1
        beyond = pc.and_(beyond, pc.invert(pc.is_in(numbers, value_set=pa.array([-most, most], pa.int64()))))
    return _where(beyond)


def _with_long_numbers(array: pa.Array, limits: Limits) -> Places:
    """Return positions of JSON texts with a number of more digits than the destination stores; strings do not count."""
    wide = _where(pc.match_substring_regex(array, _WIDE))
    long = _where(pc.greater(pc.binary_length(array), _LONG))
    if len(long):
        long = long[_where(pc.match_substring_regex(array.take(pa.array(long)), _RUN))]
    rows = [row for row in np.union1d(wide, long).tolist() if _has_long_number(array[row].as_py(), limits)]
    return np.array(rows, np.int64)


def _has_long_number(text: str, limits: Limits) -> bool:
    assert limits.digits is not None
    for token in _TOKEN.finditer(text):
        if token["number"]:
            before, behind, exponent = extent(token["number"])
            if before > limits.digits[0] or behind > limits.digits[1] or abs(exponent) > limits.exponent:
                return True
    return False


def _where(mask: pa.Array) -> Places:
    return np.asarray(pc.indices_nonzero(pc.fill_null(mask, False)), np.int64)


def _shown(value: pa.Scalar, kind: Type) -> str:
    if not isinstance(kind, Scalar):
        return "a value in it"
    if kind == JSON:
        return "a number in it"
    return in_memory.text_of(value)
