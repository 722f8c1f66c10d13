"""Compile functions that search texts and lists: LOCATE, FIELD, FIND_IN_SET.

Sources: MySQL 8.4 manual, "String Functions and Operators"; SingleStore's manual, "String Functions". Texts
are compared by bytes.
"""

from __future__ import annotations

from kpipe.expressions.mysql.arithmetic import bit_pattern
from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.functions.text_arguments import asked, digits_of, same_kind, whole
from kpipe.expressions.mysql.values import Value, as_bytes, bytes_of, double, number, text

__all__ = ["FUNCTIONS"]


def _locate(what: Value, where: Value, start: Value | None = None) -> Value:
    """Compile LOCATE: the first position, searched from a position of the text; else 0. Of bytes, their position."""
    if as_bytes(what, where):
        first = "'1'" if start is None else f"CAST({whole(start)} AS VARCHAR)"
        return Value(f"CAST({asked('locate', digits_of(where), digits_of(what), first)} AS BIGINT)", "int", 10)
    if start is None:
        return Value(f"instr({text(where).sql}, {text(what).sql})", "int", 10)

    def body(x: str, y: str, p: str) -> str:
        behind = f"instr(substring({x}, {p}), {y})"
        inside = f"{p} BETWEEN 1 AND length({x}) + 1"  # an empty text is found behind the last character, too
        none = f"{x} IS NULL OR {y} IS NULL OR {p} IS NULL"
        return f"(CASE WHEN {none} THEN NULL WHEN {inside} AND {behind} > 0 THEN {behind} + {p} - 1 ELSE 0 END)"

    return Value(bind_sql(body, text(where).sql, text(what).sql, whole(start)), "int", 10)


def _strcmp(left: Value, right: Value) -> Value:
    body = "(CASE WHEN {0} < {1} THEN -1 WHEN {0} > {1} THEN 1 WHEN {0} = {1} THEN 0 END)"
    return Value(f"CAST({bind_sql(body.format, *same_kind(left, right)[0])} AS BIGINT)", "int", 1)


def _field(value: Value, *choices: Value) -> Value:
    """Compile FIELD: the position of the first equal argument, from 1; else 0. Compared as texts, as integers, or as DOUBLE."""
    kinds = {item.kind for item in (value, *choices)} - {"null"}
    rule = text if kinds <= {"text", "json", "blob", "date", "datetime", "time"} else double
    if kinds <= {"int", "bool"}:
        rule = number
    said = [bytes_of(item) if rule is text and as_bytes(value, *choices) else rule(item).sql for item in (value, *choices)]

    def body(wanted: str, *items: str) -> str:
        return f"(CASE {' '.join(f'WHEN {wanted} = {item} THEN {at}' for at, item in enumerate(items, 1))} ELSE 0 END)"

    return Value(f"CAST({bind_sql(body, *said)} AS BIGINT)", "int", 10)


def _elt(place: Value, *choices: Value) -> Value:
    texts, kind = same_kind(*choices)

    def body(n: str) -> str:  # DuckDB repeats the operand of a CASE for each WHEN
        return f"(CASE {' '.join(f'WHEN {n} = {at} THEN {said}' for at, said in enumerate(texts, 1))} END)"

    return Value(bind_sql(body, whole(place)), kind)


def _find_in_set(what: Value, items: Value) -> Value:
    """Compile FIND_IN_SET: the position in a list with commas, from 1; 0 if it is missing or contains a comma."""
    if as_bytes(what, items):
        return Value(f"CAST({asked('find_in_set', digits_of(what), digits_of(items))} AS BIGINT)", "int", 10)

    def body(x: str, y: str) -> str:
        found = f"list_position(string_split({y}, ','), {x})"
        return f"(CASE WHEN {x} IS NULL OR {y} IS NULL THEN NULL WHEN {y} = '' THEN 0 ELSE coalesce({found}, 0) END)"

    return Value(f"CAST({bind_sql(body, text(what).sql, text(items).sql)} AS BIGINT)", "int", 10)


def _make_set(bits: Value, *choices: Value) -> Value:
    """Compile MAKE_SET: the texts whose bits are set, joined by commas, without NULL."""

    def body(n: str) -> str:
        parts = ", ".join(f"CASE WHEN ({n} >> {at}) & 1 = 1 THEN {text(item).sql} END" for at, item in enumerate(choices[:64]))
        return f"(CASE WHEN {n} IS NOT NULL THEN concat_ws(',', {parts}) END)"

    return Value(bind_sql(body, whole(bits)), "text")


def _export_set(bits: Value, on: Value, off: Value, between: Value | None = None, count: Value | None = None) -> Value:
    """Compile EXPORT_SET: a text for each bit, the lowest first; 64 bits if the count is not from 0 to 64."""
    mark = "','" if between is None else text(between).sql
    bounded = "(CASE WHEN {0} BETWEEN 0 AND 64 THEN {0} WHEN {0} IS NOT NULL THEN 64 END)"
    most = "64" if count is None else bind_sql(bounded.format, whole(count))

    def body(n: str, yes: str, no: str, sign: str, size: str) -> str:
        level = next(level for level in range(1, 1000) if f"kpipe_b{level}" not in f"{n} {yes} {no} {sign} {size}")
        part = f"CASE WHEN ({n} & (CAST(1 AS UBIGINT) << kpipe_b{level})) <> 0 THEN {yes} ELSE {no} END"
        parts = f"list_transform(range({size}), lambda kpipe_b{level}: {part})"
        made = f"list_reduce({parts}, lambda kpipe_b{level}, kpipe_c{level}: kpipe_b{level} || {sign} || kpipe_c{level})"
        missing = " OR ".join(f"{item} IS NULL" for item in (n, yes, no, sign, size))
        return f"(CASE WHEN {missing} THEN NULL WHEN {size} = 0 THEN '' ELSE {made} END)"

    return Value(bind_sql(body, bit_pattern(bits), text(on).sql, text(off).sql, mark, most), "text")


FUNCTIONS: dict[str, Function] = {
    "LOCATE": Function(_locate, 2, 3),
    "INSTR": Function(lambda where, what: _locate(what, where), 2),
    "STRCMP": Function(_strcmp, 2),
    "FIELD": Function(_field, 2, None),
    "ELT": Function(_elt, 2, None),
    "FIND_IN_SET": Function(_find_in_set, 2),
    "EXPORT_SET": Function(_export_set, 3, 5),
    "MAKE_SET": Function(_make_set, 2, None),
}
