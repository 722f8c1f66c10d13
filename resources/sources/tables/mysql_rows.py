"""Convert rows of MySQL and MariaDB, as their text protocol sends them, to JSON objects without loss."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

from pymysql.constants import FIELD_TYPE

__all__ = ["documents"]


def documents(names: Sequence[str], types: Sequence[int], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return one JSON object for each row.

    Numbers keep all digits. Times are ISO 8601, those of TIMESTAMP in UTC. Bytes are base64.

    Args:
        names: of the columns.
        types: their types, as numbers of the protocol.
        rows: values as text; as bytes if they are bytes. None is NULL.
    """
    heads = [json.dumps(name, ensure_ascii=False) + ":" for name in names]
    converts = [_CONVERT.get(kind, _text) for kind in types]
    made: list[str] = []
    for row in rows:
        parts = zip(heads, converts, row, strict=True)
        made.append("{" + ",".join(head + ("null" if value is None else convert(value)) for head, convert, value in parts) + "}")
    return made


def _number(text: str) -> str:
    """Return a number without the zeros that ZEROFILL writes before it, which JSON does not have."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    bare = digits.lstrip("0")
    return sign + (bare if bare[:1].isdigit() else "0" + bare)


def _text(value: str | bytes) -> str:
    text = base64.b64encode(value).decode() if isinstance(value, bytes) else value
    return json.dumps(text, ensure_ascii=False)


_CONVERT: dict[int, Callable[[Any], str]] = {
    **dict.fromkeys(
        (
            FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG, FIELD_TYPE.YEAR,
            FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL, FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE,
        ),
        _number,
    ),
    FIELD_TYPE.BIT: lambda value: str(int.from_bytes(value, "big")),
    FIELD_TYPE.DATETIME: lambda value: _text(value.replace(" ", "T")),
    FIELD_TYPE.TIMESTAMP: lambda value: _text(value.replace(" ", "T") + "Z"),
    FIELD_TYPE.JSON: lambda value: value if isinstance(value, str) else value.decode(),
}  # fmt: skip
