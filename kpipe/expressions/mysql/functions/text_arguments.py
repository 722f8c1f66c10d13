"""What functions of texts make of their arguments: counts within limits, and bytes."""

from __future__ import annotations

import re

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.casts import whole_number
from kpipe.expressions.mysql.values import Value, integer, text

__all__ = ["LARGEST", "as_bytes", "bytes_of", "clamped", "same_kind", "whole", "written_number"]

LARGEST = 16_777_216
"""Bytes of the longest text that a function makes; beyond it the value is NULL, as beyond MySQL's `max_allowed_packet`."""

_FAR = 1_000_000_000  # characters: further than any text reaches, and within what DuckDB takes


def whole(value: Value) -> str:
    """Return an argument that counts, as BIGINT: of a text the digits that it begins with; at most 64 bits."""
    if value.kind == "int":
        return str(int(value.literal)) if value.literal is not None else value.sql
    return integer(whole_number(value)).sql


def clamped(value: Value, least: int = 0) -> str:
    """Return an argument that counts characters, within what DuckDB takes; NULL stays NULL."""
    if value.kind == "int" and value.literal is not None:
        return str(min(max(int(value.literal), least), _FAR))
    return bind_sql(lambda n: f"(CASE WHEN {n} < {least} THEN {least} WHEN {n} > {_FAR} THEN {_FAR} ELSE {n} END)", whole(value))


def written_number(value: Value, what: str) -> int:
    """Return an argument that must be written out: digits, in quotes or not, or a negative number.

    Raises:
        Untranslated: it is not; `what` names it.
    """
    negative = re.fullmatch(r"\(-CAST\(([0-9]+) AS BIGINT\)\)", value.sql)
    if negative is not None:
        return -int(negative[1])
    if value.kind not in ("int", "text") or value.literal is None or not re.fullmatch("[0-9]{1,18}", value.literal):
        raise Untranslated(f"{what} must be written out", "write a number")
    return int(value.literal)


def bytes_of(value: Value) -> str:
    """Return the value as BLOB: the bytes of its text."""
    return value.sql if value.kind == "blob" else f"encode({text(value).sql})"


def as_bytes(values: tuple[Value, ...]) -> bool:
    """Whether a function of these works on bytes: one of them is of bytes."""
    return any(value.kind == "blob" for value in values)


def same_kind(*values: Value) -> tuple[list[str], str]:
    """Return the SQL of texts that meet in one value, and its kind: BLOB where one of them is of bytes."""
    if as_bytes(values):
        return [bytes_of(value) for value in values], "blob"
    return [text(value).sql for value in values], "text"
