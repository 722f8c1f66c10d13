"""Check texts against the JSON that records may have (docs/design.md 4.6). DuckDB's json_valid accepts more.

It accepts NaN, commas after the last item, duplicate members and any depth. C code (resources/native/json_members.c) accepts
most documents; the rest is parsed in Python.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.expressions.mysql.json.documents import depth
from kpipe.schema.nesting import DEEPEST_JSON
from resources.native import library

__all__ = ["IS_JSON", "is_json", "problem"]

#: The name of `is_json` in DuckDB.
IS_JSON = "kpipe_is_json"

# Levels of a column's value: the record that a destination writes it into has another one.
_DEEPEST = DEEPEST_JSON - 1
_EXTRACT, _TEXT = 4, 1  # of json_members.c: the operation that writes a document without spaces, and its success


def is_json(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return for each text whether it is one strict JSON document; NULL stays NULL."""
    array = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    array = array.cast(pa.string())
    good = _compiled(array)
    absent = np.asarray(array.is_null())
    for at in np.flatnonzero(~good & ~absent).tolist():
        good[at] = not problem(array[at].as_py())
    return pa.array(good, mask=absent)


def _compiled(texts: pa.StringArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which texts the C code accepts; all others need Python."""
    native, count = library(), len(texts)
    valid, offsets, data = texts.buffers()
    if native is None or not count or data is None:
        return np.zeros(count, np.bool_)
    bounds = np.frombuffer(offsets, np.int32)[texts.offset :]
    rows = np.arange(count + 1, dtype=np.int32)  # a list of one text for each row
    room = int(bounds[count] - bounds[0]) + 3 * count
    ends, out, status = np.empty(count + 1, np.int32), np.empty(room, np.uint8), np.empty(count, np.uint8)
    native.kp_json_members(
        data.address, bounds.ctypes.data, valid.address if valid is not None else 0, texts.offset, rows.ctypes.data, count,
        None, 0, np.zeros(1, np.int32).ctypes.data, 0, b"", _EXTRACT, ends.ctypes.data, out.ctypes.data, status.ctypes.data,
    )  # fmt: skip
    return status == _TEXT


def problem(text: str) -> str:
    """Return why a text is not one strict JSON document; empty: it is one."""
    try:
        document = json.loads(text, parse_int=str, parse_float=str, parse_constant=_refused, object_pairs_hook=_unique)
        deep = text.count("[") + text.count("{") > _DEEPEST and depth(document, scalars=0) > _DEEPEST
        if not text.isascii() or "\\u" in text:  # half of a surrogate pair is not a character
            json.dumps(document, ensure_ascii=False).encode()
    except _Duplicate as error:
        return f"duplicate member {str(error)[:40]}"
    except ValueError:
        return "not JSON"
    except RecursionError:
        deep = True
    return "nested too deeply" if deep else ""


class _Duplicate(ValueError):
    """A member of an object has the name of another one."""


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise _Duplicate(name)
        members[name] = value
    return members
