"""Convert defaults of MySQL's columns to DuckDB's SQL.

Source of the rules: MySQL 8.4 manual, "String Literals" and "Data Type Default Values".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kpipe.errors import InvalidStatement
from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.syntax.tree import unquoted
from kpipe.expressions.mysql.values import quoted
from kpipe.expressions.tokens import Word

__all__ = ["default", "duckdb_text"]

# Functions of the current time, and the type that DuckDB casts it to.
_CLOCKS = {
    **dict.fromkeys(("CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP", "LOCALTIME", "UTC_TIMESTAMP"), "TIMESTAMP"),
    **dict.fromkeys(("CURRENT_DATE", "CURDATE", "UTC_DATE"), "DATE"),
    **dict.fromkeys(("CURRENT_TIME", "CURTIME", "UTC_TIME"), "TIME"),
}
_CLOCK = re.compile(r"(\w+)(?:\(\d*\))?|\((\w+)(?:\(\d*\))?\)")
_ZONED = re.compile(r"WITH\s+TIME\s+ZONE|TZ\s*\Z", re.IGNORECASE)
_UTC = "now() AT TIME ZONE 'UTC'"  # without the zone, other clients of the database would store their local time


def default(value: Sequence[Word], column_type: str) -> str | None:
    """Return a default in DuckDB's SQL; None: DuckDB reads it in the same way.

    Args:
        value: tokens after DEFAULT.
        column_type: DuckDB's type of the column.

    Raises:
        InvalidStatement: a text contains NUL.
    """
    if len(value) == 1 and value[0].kind == "quoted":  # a text, because a default cannot be a column
        return _literal(value[0])
    clock = _CLOCK.fullmatch("".join(word.text.upper() for word in value))
    kind = _CLOCKS.get(clock[1] or clock[2]) if clock is not None else None
    if kind is None:
        return None
    if _ZONED.search(column_type):
        return "now()" if kind == "TIMESTAMP" else None
    return f"({_UTC})" if kind == "TIMESTAMP" else f"CAST({_UTC} AS {kind})"


def duckdb_text(word: Word) -> str:
    """Return a token with its text in DuckDB's notation.

    Raises:
        InvalidStatement: the text contains NUL.
    """
    return _literal(word) if word.kind == "text" and word.text.startswith("'") and "\\" in word.text else word.text


def _literal(word: Word) -> str:
    try:
        return quoted(unquoted(word.text))
    except Untranslated as error:
        raise InvalidStatement(f"CREATE TABLE: {error.what}: {word.text[:40]}", error.hint) from None
