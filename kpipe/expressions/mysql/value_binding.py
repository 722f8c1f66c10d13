"""Compute typed values only once although a rule uses them several times (see binding.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kpipe.expressions.mysql.binding import bind_sql, is_leaf
from kpipe.expressions.mysql.values import Value, unrounded

__all__ = ["bind"]


def bind(rule: Callable[..., Value], *values: Value) -> Value:
    """Return the value of a rule that uses its arguments several times; each keeps its type, and a literal stays one.

    Args:
        rule: computes a value from values.
        values: the arguments.
    """
    result: list[Value] = []

    def named(*names: str) -> list[Value]:
        return [_named(value, name) for value, name in zip(values, names, strict=True)]

    def body(*names: str) -> str:
        result[:] = [rule(*named(*names))]
        return result[0].sql

    arguments = [unrounded(value).sql for value in values]
    if all(map(is_leaf, arguments)):
        return rule(*values)
    sql = bind_sql(body, *arguments)
    made = result[0]
    exact = made.exact
    if exact is not None and sql != made.sql:
        exact = replace(exact, sql=bind_sql(lambda *names: (rule(*named(*names)).exact or made).sql, *arguments))
    return replace(made, sql=sql, exact=exact)


def _named(value: Value, name: str) -> Value:
    """Return the value under a lambda's name; for a quotient the name has all digits."""
    if value.exact is None:
        return value if name == value.sql else replace(value, sql=name)
    if name == value.exact.sql:
        return value
    shown = f"CAST({name} AS DECIMAL({value.precision},{value.scale}))"
    return replace(value, sql=shown, exact=replace(value.exact, sql=name))
