"""Convert values to their common type, as for COALESCE, CASE and IF (MySQL 8.4 manual, "Flow Control Functions")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kpipe.expressions.mysql.values import (
    Value,
    alike,
    as_bytes,
    bytes_of,
    datetime,
    decimal,
    double,
    number,
    span,
    text,
    unrounded,
)

__all__ = ["combined", "common"]

_MOST_DIGITS = 38


def combined(values: list[Value], build: Callable[..., str]) -> Value:
    """Return a choice among values in their common type; `build` combines their SQL."""
    made = common(values)
    if made[0].kind != "decimal" or not any(value.exact for value in values):
        return alike(build(*(item.sql for item in made)), made[0])
    wide = common([unrounded(value) for value in values])
    exact = alike(build(*(item.sql for item in wide)), wide[0])
    rounded = f"CAST({exact.sql} AS DECIMAL({made[0].precision},{made[0].scale}))"
    return Value(rounded, "decimal", made[0].precision, made[0].scale, exact=exact)


def common(values: list[Value]) -> list[Value]:
    """Convert the values to the one type that MySQL uses for COALESCE, CASE and IF."""
    kinds = {value.kind for value in values} - {"null"}
    if "datetime" in kinds and len({value.digits for value in values}) > 1:
        values = [replace(value, digits=None) if value.kind == "datetime" else value for value in values]
    if not kinds or (len(kinds) == 1 and kinds <= {"text", "bool", "date", "datetime", "time", "span", "json", "blob"}):
        kind = next(iter(kinds), "text")
        return [Value(_typed_null(kind), kind) if value.kind == "null" else value for value in values]
    if kinds <= {"bool", "int"}:
        made = [number(value) for value in values]
        return [replace(value, precision=max(item.precision for item in made), literal=None) for value in made]
    if kinds <= {"bool", "int", "decimal"}:
        made = [number(value) for value in values]
        if all(value.unsigned or value.kind == "null" for value in values):
            return [
                replace(value, literal=None) if value.unsigned else Value("CAST(NULL AS DECIMAL(20,0))", "decimal", 20)
                for value in made
            ]
        scale = max(value.scale for value in made)
        whole = max(value.precision - value.scale for value in made)
        return [decimal(value, min(whole + scale, _MOST_DIGITS), scale) for value in made]
    if kinds <= {"bool", "int", "decimal", "double"}:
        places = [0 if value.kind == "null" else double(value).digits for value in values]
        most = None if None in places else max(item for item in places if item is not None)
        return [replace(double(value), digits=most, single=all(item.single for item in values)) for value in values]
    if kinds <= {"date", "datetime", "time"}:
        return [datetime(value) for value in values]
    if kinds <= {"time", "span"}:
        return [span(value) for value in values]
    if as_bytes(*values):  # every text can become bytes, but not the other way
        return [Value(bytes_of(value), "blob") for value in values]
    return [text(value) for value in values]


def _typed_null(kind: str) -> str:
    types = {"text": "VARCHAR", "double": "DOUBLE", "bool": "BOOLEAN", "int": "BIGINT", "date": "DATE", "datetime": "TIMESTAMP",
             "time": "TIME", "span": "BIGINT", "json": "JSON", "blob": "BLOB"}  # fmt: skip
    return f"CAST(NULL AS {types[kind]})"
