"""Compile control flow and comparison: IF, COALESCE, GREATEST (MySQL 8.4 manual, "Flow Control Functions")."""

from __future__ import annotations

import re

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.common_types import combined
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.operators import compared, first_equal
from kpipe.expressions.mysql.value_binding import bind
from kpipe.expressions.mysql.values import NULL, Value, boolean, double, number

__all__ = ["FUNCTIONS"]


def _if(condition: Value, then: Value, otherwise: Value) -> Value:
    test = boolean(condition).sql
    return combined([then, otherwise], lambda a, b: f"(CASE WHEN {test} THEN {a} ELSE {b} END)")


def _coalesce(*values: Value) -> Value:
    return combined(list(values), lambda *made: f"coalesce({', '.join(made)})")


def _nullif(left: Value, right: Value) -> Value:
    def rule(left: Value) -> Value:
        equal = compared("=")(left, right).sql
        return combined([left], lambda made: f"(CASE WHEN {equal} THEN NULL ELSE {made} END)")

    return bind(rule, left)


def _nvl2(value: Value, not_null: Value, otherwise: Value) -> Value:
    """Compile NVL2 of MariaDB and Oracle: the second argument if the first is not NULL, else the third."""
    return combined([not_null, otherwise], lambda a, b: f"(CASE WHEN {value.sql} IS NOT NULL THEN {a} ELSE {b} END)")


def _decode(value: Value, *further: Value) -> Value:
    """Compile DECODE(value, search, result, ..., default) of Oracle and SingleStore. NULL matches NULL."""
    searches, results = further[0 : len(further) // 2 * 2 : 2], further[1::2]
    return first_equal("<=>", value, searches, [*results, further[-1] if len(further) % 2 else NULL])


def _isnull(value: Value) -> Value:
    return Value(f"({value.sql} IS NULL)", "bool")


def _extreme(name: str, *values: Value) -> Value:
    """Compile GREATEST or LEAST: NULL if any argument is; texts compare as texts, or as dates beside these.

    Raises:
        Untranslated: the arguments mix texts and numbers, or dates and other values than literal dates.
    """
    kinds = {value.kind for value in values} - {"null"}
    dates = kinds & {"date", "datetime", "time"}
    others = [value for value in values if value.kind not in (*dates, "null")]
    if dates and not all(re.match(r"\d{4}-\d\d-\d\d|\d\d:\d\d", value.literal or "") for value in others):
        raise Untranslated(
            f"{name.upper()} mixes dates and other values", f"write {name.upper()}(a, DATE(b)), or CAST(b AS DATETIME)"
        )
    if kinds & {"text", "blob"} and kinds & {"int", "decimal", "double", "bool"}:
        raise Untranslated(
            f"{name.upper()} mixes texts and numbers: MySQL compares them as texts, SingleStore as numbers",
            f"write {name.upper()}(a, CAST(b AS DOUBLE)) for numbers, or CAST(a AS CHAR) for texts",
        )
    if kinds == {"bool"}:
        values = tuple(number(value) for value in values)

    def best(*made: str) -> str:
        any_null = " OR ".join(f"{item} IS NULL" for item in made)
        return f"(CASE WHEN {any_null} THEN NULL ELSE {name}({', '.join(made)}) END)"

    return combined(list(values), lambda *made: bind_sql(best, *made))


def _interval(value: Value, *steps: Value) -> Value:
    """Count how many of the ascending steps the value has reached; -1 for NULL."""

    def rule(reached: str) -> str:
        parts = " ".join(f"WHEN {reached} < {double(step).sql} THEN {index}" for index, step in enumerate(steps))
        return f"CAST(CASE WHEN {reached} IS NULL THEN -1 {parts} ELSE {len(steps)} END AS BIGINT)"

    return Value(bind_sql(rule, double(value).sql), "int")


FUNCTIONS: dict[str, Function] = {
    "IF": Function(_if, 3),
    "IFNULL": Function(_coalesce, 2),
    "NVL": Function(_coalesce, 2),
    "COALESCE": Function(_coalesce, 1, None),
    "NULLIF": Function(_nullif, 2),
    "ISNULL": Function(_isnull, 1),
    "GREATEST": Function(lambda *values: _extreme("greatest", *values), 2, None),
    "LEAST": Function(lambda *values: _extreme("least", *values), 2, None),
    "NVL2": Function(_nvl2, 3),
    "DECODE": Function(_decode, 3, None),
    "INTERVAL": Function(_interval, 2, None),
}
