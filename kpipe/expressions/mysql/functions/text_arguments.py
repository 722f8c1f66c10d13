"""Convert arguments of text functions: counts within limits, literals, and bytes."""

from __future__ import annotations

import re

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.casts import whole_number
from kpipe.expressions.mysql.functions.byte_operations import NAME
from kpipe.expressions.mysql.values import Value, as_bytes, bytes_of, integer, text

__all__ = ["LARGEST", "asked", "clamped", "digits_of", "same_kind", "whole", "written_number"]

LARGEST = 16_777_216
"""Bytes of the longest result of a function; a longer one is NULL, as with MySQL's `max_allowed_packet`."""

_FAR = 1_000_000_000  # characters: longer than any text, and below DuckDB's limit


def whole(value: Value) -> str:
    """Return a count as BIGINT; of a text, its leading digits."""
    if value.kind == "int":
        return str(int(value.literal)) if value.literal is not None else value.sql
    return integer(whole_number(value)).sql


def clamped(value: Value, least: int = 0) -> str:
    """Return a count of characters, limited to what DuckDB supports; NULL stays NULL."""
    if value.kind == "int" and value.literal is not None:
        return str(min(max(int(value.literal), least), _FAR))
    return bind_sql(lambda n: f"(CASE WHEN {n} < {least} THEN {least} WHEN {n} > {_FAR} THEN {_FAR} ELSE {n} END)", whole(value))


def written_number(value: Value, what: str) -> int:
    """Return an argument that must be a literal: digits, in quotes or not, or a negative number.

    Raises:
        Untranslated: it is not a literal; the message starts with `what`.
    """
    negative = re.fullmatch(r"\(-CAST\(([0-9]+) AS BIGINT\)\)", value.sql)
    if negative is not None:
        return -int(negative[1])
    if value.kind not in ("int", "text") or value.literal is None or not re.fullmatch("[0-9]{1,18}", value.literal):
        raise Untranslated(f"{what} must be a literal", "write a number")
    return int(value.literal)


def same_kind(*values: Value) -> tuple[list[str], str]:
    """Return the SQL of the values and their common type: BLOB if any of them is binary, else text."""
    if as_bytes(*values):
        return [bytes_of(value) for value in values], "blob"
    return [text(value).sql for value in values], "text"


def digits_of(value: Value) -> str:
    """Return the bytes of the value as hexadecimal digits."""
    return f"hex({bytes_of(value)})"


def asked(operation: str, *arguments: str) -> str:
    """Return the SQL that calls an operation of byte_operations.py; bytes are hexadecimal digits."""
    return f"{NAME}('{operation}', CAST([{', '.join(arguments)}] AS VARCHAR[]))"
