"""Render rows as JSON of bounded size."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kpipe.errors import InvalidStatement
from kpipe_assets.statements.result import Result

__all__ = ["MOST_BYTES", "MOST_ROWS", "lossless", "rendered", "rendered_list"]

#: Maximum number of rows or entries.
MOST_ROWS = 1000
#: Maximum size of the rows in JSON.
MOST_BYTES = 16 << 20


def lossless(value: Any) -> str:
    """Return a value as JSON in ASCII: other types as text, not-a-number as null, bytes that are not UTF-8 as hexadecimal."""
    return json.dumps(_finite(value), allow_nan=False, separators=(",", ":"), default=str)


def rendered(result: Result, most_rows: int = MOST_ROWS, most_bytes: int = MOST_BYTES) -> bytes:
    """Return a result as JSON, with `truncated` if there are more rows than fit.

    Raises:
        InvalidStatement: its first row alone is too large.
    """
    head = lossless({"message": result.message, "columns": list(result.columns)})
    return _object(head[:-1] + ",", "rows", (list(row) for row in result.rows), most_rows, most_bytes)


def rendered_list(name: str, entries: Iterable[Mapping[str, Any]], most_bytes: int = MOST_BYTES) -> bytes:
    """Return an object with one list as JSON; see `rendered`."""
    return _object("{", name, entries, MOST_ROWS, most_bytes)


def _object(head: str, name: str, items: Iterable[Any], most: int, most_bytes: int) -> bytes:
    parts, size, more = list[str](), 0, False
    for item in items:
        if len(parts) == most:
            more = True
            break
        text = lossless(item)
        size += len(text) + 1
        if size > most_bytes:
            if not parts:
                raise InvalidStatement(
                    f"the first row of the result is too large: expected at most {most_bytes:,} bytes",
                    "select fewer columns or a part of the text, or use the command line of kpipe",
                )
            more = True
            break
        parts.append(text)
    end = ',"truncated":true}' if more else "}"
    return "".join([head, lossless(name), ":[", ",".join(parts), "]", end]).encode("ascii")


def _finite(value: Any) -> Any:
    """Replace what JSON cannot express: NaN and infinities by null, bytes by text or hexadecimal digits."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            return {"hex": bytes(value).hex()}
    return value
