"""Convert a schema's typed columns to the table's types, whole columns at a time, if no value changes.

JSON and CSV have no types: reading them includes the check. Avro and Protobuf declare types: only types that differ between
schema and table are converted. The rules are those of JSON values (design.md 4.6), so a column takes the same values from
all formats. In addition, names match without case, since a schema cannot contain two names that differ by case only.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.expressions.json_text import contains, json_text
from kpipe.schema.columns import (
    BLOB,
    BOOLEAN,
    INSTANT,
    JSON,
    NOTHING,
    VARCHAR,
    Columns,
    ListOf,
    MapOf,
    Scalar,
    Struct,
    Type,
    settled,
)
from kpipe.schema.inference import nameable
from kpipe.schema.nesting import shallow
from resources.decode.cast_text import Texts
from resources.decode.json.rows import wrong
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import LARGEST_FLOAT, cast_type, entries, staged_type
from resources.duckdb_engine.sql_types import sql_type
from resources.duckdb_engine.strict_json import is_json

__all__ = ["Fitting", "beyond", "convertible"]

Rows = np.ndarray[Any, Any]


class _Step(Enum):
    """A step of a path without a name."""

    ITEMS = "[]"
    VALUES = "{}"


_ITEMS, _VALUES = _Step.ITEMS, _Step.VALUES
#: From a column to a value inside: names of fields, the items of a list, the values of a MAP.
_Path = tuple[str | _Step, ...]

_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
_TEXTS = {"VARCHAR", "UUID", "JSON"}
_UUID = Scalar("UUID")
_TIMES = {("TIMESTAMP", str(INSTANT)), (str(INSTANT), "TIMESTAMP"), ("DATE", "TIMESTAMP"), ("DATE", str(INSTANT))}
_MOST_DAYS = 106_751_991  # from 1970 to the last, or the first, day that fits 64 bits in microseconds


class Fitting:
    """Converts blocks of typed columns to a table's columns.

    Args:
        natural: the schema's columns. Arrays have the types of `staged_type`.
        columns: the table's columns.

    Attributes:
        new: fields of the schema without a column.
        found: members of the last block's values, in a MAP or in JSON text, that a STRUCT inside the column lacks. Only some
            values may have them.
    """

    def __init__(self, natural: Columns, columns: Columns) -> None:
        self._natural, self._columns = natural, columns
        self._texts: dict[tuple[_Path, Type], Texts] = {}
        self.new, self.found = beyond(natural, columns), Columns()

    @property
    def every(self) -> Columns:
        """`new` and `found`."""
        return self.new.joined(self.found, apart=True)

    def fit(self, arrays: Sequence[pa.Array], rows: int) -> tuple[pa.Table, dict[int, str]]:
        """Return the table's columns in staged types, and by row the reasons of failed conversions (NULL in the table)."""
        reasons: dict[int, str] = {}
        self.found = Columns()
        by_name = {
            name: array for (name, _), array in zip(self._natural, arrays, strict=True) if not name.lower().startswith("_kafka_")
        }
        kinds = tuple((name, kind) for name, kind in self._natural if name in by_name)
        converted = self._members(by_name, kinds, self._columns.items, np.arange(rows), (), reasons)
        return pa.table(converted, names=list(self._columns.names())), reasons

    def _members(
        self,
        values: dict[str, pa.Array],
        kinds: tuple[tuple[str, Type], ...],
        wanted: tuple[tuple[str, Type], ...],
        rows: Rows,
        path: _Path,
        reasons: dict[int, str],
    ) -> list[pa.Array]:
        by_name = {name.lower(): (name, kind) for name, kind in kinds}
        arrays = []
        for name, kind in wanted:
            item = by_name.get(name.lower())
            if item is None:
                arrays.append(pa.nulls(len(rows), staged_type(kind)))
            else:
                arrays.append(self._value(values[item[0]], item[1], kind, rows, (*path, item[0]), reasons))
        return arrays

    def _value(self, array: pa.Array, natural: Type, wanted: Type, rows: Rows, path: _Path, reasons: dict[int, str]) -> pa.Array:
        target = staged_type(wanted)
        if natural == wanted and not contains(wanted, {"UUID"}):  # a schema's UUID is text, and has to be checked
            return array
        if array.null_count == len(array):
            return pa.nulls(len(array), target)
        if isinstance(natural, Struct) and isinstance(wanted, Struct):
            values = {name: pc.struct_field(array, [at]) for at, (name, _) in enumerate(natural.fields)}
            members = self._members(values, natural.fields, wanted.fields, rows, path, reasons)
            return pa.StructArray.from_arrays(members, fields=list(target), mask=array.is_null())
        if isinstance(natural, ListOf) and isinstance(wanted, ListOf):
            inner = rows[pc.list_parent_indices(array).to_numpy()]
            items = self._value(pc.list_flatten(array), natural.item, wanted.item, inner, (*path, _ITEMS), reasons)
            return pa.ListArray.from_arrays(_offsets(array), items, type=target, mask=array.is_null())
        if isinstance(natural, MapOf) and isinstance(wanted, MapOf):
            pairs = entries(array)
            inner, parts = rows[pc.list_parent_indices(pairs).to_numpy()], pc.list_flatten(pairs)
            items = self._value(pc.struct_field(parts, [1]), natural.item, wanted.item, inner, (*path, _VALUES), reasons)
            more = _lacking(pc.struct_field(parts, [1]), natural.item, wanted.item)
            if more is not None:
                self._find(path, MapOf(more))
            keys = pc.struct_field(parts, [0])
            return pa.MapArray.from_arrays(_offsets(pairs), keys, items, type=target, mask=array.is_null())
        if natural != wanted and contains(natural, {"UUID"}) and (natural, wanted) != (_UUID, VARCHAR):
            array = self._value(array, natural, natural, rows, path, reasons)
        converted = self._converted(array, natural, wanted, path)
        failed = pc.indices_nonzero(pc.and_(array.is_valid(), converted.is_null())).to_pylist()
        for row in failed:
            reasons.setdefault(int(rows[row]), str(wrong(_printable(array[row]), wanted, _written(path))))
        return converted

    def _converted(self, array: pa.Array, natural: Type, wanted: Type, path: _Path) -> pa.Array:
        """Convert an array; NULL where a value cannot be converted."""
        target = staged_type(wanted)
        if wanted == JSON:
            return _as_json(array, natural)
        if not isinstance(wanted, Scalar) and natural == JSON:
            return self._read(array, wanted, path)
        if isinstance(natural, Struct) and isinstance(wanted, MapOf):
            return self._read(_as_json(array, natural), wanted, path)
        if isinstance(natural, Struct | ListOf | MapOf):
            return _as_json(array, natural) if wanted == VARCHAR else pa.nulls(len(array), target)
        if wanted == BOOLEAN:  # as in JSON, text is not a BOOLEAN
            whole = "CASE WHEN json_type(v) = 'BOOLEAN' THEN TRY_CAST(v AS BOOLEAN) END"
            return in_memory.evaluated(array, whole) if natural == JSON else pa.nulls(len(array), target)
        if natural == JSON:  # a JSON string becomes its text
            array = in_memory.evaluated(array, "CASE WHEN json_type(v) = 'VARCHAR' THEN json_extract_string(v, '$') ELSE v END")
        source, name = natural.name, str(wanted)
        if source in _TEXTS or (natural == BLOB and wanted == VARCHAR):
            if wanted == BLOB:
                return array.cast(pa.binary())
            if source in _TEXTS and wanted == VARCHAR:
                return array
            return self._read(array, wanted, path)
        if wanted == VARCHAR:
            return in_memory.evaluated(array, "CAST(v AS VARCHAR)")
        if (source, name) in _TIMES:
            if source == "DATE":
                days = array.view(pa.int32())
                fits = pc.and_(pc.greater_equal(days, -_MOST_DAYS), pc.less_equal(days, _MOST_DAYS))
                array = pc.if_else(fits, array, pa.scalar(None, array.type))
            return array.cast(pa.timestamp("us")).cast(target)
        if _is_number(natural) and isinstance(wanted, Scalar) and _is_number(wanted):
            return in_memory.evaluated(array, _number(natural, wanted)).cast(target)
        return pa.nulls(len(array), target)

    def _read(self, array: pa.Array, wanted: Type, path: _Path) -> pa.Array:
        """Cast text to a type."""
        texts = self._texts.setdefault((path, wanted), Texts(Columns(((_written(path) or "value", wanted),))))
        table, _, new = texts.read([array.cast(pa.binary())])
        for _, kind in new:
            self._find(path, kind)
        return table.column(0).combine_chunks()

    def _find(self, path: _Path, kind: Type) -> None:
        """Note members that the column of a path lacks."""
        for step in reversed(path[1:]):
            kind = ListOf(kind) if step is _ITEMS else MapOf(kind) if step is _VALUES else Struct(((str(step), kind),))
        self.found = self.found.joined(Columns(((str(path[0]), kind),)), apart=True)


def _written(path: _Path) -> str:
    """Return a path as reasons have it."""
    return "".join(step.value if isinstance(step, _Step) else f".{step}" for step in path).removeprefix(".")


def _lacking(array: pa.Array, natural: Type, wanted: Type) -> Type | None:
    """Return the members of a MAP's values that a type lacks, as `_more` does, if a value has them; NULL is not a value.

    A schema's members that no value has must not make dead letters: records add no fields inside a MAP.
    """
    if array.null_count == len(array):
        return None
    if isinstance(natural, ListOf) and isinstance(wanted, ListOf):
        item = _lacking(pc.list_flatten(array), natural.item, wanted.item)
        return None if item is None else ListOf(item)
    if not isinstance(natural, Struct) or not isinstance(wanted, Struct):
        return None  # a MAP inside is converted, and noted, on its own
    known = {name.lower(): kind for name, kind in wanted.fields}
    new: list[tuple[str, Type]] = []
    for at, (name, kind) in enumerate(natural.fields):
        values = pc.struct_field(array, [at])
        if name.lower() in known:
            more = _lacking(values, kind, known[name.lower()])
        else:
            more = settled(kind, apart=True) if values.null_count < len(values) else None
        if more is not None:
            new.append((name, more))
    return Struct(tuple(new)) if new else None


def _offsets(lists: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return pa.array(np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))), pa.int32())


def convertible(natural: Type, wanted: Type) -> bool:
    """Return whether `Fitting` may convert values of a type; False: it converts none of them, except NULL."""
    if natural in (wanted, JSON, NOTHING) or wanted in (JSON, VARCHAR):
        return True
    if isinstance(natural, ListOf) and isinstance(wanted, ListOf):
        return convertible(natural.item, wanted.item)
    if isinstance(natural, MapOf) and isinstance(wanted, MapOf):
        return convertible(natural.item, wanted.item)
    if isinstance(natural, Struct) and isinstance(wanted, Struct):
        types = {name.lower(): kind for name, kind in wanted.fields}
        return all(name.lower() not in types or convertible(kind, types[name.lower()]) for name, kind in natural.fields)
    if isinstance(natural, Struct) and isinstance(wanted, MapOf):
        return True
    if wanted == BOOLEAN:
        return False
    if not isinstance(natural, Scalar) or not isinstance(wanted, Scalar):
        return natural == VARCHAR
    if natural.name in _TEXTS or (natural.name, wanted.name) in _TIMES:
        return True
    return _is_number(natural) and _is_number(wanted)


def beyond(natural: Columns, columns: Columns) -> Columns:
    """Return a schema's columns that the table lacks; too deeply nested types become JSON."""
    new = _beyond(natural.items, columns.items)
    return Columns(tuple((name, shallow(kind)) for name, kind in new if not name.lower().startswith("_kafka_")))


def _beyond(natural: Sequence[tuple[str, Type]], columns: Sequence[tuple[str, Type]]) -> list[tuple[str, Type]]:
    """Return members without a column; for a column that lacks members, return a type with only those."""
    existing = {name.lower(): (name, kind) for name, kind in columns}
    new: list[tuple[str, Type]] = []
    for name, kind in natural:
        if name.lower() not in existing:
            new_kind = settled(kind, apart=True)
            if nameable(name) and new_kind is not None:
                new.append((name, new_kind))
            continue
        column, wanted = existing[name.lower()]
        more = _more(kind, wanted)
        if more is not None:
            new.append((column, more))
    return new


def _more(natural: Type, wanted: Type) -> Type | None:
    if isinstance(natural, ListOf) and isinstance(wanted, ListOf):
        item = _more(natural.item, wanted.item)
        return None if item is None else ListOf(item)
    if not isinstance(natural, Struct) or not isinstance(wanted, Struct):
        return None
    new = _beyond(natural.fields, wanted.fields)
    return Struct(tuple(new)) if new else None


def _is_number(kind: Scalar) -> bool:
    return kind.name in _INTEGERS or kind.name in ("FLOAT", "DOUBLE", "HUGEINT") or kind.name.startswith("DECIMAL")


def _number(natural: Scalar, wanted: Scalar) -> str:
    """Return the SQL that converts a number `v`; its result is NULL where the number would change."""
    real = natural.name in ("FLOAT", "DOUBLE")
    if wanted.name in _INTEGERS or wanted.name == "HUGEINT":
        # Not compared with the type's ends: DuckDB would cast these to the DECIMAL, where they may be too large.
        exact = "v = trunc(v)" + (" AND abs(v) < 9007199254740992" if real else "")
        value = f"CASE WHEN {exact} THEN TRY_CAST(v AS {wanted}) END"
        return value if wanted.name in _INTEGERS else f"CAST({value} AS VARCHAR)"
    if wanted.name == "FLOAT":
        wide = "CAST(v AS DOUBLE)"
        return f"CASE WHEN abs({wide}) <= {LARGEST_FLOAT} OR NOT isfinite({wide}) THEN CAST({wide} AS FLOAT) END"
    if wanted.name == "DOUBLE":
        return "CAST(v AS DOUBLE)"
    return in_memory.decimal_sql("v", natural.name, wanted.name)


def _as_json(array: pa.Array, natural: Type) -> pa.Array:
    """Convert values to JSON text; NULL where JSON has no such value (NaN, infinity)."""
    if natural == JSON:
        return array
    typed = f"CAST(v AS {sql_type(cast_type(natural))})"  # Arrow has text for HUGEINT
    texts = in_memory.evaluated(array, typed, f"CASE WHEN v IS NOT NULL THEN {json_text('v', natural)} END")
    if not contains(natural, {"FLOAT", "DOUBLE", "JSON"}):
        return texts
    return pc.if_else(is_json(texts), texts, pa.scalar(None, texts.type))


def _printable(scalar: pa.Scalar) -> Any:
    """Return a value as reasons quote it."""
    if pa.types.is_nested(scalar.type):  # only its type is quoted
        return [] if pa.types.is_list(scalar.type) else {}
    if scalar.is_valid and (pa.types.is_date(scalar.type) or pa.types.is_timestamp(scalar.type)):
        return in_memory.text_of(scalar)
    value = scalar.as_py()
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | int | float | dict | list) else str(value)
