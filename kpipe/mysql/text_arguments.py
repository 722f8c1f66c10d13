"""What functions of texts make of their arguments: counts, bytes, and arguments that a rule names several times."""

from __future__ import annotations

import re
from collections.abc import Callable

from kpipe.mysql.casts import whole_number
from kpipe.mysql.values import Value, integer, text
from kpipe.sql.untranslated import Untranslated

__all__ = ["LARGEST", "as_bytes", "bytes_of", "clamped", "once", "same_kind", "whole", "written_number"]

LARGEST = 16_777_216
"""Bytes of the longest text that a function makes; beyond it the value is NULL, as beyond MySQL's `max_allowed_packet`."""

_FAR = 1_000_000_000  # characters: further than any text reaches, and within what DuckDB takes
_SHORT = 40  # characters of SQL that may stand several times
_LITERAL = re.compile(r"'(?:[^']|'')*'")


def once(body: Callable[..., str], *arguments: str) -> str:
    """Return the SQL of a rule that names its arguments several times: what is long, and no literal, is computed once.

    Args:
        body: makes the SQL of the rule from names of its arguments.
        arguments: SQL.
    """
    numbered = [f"a{at}" for at in range(len(arguments))]
    said = " ".join(arguments) + body(*numbered)
    level = next(level for level in range(1, 1000) if f"kpipe_v{level}" not in said)
    long = {name: sql for name, sql in zip(numbered, arguments, strict=True) if len(sql) > _SHORT and not _LITERAL.fullmatch(sql)}
    made = body(*(f"kpipe_v{level}.{name}" if name in long else sql for name, sql in zip(numbered, arguments, strict=True)))
    if not long:
        return made
    packed = ", ".join(f"'{name}': {sql}" for name, sql in long.items())
    return f"list_transform([{{{packed}}}], lambda kpipe_v{level}: {made})[1]"


def whole(value: Value) -> str:
    """Return an argument that counts, as BIGINT: of a text the digits that it begins with; at most 64 bits."""
    if value.kind == "int":
        return str(int(value.literal)) if value.literal is not None else value.sql
    return integer(whole_number(value)).sql


def clamped(value: Value, least: int = 0) -> str:
    """Return an argument that counts characters, within what DuckDB takes; NULL stays NULL."""
    if value.kind == "int" and value.literal is not None:
        return str(min(max(int(value.literal), least), _FAR))
    return once(lambda n: f"(CASE WHEN {n} < {least} THEN {least} WHEN {n} > {_FAR} THEN {_FAR} ELSE {n} END)", whole(value))


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
