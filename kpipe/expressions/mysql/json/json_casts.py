"""Compile casts to JSON and from it.

Sources: MySQL 8.4 manual, "The JSON Data Type", "Converting between JSON and non-JSON values"; SingleStore's manual, "CAST or
CONVERT".
"""

from __future__ import annotations

from kpipe.expressions.mysql.json.json_paths import asked, document, fragment
from kpipe.expressions.mysql.values import Value, content

__all__ = ["as_document", "out_of_document"]

_INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT", "SIGNED", "UNSIGNED")
_DECIMALS = ("DECIMAL", "NUMERIC", "DEC", "FIXED")
_TIMES = ("DATE", "DATETIME", "TIMESTAMP", "TIME", "YEAR")


def as_document(value: Value, forced: bool) -> Value:
    """Cast the value to JSON. An invalid document fails at run time, or is NULL if `forced`."""
    if value.kind in ("text", "blob", "null", "json"):
        return asked("json", "document" if forced else "parse", document(value))
    return asked("json", "parse", fragment(value, "NULL"))


def out_of_document(value: Value, name: str, sizes: tuple[int, ...]) -> Value:
    """Return what a cast from JSON starts with: the content, with all digits of a number. Other values are unchanged.

    Args:
        value: any value.
        name: of the type, upper case.
        sizes: its numbers in parentheses.
    """
    if value.kind != "json":
        return value
    if name in _INTEGERS:
        return asked("int", "integer", document(value))
    if name in _DECIMALS:
        precision, scale = (*sizes, 10, 0)[:2] if len(sizes) != 1 else (sizes[0], 0)
        said = asked("text", "fixed", document(value), f"'{precision}'", f"'{scale}'").sql
        return Value(f"CAST({said} AS DECIMAL({precision},{scale}))", "decimal", precision, scale)
    return content(value) if name in _TIMES else value
