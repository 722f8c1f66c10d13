"""Compile MySQL's arithmetic and bit operators by the types of their operands.

Sources: MySQL 8.4 manual, "Arithmetic Operators", "Precision Math", "Out-of-Range and Overflow Handling", "Bit Functions and
Operators"; compared with a server in tests/kpipe/expressions/mysql/.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.values import Value, decimal, double, finite, integer, number, reading, text, unrounded

__all__ = ["ARITHMETIC", "bit_pattern", "negated", "scaled", "unscaled"]

_DIVISION_DIGITS = 4  # div_precision_increment
_MOST_DIGITS = 38
_USUAL_DIGITS = 19  # integer digits of a BIGINT; a record whose product has more may fail
_TEXTS = ("text", "blob")


def _whole(value: Value) -> bool:
    return value.kind == "int" or value.unsigned


def _ranged(sql: str, unsigned: bool) -> Value:
    """Cast a HUGEINT to BIGINT, or to MySQL's BIGINT UNSIGNED. Fails at run time if it is out of range, as on the server."""
    if unsigned:
        return Value(f"CAST(CAST({sql} AS UBIGINT) AS DECIMAL(20,0))", "decimal", 20, unsigned=True)
    return Value(f"CAST({sql} AS BIGINT)", "int")


def _huge(value: Value) -> str:
    return f"CAST({value.sql} AS HUGEINT)"


def _computed(made: Value, precision: int, scale: int) -> Value:
    """Return a result with the digits that the server prints; further computations use the remaining digits, too."""
    precision = min(precision, _MOST_DIGITS)
    if made.scale <= scale:
        return Value(made.sql, "decimal", precision, scale)
    return Value(f"CAST({made.sql} AS DECIMAL({precision},{scale}))", "decimal", precision, scale, exact=made)


def _sum(sign: str) -> Callable[[Value, Value], Value]:
    def rule(left: Value, right: Value) -> Value:
        a, b = number(left), number(right)
        if "double" in (a.kind, b.kind):
            a, b = double(a), double(b)
            places = None if a.digits is None or b.digits is None else max(a.digits, b.digits)
            return finite(f"({a.sql} {sign} {b.sql})", places)
        if _whole(a) and _whole(b):
            if a.unsigned or b.unsigned:
                return _ranged(f"({_huge(a)} {sign} {_huge(b)})", unsigned=True)
            return Value(f"({a.sql} {sign} {b.sql})", "int")
        shown, digits = _added(a, b)
        a, b = unrounded(a), unrounded(b)
        # DuckDB adds within 38 digits and fails if a sum has more.
        scale = _fitting(max(a.scale, b.scale), shown, digits - shown)
        precision = min(digits - shown + scale, _MOST_DIGITS)
        up = [decimal(item, precision, scale).sql for item in (a, b)]
        return _computed(Value(f"({up[0]} {sign} {up[1]})", "decimal", precision, scale), digits, shown)

    return rule


def _added(a: Value, b: Value) -> tuple[int, int]:
    """Return scale and precision of a sum."""
    scale = max(a.scale, b.scale)
    return scale, max(a.precision - a.scale, b.precision - b.scale) + scale + 1


def _fitting(scale: int, least: int, whole: int) -> int:
    """Return the scale that fits into 38 digits beside `whole` integer digits, but at least `least`."""
    return min(scale, max(_MOST_DIGITS - whole, least))


def _product(left: Value, right: Value) -> Value:
    a, b = number(left), number(right)
    if "double" in (a.kind, b.kind):
        a, b = double(a), double(b)
        return finite(f"({a.sql} * {b.sql})", None if a.digits is None or b.digits is None else a.digits + b.digits)
    if _whole(a) and _whole(b):
        if a.unsigned or b.unsigned:
            return _ranged(f"({_huge(a)} * {_huge(b)})", unsigned=True)
        return Value(f"({a.sql} * {b.sql})", "int")
    digits, scale = a.precision + b.precision, a.scale + b.scale
    if scale > _MOST_DIGITS:
        raise Untranslated(
            f"a product has {scale} decimal places: expected at most 38", "write ROUND(value, n), or CAST(value AS DOUBLE)"
        )
    # Each factor keeps all decimal places that the server computes with, as far as those of the product fit.
    wide = [_shortened(a, b.scale), _shortened(b, unrounded(a).scale)]
    # DuckDB multiplies within 38 digits (18 if both factors have so few) and fails if a product has more.
    factors = [decimal(item, max(item.precision, 19), item.scale).sql for item in wide]
    precision = min(sum(item.precision for item in wide), _MOST_DIGITS)
    made = Value(f"({factors[0]} * {factors[1]})", "decimal", precision, sum(item.scale for item in wide))
    return _computed(made, digits, scale)


def _shortened(value: Value, others: int) -> Value:
    """Return the value with a scale that fits beside the other factor's and `_USUAL_DIGITS` integer digits."""
    wide = unrounded(value)
    scale = _fitting(wide.scale, value.scale, _USUAL_DIGITS + others)
    return wide if scale == wide.scale else decimal(wide, min(wide.precision - wide.scale + scale, _MOST_DIGITS), scale)


def _quotient(left: Value, right: Value) -> Value:
    """Return the exact quotient with four decimal places more than the dividend; NULL for a division by zero.

    It is rounded half away from zero. The server computes in groups of nine digits, truncates after the last group, and continues
    with all of them: 1 / 3 * 3 is 1.0000.
    """
    a, b = number(left), number(right)
    if "double" in (a.kind, b.kind):
        a, b = double(a), double(b)
        places = None if a.digits is None or b.digits is None else max(a.digits, b.digits) + _DIVISION_DIGITS
        return finite(f"({a.sql} / nullif({b.sql}, 0))", places)
    shown, ahead = a.scale + _DIVISION_DIGITS, a.precision - a.scale + b.scale
    if shown > _MOST_DIGITS:
        raise Untranslated(
            f"a quotient has {shown} decimal places: expected at most 38", "write ROUND(value, n), or CAST(value AS DOUBLE)"
        )
    wide, below = unrounded(a), unrounded(b)
    spare = [_groups(item.scale) - item.scale for item in (wide, below)]
    kept = _groups(_groups(wide.scale) + _groups(below.scale) + max(_DIVISION_DIGITS - sum(spare), 0))
    fits = max(min(kept, _MOST_DIGITS - ahead), shown)
    halves, kept = kept > fits == shown, fits  # without spare digits, round the printed ones
    if kept + below.scale < wide.scale or below.precision + kept > _MOST_DIGITS:
        wide, below = a, b
        kept = max(kept, wide.scale - below.scale)
    above = f"({unscaled(wide)} * {10 ** (kept + below.scale - wide.scale)}::HUGEINT)"
    whole = f"({above} // nullif({unscaled(below)}, 0))"
    if halves:
        near = "(abs(v[1]) + abs(v[2]) // 2) // nullif(abs(v[2]), 0) * sign(v[1]) * sign(v[2])"
        whole = f"list_transform([[{above}, {unscaled(below)}]], lambda v: {near})[1]"
    return _computed(scaled(whole, ahead + kept, kept), ahead + shown, shown)


def _groups(digits: int) -> int:
    return -(-digits // 9) * 9


def scaled(sql: str, precision: int, scale: int) -> Value:
    """Return a HUGEINT as DECIMAL with `scale` decimal places."""
    precision = min(precision, _MOST_DIGITS)
    unit = f"CAST('{'0.' + '0' * (scale - 1) if scale else ''}1' AS DECIMAL({max(scale, 1)},{scale}))"
    return Value(f"CAST(CAST({sql} AS DECIMAL(38,0)) * {unit} AS DECIMAL({precision},{scale}))", "decimal", precision, scale)


def unscaled(value: Value) -> str:
    """Return the digits of a decimal, without its point, as HUGEINT."""
    if not value.scale:
        return f"CAST({value.sql} AS HUGEINT)"
    if value.precision + value.scale + 1 > _MOST_DIGITS:
        return f"CAST(replace(CAST({value.sql} AS VARCHAR), '.', '') AS HUGEINT)"
    unit = f"CAST({10**value.scale} AS DECIMAL({value.scale + 1},0))"
    return f"CAST(CAST({value.sql} AS DECIMAL(38,{value.scale})) * {unit} AS HUGEINT)"


def _whole_quotient(left: Value, right: Value) -> Value:
    """Compile DIV, the quotient without its fraction. The server reads the printed digits of a DOUBLE as a decimal."""
    a, b = number(left), number(right)
    if _whole(a) and _whole(b):
        return _ranged(f"({_huge(a)} // nullif({_huge(b)}, 0))", a.unsigned or b.unsigned)
    if "double" in (a.kind, b.kind):
        return _ranged(bind_sql(_read_or_divided, unrounded(a).sql, unrounded(b).sql), a.unsigned or b.unsigned)
    a, b = unrounded(a), unrounded(b)
    scale = max(a.scale, b.scale)
    up = [f"({unscaled(item)} * {10 ** (scale - item.scale)}::HUGEINT)" for item in (a, b)]
    return _ranged(f"({up[0]} // nullif({up[1]}, 0))", a.unsigned or b.unsigned)


def _read_or_divided(above: str, below: str) -> str:
    tried = [_read_quotient(above, below, scale) for scale in (28, 18)]
    tried.append(f"CAST(trunc(CAST({above} AS DOUBLE) / nullif(CAST({below} AS DOUBLE), 0)) AS HUGEINT)")
    return f"coalesce({', '.join(tried)})"


def _read_quotient(above: str, below: str, scale: int) -> str:
    """Return the integer quotient of two printed numbers; NULL if one does not fit."""
    up = [f"TRY_CAST(CAST({sql} AS VARCHAR) AS DECIMAL(38,{scale}))" for sql in (above, below)]
    up = [f"CAST(replace(CAST({sql} AS VARCHAR), '.', '') AS HUGEINT)" for sql in up]
    return f"{up[0]} // nullif({up[1]}, 0)"


def _remainder(left: Value, right: Value) -> Value:
    """Compile the remainder, with the sign of the dividend; NULL for a division by zero."""
    a, b = number(left), number(right)
    if "double" in (a.kind, b.kind):
        a, b = double(a), double(b)
        places = None if a.digits is None or b.digits is None else max(a.digits, b.digits)
        return Value(f"({a.sql} % nullif({b.sql}, 0))", "double", digits=places)
    if _whole(a) and _whole(b):
        return _ranged(f"({_huge(a)} % nullif({_huge(b)}, 0))", a.unsigned)
    shown = max(a.scale, b.scale)
    a, b = unrounded(a), unrounded(b)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    scale = _fitting(max(a.scale, b.scale), shown, whole)
    digits = whole + scale
    up = [decimal(item, min(digits, 38), scale).sql for item in (a, b)]
    return _computed(Value(f"({up[0]} % nullif({up[1]}, 0))", "decimal", min(digits, 38), scale), digits - scale + shown, shown)


def _bits(template: str) -> Callable[[Value, Value], Value]:
    """Compile an operator on 64-bit numbers. The result is unsigned, so it is a DECIMAL where it may exceed BIGINT."""

    def rule(left: Value, right: Value) -> Value:
        # The shift count is read as an integer; other operands are rounded half away from zero.
        count = integer(right) if template.startswith("(CASE") and right.kind in ("text", "double") else right
        a, b = bit_pattern(left), bit_pattern(count)
        return Value(f"CAST({bind_sql(template.format, a, b)} AS DECIMAL(20,0))", "decimal", 20, unsigned=True)

    return rule


def bit_pattern(value: Value) -> str:
    """Return the 64 bits of a number as UBIGINT."""
    if value.kind in _TEXTS and value.sql == text(value).sql:
        return bind_sql(lambda sql: _pattern(replace(value, sql=sql)), value.sql)
    return _pattern(value)


def _pattern(value: Value) -> str:
    whole = unrounded(number(value))
    if whole.kind == "double":
        top = f"WHEN {{0}} >= 1.8446744073709552e19 THEN {2**64 - 1}"
        bounded = f"{top} WHEN {{0}} <= -9.223372036854775e18 THEN {2**63}"
        rounded = bind_sql(f"(CASE {bounded} ELSE CAST(round({{0}}) AS HUGEINT) END)".format, whole.sql)
        if value.kind in _TEXTS:  # digits alone are an integer
            digits = f"regexp_extract({reading(value)}, '^[ \\t\\n]*([+-]?[0-9]+)(?:[^0-9.eE]|$)', 1)"
            tried = ", ".join(f"CAST(TRY_CAST({digits} AS {name}) AS HUGEINT)" for name in ("UBIGINT", "BIGINT"))
            rounded = f"coalesce({tried}, {rounded})"
    else:
        rounded = f"CAST(round({whole.sql}, 0) AS HUGEINT)" if whole.scale else f"CAST({whole.sql} AS HUGEINT)"
        if whole.kind == "decimal" and whole.precision - whole.scale > 18 and not whole.unsigned:
            bounded = f"greatest(least(x, {2**64 - 1}), -{2**63})"
            rounded = f"list_transform([{rounded}], lambda x: CASE WHEN x IS NOT NULL THEN CAST({bounded} AS HUGEINT) END)[1]"
    return f"CAST(({rounded} & 18446744073709551615::HUGEINT) AS UBIGINT)"


def negated(value: Value) -> Value:
    """Return -value."""
    made = number(value)
    if value.unsigned and value.literal == str(2**63):
        return Value(f"CAST('-{value.literal}' AS BIGINT)", "int", literal=f"-{value.literal}")
    exact = made.exact and negated(made.exact)
    return replace(made, sql=f"(-{made.sql})", unsigned=False, exact=exact, literal=made.literal and f"-{made.literal}")


def _shifted(sql: str) -> str:
    return f"(CASE WHEN {{0}} IS NULL OR {{1}} IS NULL THEN NULL WHEN {{1}} > 63 THEN 0 ELSE {sql} END)"


ARITHMETIC: dict[str, Callable[[Value, Value], Value]] = {
    "+": _sum("+"),
    "-": _sum("-"),
    "*": _product,
    "/": _quotient,
    "DIV": _whole_quotient,
    "%": _remainder,
    "&": _bits("({0} & {1})"),
    "|": _bits("({0} | {1})"),
    "^": _bits("xor({0}, {1})"),
    "<<": _bits(_shifted("CAST((CAST({0} AS HUGEINT) * CAST(pow(2, {1}) AS HUGEINT)) & 18446744073709551615 AS UBIGINT)")),
    ">>": _bits(_shifted("{0} >> {1}")),
}  # fmt: skip
