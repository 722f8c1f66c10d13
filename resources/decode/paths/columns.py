"""Select typed columns by path: `user::name`, `tags::0`, `%`. Absent and null differ, as in JSON.

A value is absent if the schema does not have its path, or the path leads through null or beyond the end of an array. Then the
path's default is used; without a default the record is a reject.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.definition.formats import VARIABLE, Mapped
from kpipe.definition.json_path import parse_path, write_path
from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import JSON, Columns, ListOf, Struct, Type
from kpipe.schema.inference import infer
from resources.decode.block import Payloads
from resources.decode.convert import Fitting
from resources.decode.json.decoder import JsonDecoder
from resources.decode.json.rows import load
from resources.decode.paths.json_decoder import MappedJsonDecoder
from resources.decode.paths.leaves import Leaf

__all__ = ["MappedFitting"]

Absent = np.ndarray[Any, Any]


class _Inside:
    """A path inside of JSON text, followed by the rules of a JSON record: names as they are, numbers with all digits."""

    def __init__(self, parts: tuple[str | int, ...]) -> None:
        leaf = Leaf("v", JSON, ("v", *parts))
        self._absent, self._decoder = leaf.missing, MappedJsonDecoder({"v": write_path(leaf.parts)}, Columns((("v", JSON),)))

    def follow(self, array: pa.Array) -> tuple[pa.Array, Absent, dict[int, str]]:
        """Return the values, which are absent, and by row the reasons of texts that are not a valid record's value."""
        there = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
        decoded = self._decoder.decode(Payloads.of([b'{"v":' + text.encode() + b"}" for text in array.drop_null().to_pylist()]))
        kept = there if decoded.kept is None else there[np.asarray(decoded.kept, np.int64)]
        absent = np.ones(len(array), bool)
        absent[kept] = False
        places = np.zeros(len(array), np.int64)
        places[kept] = np.arange(len(kept))
        values = decoded.table.column("v").combine_chunks().take(pa.array(places, mask=absent))
        reasons = {int(there[at]): why.removeprefix("v: ") for at, why in decoded.rejects if why != self._absent}
        return values, absent, reasons


@dataclass(frozen=True)
class _Way:
    """A column, and the steps to its value.

    Attributes:
        name: of the column, or @variable.
        path: as written in the mapping.
        kind: type of the value; None: the schema does not have the path.
        steps: field index in a struct, (index,) in an array; the last may be a path inside of JSON.
        optional: whether the value may be absent.
        default: the value then.
    """

    name: str
    path: str
    kind: Type | None
    steps: tuple[int | tuple[int] | _Inside, ...]
    optional: bool
    default: Any


class MappedFitting:
    """A `Fitting` that selects values by path.

    Args:
        natural: the columns of the schema.
        columns: the wanted columns. Other columns of the mapping are reported as new.
        mapping: column, or @variable, to path.

    Raises:
        InvalidPipeline: a default is not a value of its column's type.
    """

    def __init__(self, natural: Columns, columns: Columns, mapping: Mapping[str, str | Mapped]) -> None:
        self._ways = [_way(name, item, Struct(natural.items)) for name, item in mapping.items()]
        known = Columns(tuple((way.name, way.kind) for way in self._ways if way.kind is not None))
        self._fitting = Fitting(known, columns)
        defaults = infer([{way.name: way.default for way in self._ways if way.kind is None and way.name not in columns}])
        inside = [way for way in self._ways if way.steps and isinstance(way.steps[-1], _Inside)]
        # Their types are inferred from values: in the schema they are inside of JSON.
        self._inside = [way for way in inside if way.name not in columns and not VARIABLE.fullmatch(way.name)]
        wholes = {way.name for way in self._ways if not way.steps and way.name not in columns}
        brought = Columns(tuple((name, JSON if name in wholes else kind) for name, kind in self._fitting.new))
        new = brought.joined(defaults).without(way.name for way in self._inside)
        self._named = new.without(name for name in new.names() if VARIABLE.fullmatch(name))
        self.new, self.found, self._names = self._named, Columns(), natural.names()
        self._defaults = {
            way.name: _default(way, columns) for way in self._ways if way.default is not None and way.name in columns
        }

    @property
    def every(self) -> Columns:
        """See `Fitting`."""
        return self.new.joined(self.found, apart=True)

    def fit(self, arrays: Sequence[pa.Array], rows: int) -> tuple[pa.Table, dict[int, str]]:
        """See `Fitting`."""
        reasons: dict[int, str] = {}
        whole = pa.StructArray.from_arrays(list(arrays), names=list(self._names))
        found: list[pa.Array] = []
        self.new = self._named
        instead: dict[str, Absent] = {}
        for way in self._ways:
            absent = np.ones(rows, bool)
            if way.kind is not None:
                array, absent, failed = _follow(whole, way)
                reasons = {**{at: f"{way.name}: {why}" for at, why in failed.items()}, **reasons}
                found.append(array)
                if way in self._inside:
                    texts = array.drop_null().to_pylist()
                    self.new = self.new.joined(infer({way.name: load(f'{{"v":{text}}}'.encode())["v"]} for text in texts))
            if not way.optional:
                for at in np.flatnonzero(absent).tolist():
                    reasons.setdefault(at, f"{way.name}: the record has no {way.path} (DEFAULT NULL makes that NULL)")
            elif absent.any() and way.name in self._defaults:
                instead[way.name.lower()] = absent
        table, more = self._fitting.fit(found, rows)
        self.found = self._fitting.found.without(name for name in self._fitting.found.names() if VARIABLE.fullmatch(name))
        for at, name in enumerate(table.column_names):
            if name.lower() in instead:
                value = next(item for key, item in self._defaults.items() if key.lower() == name.lower())
                table = table.set_column(at, name, pc.if_else(pa.array(~instead[name.lower()]), table.column(at), value))
        return table, {**more, **reasons}


def _way(name: str, item: str | Mapped, root: Type) -> _Way:
    path = item.path if isinstance(item, Mapped) else item
    kind: Type | None = root
    parts = parse_path(path)
    steps: list[int | tuple[int] | _Inside] = []
    for at, part in enumerate(parts):
        if kind == JSON:
            steps.append(_Inside(parts[at:]))
            break
        if isinstance(kind, Struct) and isinstance(part, str):
            place = _place([field for field, _ in kind.fields], part)
            kind = None if place is None else kind.fields[place][1]
            steps.append(place or 0)
        elif isinstance(kind, ListOf) and isinstance(part, int):
            kind = kind.item
            steps.append((part,))
        else:
            kind = None
        if kind is None:
            break
    optional, default = isinstance(item, Mapped), item.default if isinstance(item, Mapped) else None
    return _Way(name, write_path(parts), kind, tuple(steps), optional, default)


def _place(names: Sequence[str], name: str) -> int | None:
    """Return the index of the member with this name; otherwise of the first whose name differs only in case."""
    if name in names:
        return names.index(name)
    return next((at for at, item in enumerate(names) if item.lower() == name.lower()), None)


def _follow(whole: pa.Array, way: _Way) -> tuple[pa.Array, Absent, dict[int, str]]:
    """Return the selected values, which are absent, and by row why a path inside of JSON cannot be followed."""
    array, absent = whole, np.zeros(len(whole), bool)
    reasons: dict[int, str] = {}
    for step in way.steps:
        if isinstance(step, int):
            absent |= array.is_null().to_numpy(zero_copy_only=False)
            array = pc.struct_field(array, [step])
        elif isinstance(step, tuple):
            lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
            there = lengths > step[0]
            absent |= ~there
            places = array.offsets.to_numpy()[:-1].astype(np.int64) + step[0]
            array = array.values.take(pa.array(np.where(there, places, 0), mask=~there))
        else:
            array, without, reasons = step.follow(array)
            absent |= without
    return array, absent, reasons


def _default(way: _Way, columns: Columns) -> pa.Scalar:
    """Convert the default to a value of its column, by the rules of a JSON record.

    Raises:
        InvalidPipeline: it is not a value of the column's type.
    """
    kind = columns.get(way.name)
    assert kind is not None
    text = json.dumps({"v": way.default}, ensure_ascii=False)
    found = JsonDecoder(Columns((("v", kind),))).decode(Payloads.of([text.encode()]))
    if found.rejects:
        raise InvalidPipeline(
            f"format.mapping: DEFAULT {way.default!r} of {way.name} is not a {kind}", "write a value of the column's type"
        )
    return found.table.column("v")[0]  # not by way of Python, which has no times beyond the year 9999
