"""Compute the JSON functions of compiled expressions over blocks: members at a path in C, everything else in Python.

Documents that the C code (resources/native/json_members.c) does not support fall back to document_functions.py. Both return the
same text.
"""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.expressions.mysql.json.document_functions import call
from kpipe.expressions.mysql.json.document_paths import legs
from kpipe.expressions.mysql.json.documents import Invalid
from resources.native import library

__all__ = ["documents", "texts"]

_FORMS = {
    name: form
    for form, name in enumerate(("get", "string", "double", "bigint", "extract", "extract_text", "unquote"))
} | {"value": 1}  # fmt: skip
_KEYED = ("get", "string", "double", "bigint")
_KEY_OR_PLACE, _KEY, _PLACE = range(3)
_NULL, _TEXT, _LOOK = range(3)
_JSON = pa.json_(pa.string())


def texts(names: pa.ChunkedArray, args: pa.ChunkedArray) -> pa.Array:
    """Compute an operation for each row.

    Args:
        names: of the operation, as in document_functions.py.
        args: its arguments, a list of texts for each row.

    Raises:
        Invalid: an argument is not a valid document or path.
    """
    rows = args.combine_chunks()
    name = names[0].as_py() if len(names) else None
    if name in _FORMS and rows.type == pa.list_(pa.string()) and not rows.null_count and pc.all(pc.equal(names, name)).as_py():
        members = _members(name, rows)
        if members is not None:
            return members
    return pa.array(
        [call(operation, items) for operation, items in zip(names.to_pylist(), rows.to_pylist(), strict=True)], pa.string()
    )


def documents(names: pa.ChunkedArray, args: pa.ChunkedArray) -> pa.Array:
    """Compute the same as JSON."""
    return pa.ExtensionArray.from_storage(_JSON, texts(names, args))


def _members(name: str, rows: pa.ListArray) -> pa.Array | None:
    """Compute the texts in C if each row has a document and the same plain path; None: use Python."""
    native, values, count = library(), rows.values, len(rows)
    if native is None:
        return None
    path = None if name == "unquote" else rows[0].values[1].as_py() if len(rows[0].values) == 2 else None
    plan = _plan(name, path)
    if plan is None:
        return None
    steps, step_names = plan
    where = np.frombuffer(rows.buffers()[1], np.int32)[rows.offset : rows.offset + count + 1]
    valid, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset :]
    room = int(bounds[where[-1]] - bounds[where[0]]) + 3 * count
    ends, out, status = np.empty(count + 1, np.int32), np.empty(room, np.uint8), np.empty(count, np.uint8)
    raw = path.encode() if path is not None else None
    native.kp_json_members(
        data.address if data is not None else 0, bounds.ctypes.data, valid.address if valid is not None else 0, values.offset,
        where.ctypes.data, count, raw, len(raw or b""), steps.ctypes.data, len(steps), step_names, _FORMS[name],
        ends.ctypes.data, out.ctypes.data, status.ctypes.data,
    )  # fmt: skip
    nulls = None if status.all() else pa.array(status != _NULL).buffers()[1]
    made = pa.Array.from_buffers(pa.string(), count, [nulls, pa.py_buffer(ends), pa.py_buffer(out)])
    looked = np.flatnonzero(status == _LOOK)
    if not len(looked):
        return made
    exact = [call(name, items) for items in rows.take(pa.array(looked)).to_pylist()]
    return pc.replace_with_mask(made, pa.array(status == _LOOK), pa.array(exact, pa.string()))


@lru_cache(maxsize=1024)
def _plan(name: str, path: str | None) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.int32]], bytes] | None:
    """Return the steps of a path for the C code; None if it does not support the path."""
    steps: list[tuple[int, int, bytes]] = []
    if name in _KEYED:
        for key in json.loads(path) if path is not None else [None]:
            if not isinstance(key, str):
                return None
            steps.append((_KEY_OR_PLACE, _place(key), key.encode()))
    elif name != "unquote":
        try:
            way = legs(path or "")
        except Invalid:
            return None
        for kind, what in way:
            if kind == "key":
                steps.append((_KEY, -1, what.encode()))
            elif kind == "place" and not what[0]:
                steps.append((_PLACE, what[1], b""))
            else:
                return None
    table = np.array([(kind, place, len(said)) for kind, place, said in steps], np.int32).reshape(len(steps), 3)
    return table, b"".join(said for _, _, said in steps)


def _place(key: str) -> int:
    """Return a key as an array index, as in documents.member; -1: not an index."""
    return int(key) if key.isascii() and key.isdigit() and len(key) < 10 else -1
