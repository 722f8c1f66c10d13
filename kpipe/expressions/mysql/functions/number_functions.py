"""Compile functions of numbers.

Sources: MySQL 8.4 manual, "Mathematical Functions", "Bit Functions and Operators", "Miscellaneous Functions"; SingleStore's
manual, "Numeric Functions" (TRUNC, TO_NUMBER, RAND); compared with a server in tests/kpipe/expressions/mysql/.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.arithmetic import ARITHMETIC, bit_pattern
from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.byte_operators import counted, is_bytes
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.rounding import ceiling, floor, rounded, truncated
from kpipe.expressions.mysql.values import Value, double, finite, integer, number, quoted, reading, text, unrounded

__all__ = ["FUNCTIONS"]


def _of(sql: str, least: int = 1, most: int | None = None, where: str = "") -> Function:
    """Define a function of DOUBLE; `{0}` and `{1}` are its arguments. NULL unless `where`; fails if not finite."""

    def rule(*values: Value) -> Value:
        args = [double(value).sql for value in values]
        places = [f"v[{at}]" for at in range(1, len(args) + 1)]
        made = sql.format(*places)
        if where:
            made = f"CASE WHEN {where.format(*places)} THEN {made} END"
        return finite(f"list_transform([[{', '.join(args)}]], lambda v: {made})[1]")

    return Function(rule, least, least if most is None else most)


def _absolute(value: Value) -> Value:
    made = number(value)
    exact = made.exact and replace(made.exact, sql=f"abs({made.exact.sql})")
    return replace(made, sql=f"abs({made.sql})", literal=None, exact=exact)


def _sign(value: Value) -> Value:
    return Value(f"CAST(sign({unrounded(number(value)).sql}) AS BIGINT)", "int", 1)


def _logarithm(*values: Value) -> Value:
    """Compile LOG(x) or LOG(base, x)."""
    if len(values) == 1:
        return _LN.rule(*values)
    return _of("ln({1}) / ln({0})", 2, where="{0} > 0 AND {0} <> 1 AND {1} > 0").rule(*values)


def _arc_tangent(*values: Value) -> Value:
    """Compile ATAN(x) or ATAN(y, x)."""
    return _of("atan({0})" if len(values) == 1 else "atan2({0}, {1})").rule(*values)


def _random(*values: Value) -> Value:
    if values:
        raise Untranslated(
            "RAND(seed) is not supported: a sequence needs an order of records",
            "write RAND(), or CRC32(column) / 4294967296 for repeatable numbers",
        )
    return Value("random()", "double")


def _bit_count(value: Value) -> Value:
    if is_bytes(value):
        return counted(value)
    return Value(f"CAST(bit_count({bit_pattern(value)}) AS BIGINT)", "int", 2)


def _number_of_address(value: Value) -> Value:
    """Compile INET_ATON: the last part of a short address fills the remaining bytes; NULL for an invalid address."""
    part = "CASE WHEN kpipe_p = '' THEN 0 ELSE TRY_CAST(kpipe_p AS UTINYINT) END"
    parts = f"list_transform(string_split({{0}}, '.'), lambda kpipe_p: {part})"
    whole = "list_reduce(v, lambda a, p: a * 256 + p, 0::BIGINT)"
    gap = "CASE len(v) WHEN 2 THEN 65536 WHEN 3 THEN 256 ELSE 1 END"
    short = f"CASE WHEN len(list_filter(v, lambda kpipe_p: kpipe_p IS NULL)) = 0 THEN ({whole} - v[-1]) * ({gap}) + v[-1] END"
    plain = "regexp_matches({0}, '^([0-9]*\\.){{0,3}}[0-9]+$')"
    made = f"(CASE WHEN {plain} THEN list_transform([{parts}], lambda v: {short})[1] END)"
    return Value(bind_sql(made.format, reading(value)), "int", 10)


def _address_of_number(value: Value) -> Value:
    """Compile INET_NTOA: NULL for more than 32 bits."""
    octets = " || '.' || ".join(f"CAST((v >> {shift}) & 255 AS VARCHAR)" for shift in (24, 16, 8, 0))
    chosen = f"CASE WHEN v BETWEEN 0 AND 4294967295 THEN {octets} END"
    return Value(f"list_transform([{integer(value).sql}], lambda v: {chosen})[1]", "text")


def _matching(pattern: str) -> Callable[[Value], Value]:
    return lambda value: Value(f"regexp_matches({reading(value)}, {quoted(pattern)})", "bool")


_OCTET = "0{0,2}[0-9]|0?[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5]"
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


def _truncated(value: Value, *places: Value) -> Value:
    """Compile SingleStore's TRUNC, here for numbers only."""
    if value.kind not in ("int", "decimal", "double", "bool", "null"):
        raise Untranslated("TRUNC: expected a number", "write TRUNCATE(value, 0) for a number in a text, or DATE(value)")
    return truncated(value, *(places or (Value("0", "int", 1, literal="0"),)))


def _to_number(value: Value, form: Value | None = None) -> Value:
    """Compile TO_NUMBER, which fails at run time for a text that is not a number of the format."""
    if value.kind not in ("text", "null"):
        raise Untranslated("TO_NUMBER: expected a text", "remove TO_NUMBER, or write CAST(value AS DECIMAL(p, s))")
    pattern, scale = r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)\s*", 15
    if form is not None:
        pattern, scale = _numerals(form.literal if form.kind == "text" else None)
    matches, digits = (
        f"regexp_full_match(x, {quoted(pattern)}) AND x SIMILAR TO '.*[0-9].*'",
        "regexp_replace(x, '[$,+\\s-]', '', 'g')",
    )
    made = f"CAST((CASE WHEN contains(x, '-') THEN '-' ELSE '' END) || {digits} AS DECIMAL(38,{scale}))"
    checked = f"CASE WHEN x IS NULL THEN NULL WHEN {matches} THEN {made} ELSE error('TO_NUMBER: not a number of the format') END"
    return Value(f"list_transform([{text(value).sql}], lambda x: {checked})[1]", "decimal", 38, scale, digits=0)


def _numerals(format_text: str | None) -> tuple[str, int]:
    """Convert a format to a pattern of texts, and return its number of decimal places."""
    parts = re.fullmatch(r"(S?)(\$?)(9[9,]*|)(?:\.(9*))?(S?)", format_text or "")
    if parts is None or not (parts[3] or parts[4]) or (parts[1] and parts[5]):
        raise Untranslated("TO_NUMBER: expected a format in quotes, of 9 , . $ and S", "write TO_NUMBER(value, '$999,999.99')")
    sizes = [len(group) for group in parts[3].split(",")]
    if 0 in sizes and parts[3]:
        raise Untranslated(
            f"TO_NUMBER: {format_text} has a comma without digits around it",
            "write TO_NUMBER(value, '9,999.99')",
        )
    shorter = [
        f"[0-9]{{1,{size}}}" + "".join(f",[0-9]{{{further}}}" for further in sizes[index + 1 :])
        for index, size in enumerate(sizes[:-1])
    ]
    whole = "|".join([*shorter, f"[0-9]{{0,{sizes[-1]}}}"])
    fraction = f"(\\.[0-9]{{0,{len(parts[4])}}})?" if parts[4] is not None else ""
    leading_sign, trailing_sign = ("[+-]" if parts[1] else "" if parts[5] else "-?"), ("[+-]" if parts[5] else "")
    return f"{leading_sign}{'[$]' if parts[2] else ''}({whole}){fraction}{trailing_sign}", len(parts[4] or "")


_IPV4 = _matching(rf"^({_OCTET})(\.({_OCTET})){{3}}$")
_LN = _of("ln({0})", where="{0} > 0")

FUNCTIONS: dict[str, Function] = {
    "ABS": Function(_absolute, 1),
    "CEIL": Function(ceiling, 1),
    "CEILING": Function(ceiling, 1),
    "FLOOR": Function(floor, 1),
    "ROUND": Function(rounded, 1, 2),
    "TRUNCATE": Function(truncated, 2),
    "TRUNC": Function(_truncated, 1, 2),
    "SIGN": Function(_sign, 1),
    "MOD": Function(ARITHMETIC["%"], 2),
    "POW": _of("pow({0}, {1})", 2),
    "POWER": _of("pow({0}, {1})", 2),
    "SQRT": _of("sqrt({0})", where="{0} >= 0"),
    "EXP": _of("exp({0})"),
    "LN": _LN,
    "LOG": Function(_logarithm, 1, 2),
    "LOG2": _of("log2({0})", where="{0} > 0"),
    "LOG10": _of("log10({0})", where="{0} > 0"),
    "SIN": _of("sin({0})"),
    "COS": _of("cos({0})"),
    "TAN": _of("tan({0})"),
    "COT": _of("cot({0})"),
    "ASIN": _of("asin({0})", where="{0} BETWEEN -1 AND 1"),
    "ACOS": _of("acos({0})", where="{0} BETWEEN -1 AND 1"),
    "ATAN": Function(_arc_tangent, 1, 2),
    "ATAN2": Function(_arc_tangent, 1, 2),
    "DEGREES": _of("degrees({0})"),
    "RADIANS": _of("radians({0})"),
    "PI": Function(lambda: Value("pi()", "double", digits=6), 0),
    "RAND": Function(_random, 0, 1),
    "SIGMOID": _of("1 / (1 + exp(-{0}))"),
    "BIT_COUNT": Function(_bit_count, 1),
    "INET_ATON": Function(_number_of_address, 1),
    "INET_NTOA": Function(_address_of_number, 1),
    "IS_IPV4": Function(lambda value: Value(f"coalesce({_IPV4(value).sql}, false)", "bool"), 1),
    "IS_UUID": Function(_matching(rf"^([0-9a-fA-F]{{32}}|{_UUID}|\{{{_UUID}\}})$"), 1),
    "UUID": Function(lambda: Value("CAST(uuid() AS VARCHAR)", "text"), 0),
    "TO_NUMBER": Function(_to_number, 1, 2),
}
