"""Compile bit operators on binary strings (MySQL 8.4 manual, "Bit Functions and Operators").

Operators work on bytes if an operand is a binary string other than a literal such as `0x4D`, and on numbers otherwise.
"""

from __future__ import annotations

from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.values import Value, integer

__all__ = ["byte_bits", "counted", "flipped", "is_bytes", "on_bytes"]

_SIGNS = {"&": "({0} & {1})", "|": "({0} | {1})", "^": "xor({0}, {1})"}
_SHIFTS = ("<<", ">>")


def is_bytes(value: Value) -> bool:
    """Return whether a bit operator uses the bytes of a value, not its number."""
    return value.kind == "blob" and value.bits is None


def on_bytes(sign: str, left: Value, right: Value) -> bool:
    """Return whether the operator works on bytes for these operands."""
    if sign in _SHIFTS:
        return is_bytes(left)
    return sign in _SIGNS and (is_bytes(left) or is_bytes(right)) and left.kind == right.kind == "blob"


def byte_bits(sign: str, left: Value, right: Value) -> Value:
    """Return `left sign right` as bytes. Fails at run time if the operands differ in length."""
    if sign in _SHIFTS:
        shifted = f"CAST(CAST({{0}} AS BIT) {sign} CAST(least({{1}}, 2147483647) AS INTEGER) AS BLOB)"
        beyond = "WHEN {1} < 0 OR {1} >= bit_length(CAST({0} AS BIT)) THEN repeat('\\x00'::BLOB, octet_length({0}))"
        body = f"(CASE WHEN octet_length({{0}}) = 0 THEN {{0}} {beyond} ELSE {shifted} END)"
        return Value(bind_sql(body.format, left.sql, integer(right).sql), "blob")
    made = "CAST(" + _SIGNS[sign].format("CAST({0} AS BIT)", "CAST({1} AS BIT)") + " AS BLOB)"
    body = f"(CASE WHEN octet_length({{0}}) = 0 AND octet_length({{1}}) = 0 THEN {{0}} ELSE {made} END)"
    return Value(bind_sql(body.format, left.sql, right.sql), "blob")


def flipped(value: Value) -> Value:
    """Return `~value` as bytes."""
    body = "(CASE WHEN octet_length({0}) = 0 THEN {0} ELSE CAST(~CAST({0} AS BIT) AS BLOB) END)"
    return Value(bind_sql(body.format, value.sql), "blob")


def counted(value: Value) -> Value:
    """Return BIT_COUNT of bytes."""
    body = "(CASE WHEN octet_length({0}) = 0 THEN 0 ELSE CAST(bit_count(CAST({0} AS BIT)) AS BIGINT) END)"
    return Value(bind_sql(body.format, value.sql), "int", 10)
