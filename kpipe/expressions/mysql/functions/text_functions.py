"""Compile functions that return texts: substrings, joins, padding, upper and lower case.

Sources: MySQL 8.4 manual, "String Functions and Operators"; SingleStore's manual, "String Functions". Positions and lengths count
characters of UTF-8, or bytes if the argument is binary.
"""

from __future__ import annotations

from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.functions.text_arguments import LARGEST, asked, clamped, digits_of, same_kind, whole
from kpipe.expressions.mysql.values import Value, as_bytes, converted, literal_text, quoted, text

__all__ = ["FUNCTIONS", "trimmed"]


def _concat(*values: Value) -> Value:
    parts, kind = same_kind(*values)
    return Value("(" + " || ".join(parts) + ")", kind)


def _concat_ws(separator: Value, *values: Value) -> Value:
    """Compile CONCAT_WS: NULL arguments are skipped; NULL if the separator is."""
    if as_bytes(separator, *values):
        return Value(f"unhex(concat_ws({', '.join(map(digits_of, (separator, *values)))}))", "blob")
    parts = [text(value).sql for value in values]
    return Value(f"concat_ws({text(separator).sql}, {', '.join(parts)})", "text")


def _characters(value: Value) -> Value:
    return Value(f"octet_length({value.sql})" if value.kind == "blob" else f"length({text(value).sql})", "int", 10)


def _octets(value: Value) -> Value:
    return Value(f"octet_length({value.sql})" if value.kind == "blob" else f"strlen({text(value).sql})", "int", 10)


def _bits(value: Value) -> Value:
    return Value(f"({_octets(value).sql} * 8)", "int", 11)


def _lower(value: Value) -> Value:
    return value if value.kind == "blob" else Value(f"lower({text(value).sql})", "text")


def _upper(value: Value) -> Value:
    """Compile UPPER. It keeps ß, which DuckDB would change to a capital letter."""
    if value.kind == "blob":
        return value
    said = text(value)
    if said.literal is not None and "ß" not in said.literal:
        return Value(f"upper({said.sql})", "text")
    parts = "array_to_string(list_transform(string_split({0}, 'ß'), lambda kpipe_part: upper(kpipe_part)), 'ß')"
    return Value(
        bind_sql(lambda x: f"(CASE WHEN contains({x}, 'ß') THEN {parts.format(x)} ELSE upper({x}) END)", said.sql), "text"
    )


def _piece(value: Value, start: str, count: str) -> Value:
    """Return that many characters or bytes from a position of at least 1."""
    if value.kind == "blob":
        return Value(f"({value.sql})[{start}:({start}) + ({count}) - 1]", "blob")
    return Value(f"substring({text(value).sql}, {start}, {count})", "text")


def _left(value: Value, count: Value) -> Value:
    return _piece(value, "1", clamped(count))


def _right(value: Value, count: Value) -> Value:
    (said,), kind = same_kind(value)
    length = "octet_length" if kind == "blob" else "length"

    def body(x: str, n: str) -> str:
        start = f"(CASE WHEN {n} >= {length}({x}) THEN 1 ELSE {length}({x}) - {n} + 1 END)"
        return _piece(Value(x, kind), start, n).sql

    return Value(bind_sql(body, said, clamped(count)) if kind == "blob" else f"right({said}, {clamped(count)})", kind)


def _substring(value: Value, start: Value, count: Value | None = None) -> Value:
    """Compile SUBSTRING: a negative position counts from the end; empty for 0 and for positions before the start."""
    (said,), kind = same_kind(value)
    length = "octet_length" if kind == "blob" else "length"
    many = "1000000000" if count is None else clamped(count)
    if start.literal is not None and start.kind == "int" and int(start.literal) > 0:
        return _piece(Value(said, kind), clamped(start), many)

    def body(x: str, p: str, n: str) -> str:
        back = f"WHEN {p} < 0 AND {p} + {length}({x}) >= 0 THEN {p} + {length}({x}) + 1"
        place = f"(CASE WHEN {p} > 0 THEN {p} {back} WHEN {p} IS NOT NULL THEN 2000000000 END)"
        return _piece(Value(x, kind), place, n).sql

    return Value(bind_sql(body, said, clamped(start, -1_000_000_000), many), kind)


def _substring_index(value: Value, mark: Value, count: Value) -> Value:
    """Compile SUBSTRING_INDEX: all before the count-th delimiter, or after it for a negative count."""
    if as_bytes(value, mark):
        times = f"CAST({clamped(count, -1_000_000_000)} AS VARCHAR)"
        return Value(f"unhex({asked('substring_index', digits_of(value), digits_of(mark), times)})", "blob")
    constant = mark.kind == "text" and mark.literal is not None  # array_to_string needs a constant

    def body(parts: str, d: str, n: str) -> str:
        join = "array_to_string({0}, {1})" if constant else "list_reduce({0}, lambda kpipe_a, kpipe_b: kpipe_a || {1} || kpipe_b)"
        few = join.format(f"list_slice({parts}, 1, {n})", d)
        last = join.format(f"list_slice({parts}, greatest(len({parts}) + {n} + 1, 1), len({parts}))", d)
        return (
            f"(CASE WHEN {parts} IS NULL OR {d} IS NULL OR {n} IS NULL THEN NULL WHEN {n} = 0 OR {d} = '' THEN '' "
            f"WHEN {n} > 0 THEN {few} ELSE {last} END)"
        )

    def of_text(x: str, d: str, n: str) -> str:
        return bind_sql(lambda parts: body(parts, d, n), f"string_split({x}, {d})")

    return Value(bind_sql(of_text, text(value).sql, text(mark).sql, clamped(count, -1_000_000_000)), "text")


def _replace(value: Value, old: Value, new: Value) -> Value:
    if as_bytes(value, old, new):
        return Value(f"unhex({asked('replace', *map(digits_of, (value, old, new)))})", "blob")
    return Value(f"replace({', '.join(text(item).sql for item in (value, old, new))})", "text")


def _repeat(value: Value, count: Value) -> Value:
    (said,), kind = same_kind(value)
    size = "octet_length" if kind == "blob" else "strlen"
    room = f"CASE WHEN {size}({{0}}) = 0 THEN 0 * {{1}} WHEN {{1}} <= {LARGEST} // {size}({{0}}) THEN {{1}} END"
    return Value(bind_sql(f"repeat({{0}}, {room})".format, said, clamped(count)), kind)


def _space(count: Value) -> Value:
    return _repeat(Value("' '", "text"), count)


def _reverse(value: Value) -> Value:
    """Compile REVERSE by characters, or by bytes; DuckDB's own keeps grapheme clusters together."""
    if value.kind == "blob":
        return Value(f"unhex({asked('reverse', digits_of(value))})", "blob")
    return Value(f"array_to_string(list_reverse(string_split({text(value).sql}, '')), '')", "text")


def _padded(side: str, value: Value, count: Value, filling: Value | None = None) -> Value:
    """Compile LPAD or RPAD. A longer text is cut; NULL for a negative or too large length, or an empty padding."""
    filling = filling or Value("' '", "text")
    binary = as_bytes(value, filling)
    said, pad = (digits_of(item) if binary else text(item).sql for item in (value, filling))
    width = 2 if binary else 1  # hexadecimal digits of a byte

    def body(x: str, n: str, p: str) -> str:
        fits = f"{n} BETWEEN 0 AND {LARGEST // 4} AND ({p} <> '' OR {n} * {width} <= length({x}))"
        room = f"CASE WHEN {fits} THEN {n} * {width} END"
        return f"{side}({x}, CAST({room} AS INTEGER), CASE WHEN {p} = '' THEN ' ' ELSE {p} END)"

    made = bind_sql(body, said, clamped(count, -1), pad)
    return Value(f"unhex({made})", "blob") if binary else Value(made, "text")


def trimmed(side: str, value: Value, what: Value) -> Value:
    """Compile TRIM(BOTH, LEADING or TRAILING what FROM value), which removes whole repetitions of `what`."""
    if as_bytes(value, what):
        return Value(f"unhex({asked('trim', quoted(side), digits_of(value), digits_of(what))})", "blob")
    said = text(value).sql
    sign = literal_text(what)
    if sign is not None and len(sign) == 1 and sign != "\0":  # a text literal of DuckDB's cannot contain NUL
        name = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[side]
        return Value(f"{name}({said}, {quoted(sign)})", "text")
    if side == "BOTH":
        return trimmed("TRAILING", trimmed("LEADING", value, what), what)
    before, after = ("'^(?:'", "')+'") if side == "LEADING" else ("'(?:'", "')+$'")
    return Value(f"regexp_replace({said}, {before} || regexp_escape({text(what).sql}) || {after}, '')", "text")


def _inserted(value: Value, start: Value, count: Value, new: Value) -> Value:
    """Compile INSERT: unchanged if the position is outside of the text; a negative or too large count replaces the rest."""
    (said, more), kind = same_kind(value, new)
    length, empty = ("octet_length", "''::BLOB") if kind == "blob" else ("length", "''")

    def body(x: str, p: str, n: str, y: str) -> str:
        rest = _piece(Value(x, kind), f"{p} + {n}", "1000000000").sql
        behind = f"CASE WHEN {n} < 0 OR {p} + {n} > {length}({x}) THEN {empty} ELSE {rest} END"
        inside = f"{_piece(Value(x, kind), '1', f'{p} - 1').sql} || {y} || ({behind})"
        none = " OR ".join(f"{item} IS NULL" for item in (x, p, n, y))
        return f"(CASE WHEN {none} THEN NULL WHEN {p} < 1 OR {p} > {length}({x}) THEN {x} ELSE {inside} END)"

    return Value(bind_sql(body, said, clamped(start), clamped(count, -1), more), kind)


_QUOTED = (("\\", "\\\\"), ("'", "\\'"), ("\x1a", "\\Z"))


def _quote(value: Value) -> Value:
    """Compile QUOTE: bytes that would end the literal are escaped by a backslash; NULL becomes the word NULL."""
    made = text(value).sql
    for mark, written in _QUOTED:
        made = f"replace({made}, {quoted(mark)}, {quoted(written)})"
    return Value(f"coalesce('''' || replace({made}, chr(0), '\\0') || '''', 'NULL')", "text")


def _initcap(value: Value) -> Value:
    """Compile INITCAP: a letter after a non-alphanumeric character is upper case, all others lower case (SingleStore)."""
    letters = r"[\p{L}\p{M}\p{N}]+|[^\p{L}\p{M}\p{N}]+"
    words = f"regexp_extract_all(lower({text(value).sql}), '{letters}')"
    return Value(
        f"array_to_string(list_transform({words}, lambda kpipe_w: upper(left(kpipe_w, 1)) || substring(kpipe_w, 2)), '')",
        "text",
    )


def _char(*values: Value) -> Value:
    """Compile CHAR: the bytes of numbers, without leading zeros and NULL; `USING utf8mb4` converts them to text."""
    codes = [value for value in values if value.kind != "unit"]

    def written(value: Value) -> str:
        return bind_sql(
            lambda n: f"CASE WHEN strlen({n}) % 2 = 1 THEN '0' || {n} ELSE {n} END", f"hex({whole(value)} & 4294967295)"
        )

    made = Value(f"unhex(concat({', '.join(written(value) for value in codes)}))", "blob")
    return converted(made) if len(codes) < len(values) else made


FUNCTIONS: dict[str, Function] = {
    "CONCAT": Function(_concat, 1, None),
    "CONCAT_WS": Function(_concat_ws, 2, None),
    **dict.fromkeys(("CHAR_LENGTH", "CHARACTER_LENGTH"), Function(_characters, 1)),
    **dict.fromkeys(("LENGTH", "OCTET_LENGTH"), Function(_octets, 1)),
    "BIT_LENGTH": Function(_bits, 1),
    **dict.fromkeys(("LOWER", "LCASE"), Function(_lower, 1)),
    **dict.fromkeys(("UPPER", "UCASE"), Function(_upper, 1)),
    "LEFT": Function(_left, 2),
    "RIGHT": Function(_right, 2),
    **dict.fromkeys(("SUBSTRING", "SUBSTR", "MID"), Function(_substring, 2, 3)),
    "SUBSTRING_INDEX": Function(_substring_index, 3),
    "REPLACE": Function(_replace, 3),
    "REPEAT": Function(_repeat, 2),
    "SPACE": Function(_space, 1),
    "REVERSE": Function(_reverse, 1),
    "LPAD": Function(lambda *values: _padded("lpad", *values), 2, 3),
    "RPAD": Function(lambda *values: _padded("rpad", *values), 2, 3),
    "LTRIM": Function(lambda value: trimmed("LEADING", value, Value("' '", "text", literal=" ")), 1),
    "RTRIM": Function(lambda value: trimmed("TRAILING", value, Value("' '", "text", literal=" ")), 1),
    "INSERT": Function(_inserted, 4),
    "QUOTE": Function(_quote, 1),
    "INITCAP": Function(_initcap, 1),
    "CHAR": Function(_char, 1, None),
}
