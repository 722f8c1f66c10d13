"""Compile MySQL's operators by the types of their operands.

Sources: MySQL 8.4 manual, "Comparison Functions and Operators", "Type Conversion in Expression Evaluation"; compared with
a server in tests/kpipe/expressions/mysql/. For arithmetic see arithmetic.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.arithmetic import ARITHMETIC
from kpipe.expressions.mysql.binding import bind_sql, is_leaf
from kpipe.expressions.mysql.common_types import combined
from kpipe.expressions.mysql.json.json_comparisons import comparable
from kpipe.expressions.mysql.moments import compared_moment, span_of_text
from kpipe.expressions.mysql.value_binding import bind
from kpipe.expressions.mysql.values import Value, boolean, bytes_of, datetime, double, number, span, text, unrounded

__all__ = ["BINARY", "between", "compared", "first_equal", "one_of"]

_TIMES = ("date", "datetime")
_TEXTS = ("text", "blob")
# A literal that is not a date would give the same result for every record; MySQL 8 rejects it, too.
_READS_AS_DATE = re.compile(r"\s*(\d{2,4}[^\w\s]\d{1,2}[^\w\s]\d{1,2}|\d{6}(\D|\Z)|\d{8})")


def _same_type(left: Value, right: Value) -> tuple[Value, Value]:
    """Convert both as MySQL compares them: texts as texts, times with times, everything else as numbers."""
    kinds = {left.kind, right.kind}
    if kinds <= {"text", "blob", "null", "json"}:
        if "blob" in kinds:  # bytes that are not UTF-8 do not sort among texts
            return Value(bytes_of(left), "blob"), Value(bytes_of(right), "blob")
        return text(left), text(right)
    if kinds <= {*_TIMES, "null", "text"} and kinds & {*_TIMES}:
        for item in (left, right):
            if item.kind == "text" and item.literal is not None and not _READS_AS_DATE.match(item.literal):
                raise Untranslated(
                    f"'{item.literal[:20]}' is compared with a date, but is not a date", "write 'YYYY-MM-DD', or IS NULL"
                )
        return _beside_moment(left), _beside_moment(right)
    if kinds <= {"time", "span", "null", "text"}:
        return _beside_time(left), _beside_time(right)
    if kinds <= {*_TIMES, "time", "span"}:
        return datetime(left), datetime(right)
    if kinds & {*_TIMES} and kinds <= {*_TIMES, "int", "decimal"} and any(map(_dated, (left, right))):
        return datetime(left), datetime(right)
    a, b = _digits(left, right), _digits(right, left)
    if "double" in (a.kind, b.kind):
        return double(a), double(b)
    return a, b


def _beside_moment(value: Value) -> Value:
    return Value(compared_moment(value.sql), "datetime") if value.kind == "text" else datetime(value)


def _beside_time(value: Value) -> Value:
    """Convert a value that is compared with a time: a text that is not a time is midnight."""
    if value.kind != "text":
        return span(value)
    return Value(bind_sql(lambda v: f"coalesce({span_of_text(v)}, CASE WHEN {v} IS NOT NULL THEN 0 END)", value.sql), "span")


def _dated(value: Value) -> bool:
    """Return whether a number literal is written like a date, or like a date and a time."""
    return value.literal is not None and re.fullmatch(r"[12]\d{7}(\d{6}(\.\d*)?)?", value.literal) is not None


def _digits(value: Value, other: Value) -> Value:
    """Return the number; a text of digits compared with an integer is exactly that number, not a DOUBLE."""
    written = value.literal if value.kind == "text" and (other.kind == "int" or other.unsigned) else None
    if written is None or not re.fullmatch(r"\s*[+-]?\d{1,36}(\.0*)?", written):
        return number(value)
    return Value(f"CAST('{written.strip()}' AS DECIMAL(38,0))", "decimal", 38)


def compared(sign: str) -> Callable[[Value, Value], Value]:
    """Return the rule of a comparison."""
    written = {"<=>": "IS NOT DISTINCT FROM"}.get(sign, sign)

    def rule(left: Value, right: Value) -> Value:
        a, b = comparable(sign, left, right) or _same_type(left, right)
        return Value(f"({a.sql} {written} {b.sql})", "bool")

    return rule


def _pairs(value: Value, others: Sequence[tuple[str, Value]]) -> list[tuple[Value, Value]]:
    """Return both sides of the comparisons of one value with others."""
    return [comparable(sign, value, other) or _same_type(value, other) for sign, other in others]


def _compared_with(value: Value, others: Sequence[tuple[str, Value]], build: Callable[[list[str]], str]) -> str:
    """Compare a value with several others. A conversion that several comparisons share is computed once.

    Args:
        value: the left side of each comparison.
        others: sign and right side of each comparison.
        build: combines the SQL of the comparisons.
    """
    pairs = _pairs(value, others)
    count = Counter(left.sql for left, _ in pairs)
    often = [] if is_leaf(value.sql) else [sql for sql in count if count[sql] > 1]
    signs = [{"<=>": "IS NOT DISTINCT FROM"}.get(sign, sign) for sign, _ in others]

    def body(*names: str) -> str:
        named = dict(zip(often, names, strict=True))
        return build(
            [f"({named.get(left.sql, left.sql)} {sign} {right.sql})" for sign, (left, right) in zip(signs, pairs, strict=True)]
        )

    return bind_sql(body, *often)


def _bound(rule: Callable[[Value], Value], value: Value, others: Sequence[tuple[str, Value]]) -> Value:
    """Apply a rule that compares a value with others; if they convert it to several types, compute the value itself once."""
    return bind(rule, value) if len({left.sql for left, _ in _pairs(unrounded(value), others)}) > 1 else rule(value)


def one_of(value: Value, choices: Sequence[Value]) -> Value:
    """Return `value IN (choices)`. DuckDB's own IN and BETWEEN would repeat their operand."""
    return _together(unrounded(value), [("=", unrounded(choice)) for choice in choices], " OR ")


def _together(value: Value, others: Sequence[tuple[str, Value]], word: str) -> Value:
    def rule(subject: Value) -> Value:
        return Value(_compared_with(subject, others, lambda tests: f"({word.join(tests)})"), "bool")

    return _bound(rule, value, others)


def first_equal(sign: str, value: Value, searches: Sequence[Value], results: Sequence[Value]) -> Value:
    """Return the result of the first search that equals the value; the last result is the default."""
    others = [(sign, unrounded(search)) for search in searches]

    def rule(subject: Value) -> Value:
        def chosen(*made: str) -> str:
            def build(tests: list[str]) -> str:
                whens = " ".join(f"WHEN {test} THEN {result}" for test, result in zip(tests, made[:-1], strict=True))
                return f"(CASE {whens} ELSE {made[-1]} END)"

            return _compared_with(unrounded(subject), others, build)

        return combined(list(results), chosen)

    return _bound(rule, value, others)


def between(value: Value, low: Value, high: Value) -> Value:
    """Return `value BETWEEN low AND high`: all three are compared as numbers if one is a number and none a date."""
    items = [unrounded(item) for item in (value, low, high)]
    kinds = {item.kind for item in items}
    if kinds & {"int", "decimal", "double", "bool"} and not kinds & {*_TIMES, "time"} and kinds & {*_TEXTS}:
        value, low, high = (item if item.kind == "null" else number(item) for item in items)
    else:
        value, low, high = items
    return _together(value, [(">=", low), ("<=", high)], " AND ")


BINARY: dict[str, Callable[[Value, Value], Value]] = {
    **ARITHMETIC,
    "AND": lambda a, b: Value(f"({boolean(a).sql} AND {boolean(b).sql})", "bool"),
    "OR": lambda a, b: Value(f"({boolean(a).sql} OR {boolean(b).sql})", "bool"),
    "XOR": lambda a, b: Value(f"({boolean(a).sql} <> {boolean(b).sql})", "bool"),
    **{sign: compared(sign) for sign in ("=", "<>", "<", "<=", ">", ">=", "<=>")},
}  # fmt: skip
