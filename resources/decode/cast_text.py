"""Columns of text to columns of their types, and why where a text is no such value."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from kpipe.schema.columns import BLOB, VARCHAR, Columns, ListOf, MapOf, Struct, Type
from resources.decode.block import Decoder, Payloads
from resources.decode.json.decoder import JsonDecoder
from resources.decode.json.rows import wrong
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import staged_type

__all__ = ["Texts"]

_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}


class Texts:
    """Reads text as values of columns' types: as JSON's strings are read, and true, false, 1, 0 (and what DuckDB takes beside
    them) for BOOLEAN; JSON, STRUCTs and lists from JSON text. BLOB takes the bytes.

    Args:
        columns: names and types.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._nested: dict[str, Decoder] = {
            name: JsonDecoder(Columns((("v", kind),))) for name, kind in columns if isinstance(kind, Struct | ListOf | MapOf)
        }

    def read(self, texts: Sequence[pa.Array]) -> tuple[pa.Table, dict[int, str]]:
        """The columns in staged types, and reasons by row of what could not be read (NULL in the table).

        Args:
            texts: for each column the texts as bytes; null is NULL.
        """
        reasons: dict[int, str] = {}
        done: dict[str, pa.Array] = {}
        rest: list[tuple[str, Type]] = []
        decoded: dict[str, pa.Array] = {}
        for (name, kind), column in zip(self.columns, texts, strict=True):
            if kind == BLOB:
                done[name] = column
                continue
            decoded[name] = _decoded(column, name, reasons)
            quick = _quick(decoded[name], kind)
            if quick is not None:
                done[name] = quick
            elif name in self._nested:
                done[name] = self._objects(decoded[name], name, kind, reasons)
            else:
                rest.append((name, kind))
        if rest:
            slow = Columns(tuple(rest))
            found = in_memory.parsed(pa.table([decoded[name] for name, _ in rest], names=list(slow.names())), slow)
            for name, kind in rest:
                done[name] = found.column(name).combine_chunks()
                if done[name].null_count > decoded[name].null_count:
                    _blame(decoded[name], done[name], name, kind, reasons)
        arrays = [done[name] for name in self.columns.names()]
        return pa.table(arrays, names=list(self.columns.names())), reasons

    def _objects(self, column: pa.Array, name: str, kind: Type, reasons: dict[int, str]) -> pa.Array:
        """Text that is one JSON document, as the JSON decoder reads it."""
        valid = pc.fill_null(in_memory.json_valid(column), True).to_pylist()
        texts = [text if ok and text is not None else "null" for text, ok in zip(column.to_pylist(), valid, strict=True)]
        found = self._nested[name].decode(Payloads.of([b'{"v":' + text.encode() + b"}" for text in texts]))
        for at, ok in enumerate(valid):
            if not ok:
                reasons.setdefault(at, _reason(name, column[at].as_py(), kind))
        for at, why in found.rejects:
            reasons.setdefault(at, name + why.removeprefix("v"))
        values = found.table.column("v").combine_chunks()
        if found.kept is None:
            return values
        places = [-1, *found.kept, len(column)]
        gaps = [after - before - 1 for before, after in pairwise(places)]
        indices: list[int | None] = [None] * gaps[0]
        for at, gap in enumerate(gaps[1:]):
            indices += [at, *[None] * gap]
        return values.take(pa.array(indices, pa.int64()))


def _decoded(column: pa.Array, name: str, reasons: dict[int, str]) -> pa.Array:
    """As text; null where the bytes are not UTF-8."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        for at, value in enumerate(column.to_pylist()):
            try:
                texts.append(value if value is None else value.decode("utf-8"))
            except UnicodeDecodeError as error:
                texts.append(None)
                reasons.setdefault(at, f"{name}: not UTF-8 at byte {error.start}")
        return pa.array(texts, pa.string())


def _quick(column: pa.Array, kind: Type) -> pa.Array | None:
    """By Arrow's casts where they take nothing that DuckDB's would not, ten times faster; None: not here, or not all of it."""
    if kind == VARCHAR or column.null_count == len(column):
        return column.cast(staged_type(kind)) if kind == VARCHAR else pa.nulls(len(column), staged_type(kind))
    if str(kind) not in _INTEGERS and str(kind) != "DOUBLE":
        return None
    if str(kind) != "DOUBLE" and pc.any(pc.match_substring(column, "x", ignore_case=True)).as_py():  # 0x10 would be 16
        return None
    try:
        return column.cast(staged_type(kind))
    except pa.ArrowInvalid:
        return None


def _blame(texts: pa.Array, values: pa.Array, name: str, kind: Type, reasons: dict[int, str]) -> None:
    for at in pc.indices_nonzero(pc.and_(texts.is_valid(), values.is_null())).to_pylist():
        reasons.setdefault(at, _reason(name, texts[at].as_py(), kind))


def _reason(name: str, text: str, kind: Type) -> str:
    return f"{wrong(text, kind, name)}{'' if text else ' (format.null says which text is NULL)'}"
