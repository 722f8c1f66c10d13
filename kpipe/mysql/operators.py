"""What MySQL's operators give, by the types of their operands.

Sources: MySQL 8.4 manual, "Comparison Functions and Operators", "Type Conversion in Expression Evaluation"; compared with
a server in tests/kpipe/mysql/. Arithmetic has a module of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kpipe.mysql.arithmetic import ARITHMETIC
from kpipe.mysql.json_comparisons import comparable
from kpipe.mysql.values import Value, boolean, datetime, double, number, span, text, unrounded
from kpipe.sql.untranslated import Untranslated

__all__ = ["BINARY", "between", "compared", "same_type"]

_TIMES = ("date", "datetime")
_TEXTS = ("text", "blob")
# A text that a date is compared with and that is none makes every comparison NULL, and WHERE leave all records out.
_READS_AS_DATE = re.compile(r"\s*(\d{2,4}[^\w\s]\d{1,2}[^\w\s]\d{1,2}|\d{6}(\D|\Z)|\d{8})")


def same_type(left: Value, right: Value) -> tuple[Value, Value]:
    """Return both as MySQL compares them: texts as texts, times with times, everything else as numbers."""
    kinds = {left.kind, right.kind}
    if kinds <= {"text", "blob", "null", "json"}:
        if "blob" in kinds:  # bytes that are no text have no place among texts
            one, other = (item.sql if item.kind == "blob" else f"encode({text(item).sql})" for item in (left, right))
            return Value(one, "blob"), Value(other, "blob")
        return text(left), text(right)
    if kinds <= {*_TIMES, "null", "text"} and kinds & {*_TIMES}:
        for item in (left, right):
            if item.kind == "text" and item.literal is not None and not _READS_AS_DATE.match(item.literal):
                raise Untranslated(
                    f"'{item.literal[:20]}' is compared with a date, and is none", "write 'YYYY-MM-DD', or IS NULL"
                )
        return datetime(left), datetime(right)
    if kinds <= {"time", "span", "null", "text"}:
        return span(left), span(right)
    if kinds <= {*_TIMES, "time", "span"}:
        return datetime(left), datetime(right)
    if kinds & {*_TIMES} and kinds <= {*_TIMES, "int", "decimal"} and any(map(_dated, (left, right))):
        return datetime(left), datetime(right)
    a, b = _digits(left, right), _digits(right, left)
    if "double" in (a.kind, b.kind):
        return double(a), double(b)
    return a, b


def _dated(value: Value) -> bool:
    """Whether a number is written like a date, or like a date and a time."""
    return value.literal is not None and re.fullmatch(r"[12]\d{7}(\d{6}(\.\d*)?)?", value.literal) is not None


def _digits(value: Value, other: Value) -> Value:
    """A number; a text of digits that is written beside a number without a fraction is exactly that number, not a DOUBLE."""
    written = value.literal if value.kind == "text" and (other.kind == "int" or other.unsigned) else None
    if written is None or not re.fullmatch(r"\s*[+-]?\d{1,36}(\.0*)?", written):
        return number(value)
    return Value(f"CAST('{written.strip()}' AS DECIMAL(38,0))", "decimal", 38)


def compared(sign: str) -> Callable[[Value, Value], Value]:
    """Return the rule of a comparison."""
    written = {"<=>": "IS NOT DISTINCT FROM"}.get(sign, sign)

    def rule(left: Value, right: Value) -> Value:
        a, b = comparable(sign, left, right) or same_type(left, right)
        return Value(f"({a.sql} {written} {b.sql})", "bool")

    return rule


def between(value: Value, low: Value, high: Value) -> Value:
    """Return `value BETWEEN low AND high`: all three are numbers where one is a number and none a date."""
    items = [unrounded(item) for item in (value, low, high)]
    kinds = {item.kind for item in items}
    if kinds & {"int", "decimal", "double", "bool"} and not kinds & {*_TIMES, "time"} and kinds & {*_TEXTS}:
        value, low, high = (item if item.kind == "null" else number(item) for item in items)
    else:
        value, low, high = items
    return Value(f"({compared('>=')(value, low).sql} AND {compared('<=')(value, high).sql})", "bool")


BINARY: dict[str, Callable[[Value, Value], Value]] = {
    **ARITHMETIC,
    "AND": lambda a, b: Value(f"({boolean(a).sql} AND {boolean(b).sql})", "bool"),
    "OR": lambda a, b: Value(f"({boolean(a).sql} OR {boolean(b).sql})", "bool"),
    "XOR": lambda a, b: Value(f"({boolean(a).sql} <> {boolean(b).sql})", "bool"),
    **{sign: compared(sign) for sign in ("=", "<>", "<", "<=", ">", ">=", "<=>")},
}  # fmt: skip
