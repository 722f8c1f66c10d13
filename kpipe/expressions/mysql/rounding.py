"""Compile ROUND, TRUNCATE, CEIL and FLOOR: exact numbers round half away from zero, a DOUBLE half to even.

Source: MySQL 8.4 manual, "Rounding Behavior"; compared with a server in tests/kpipe/expressions/mysql/. A DOUBLE is
multiplied by a power of ten, rounded, and divided again, as on the server: ROUND(1.005e0, 2) is 1.
"""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal

from kpipe.expressions.mysql.arithmetic import scaled, unscaled
from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.values import Value, alike, decimal, integer, number, unrounded

__all__ = ["ceiling", "floor", "rounded", "truncated"]

_MOST_SCALE = 30
_MOST_DIGITS = 38
_NO_PLACES = Value("0", "int", 1, literal="0")


def ceiling(value: Value) -> Value:
    """Return CEIL(value)."""
    return _to_whole("ceil", value)


def floor(value: Value) -> Value:
    """Return FLOOR(value)."""
    return _to_whole("floor", value)


def rounded(value: Value, places: Value = _NO_PLACES) -> Value:
    """Return ROUND(value, places)."""
    return _cut(value, places, truncating=False)


def truncated(value: Value, places: Value = _NO_PLACES) -> Value:
    """Return TRUNCATE(value, places)."""
    return _cut(value, places, truncating=True)


def _to_whole(name: str, value: Value) -> Value:
    made = number(value)
    if made.kind == "double":
        return Value(f"{name}({made.sql})", "double", digits=0)
    wide = unrounded(made)
    if not wide.scale:
        return replace(made, literal=None)
    digits = min(made.precision - made.scale + 1, _MOST_DIGITS)
    if digits <= 18:
        return Value(f"CAST({name}({wide.sql}) AS BIGINT)", "int", digits)
    return Value(f"CAST({name}({wide.sql}) AS DECIMAL({digits},0))", "decimal", digits)


def _cut(value: Value, places: Value, truncating: bool) -> Value:
    made, count = number(value), _written(places)
    if places.kind == "null":
        return alike(f"(CASE WHEN false THEN {made.sql} END)", made)
    if made.kind == "double":
        return _of_double(made, places, count, truncating)
    if count is None:
        return _by_record(made, integer(places).sql, truncating)
    whole = made.precision - made.scale
    if count < made.scale:
        return _exactly(unrounded(made), whole, count, truncating)
    if made.kind == "int" or made.unsigned:
        return replace(made, literal=None)
    scale = min(count, _MOST_SCALE, max(_MOST_DIGITS - whole, made.scale))
    wide = unrounded(made)
    if wide.scale > scale:
        return _exactly(wide, whole, scale, truncating)
    return decimal(wide, whole + scale, scale)


def _written(places: Value) -> int | None:
    """Return the literal number of places; None: it comes from the record."""
    if places.literal is None or places.kind not in ("int", "decimal", "double", "text"):
        return None
    if places.kind == "text":
        match = re.match(r"\s*([+-]?\d+)", places.literal)
        return max(min(int(match[1]), 400), -400) if match else 0
    written = max(min(Decimal(places.literal), Decimal(400)), Decimal(-400))
    return int(written.quantize(Decimal(1), ROUND_HALF_EVEN if places.kind == "double" else ROUND_HALF_UP))


def _in_units(sql: str, unit: str, truncating: bool) -> str:
    """Return how often the unit fits into a HUGEINT."""
    step = "v[1] // v[2]" if truncating else "sign(v[1]) * ((abs(v[1]) + v[2] // 2) // v[2])"
    return f"list_transform([[{sql}, {unit}]], lambda v: {step})[1]"


def _exactly(wide: Value, whole: int, count: int, truncating: bool) -> Value:
    """Return an exact number with that many decimal places; a negative count zeroes integer digits."""
    if wide.scale - count > _MOST_DIGITS:
        return Value(f"(CASE WHEN {wide.sql} IS NOT NULL THEN 0::BIGINT END)", "int", 1)
    units = _in_units(unscaled(wide), f"{10 ** (wide.scale - count)}::HUGEINT", truncating)
    if count >= 0:
        return scaled(units, whole + 1 + count, count)
    digits = min(max(whole, -count) + 1, _MOST_DIGITS)
    if wide.kind == "int" and digits <= 18:
        return Value(f"CAST({units} * {10**-count} AS BIGINT)", "int", digits)
    return Value(f"CAST({units} * {10**-count}::HUGEINT AS DECIMAL({digits},0))", "decimal", digits)


def _by_record(made: Value, places: str, truncating: bool) -> Value:
    """Round an exact number, which keeps its scale, to a number of places that comes from the record."""
    wide = unrounded(made)
    cut = f"CAST(least({wide.scale} - greatest(least({{0}}, {made.scale}), -99), 38) AS INTEGER)"
    power = f"CAST(CASE WHEN {{0}} IS NOT NULL THEN rpad('1', {cut} + 1, '0') END AS HUGEINT)"
    unit = bind_sql(power.format, places)
    units = bind_sql(lambda number, step: f"({_in_units(number, step, truncating)} * {step})", unscaled(wide), unit)
    digits = min(made.precision + 1, _MOST_DIGITS)
    if made.kind == "int" and digits <= 18:
        return Value(f"CAST({units} AS BIGINT)", "int", digits)
    return decimal(scaled(units, digits + wide.scale - made.scale, wide.scale), digits, made.scale)


def _of_double(made: Value, places: Value, count: int | None, truncating: bool) -> Value:
    power = f"{10.0 ** min(abs(count), 308)}::DOUBLE" if count is not None else "pow(10.0, least(abs(v[2]), 308))"
    near = "trunc({})" if truncating else "round_even({}, 0)"
    up, down = near.format(f"v[1] * {power}"), near.format(f"v[1] / {power}")
    forms = f"WHEN v[2] < -308 THEN 0 WHEN v[2] < 0 THEN {down} * {power} "
    forms += f"WHEN v[2] > 308 OR isinf(v[1] * {power}) THEN v[1] ELSE {up} / {power}"
    how_many = f"{float(count)}::DOUBLE" if count is not None else f"CAST({integer(places).sql} AS DOUBLE)"
    chosen = f"CASE WHEN v[1] IS NOT NULL AND v[2] IS NOT NULL THEN CASE {forms} END END"
    sql = f"list_transform([[{made.sql}, {how_many}]], lambda v: {chosen})[1]"
    if count is None:
        return Value(sql, "double", digits=made.digits)
    return Value(sql, "double", digits=None if count > _MOST_SCALE else max(count, 0))
