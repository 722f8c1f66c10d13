"""Values of compiled expressions: DuckDB's SQL with MySQL's type, and conversions between these types.

Sources: MySQL 8.4 manual, "Type Conversion in Expression Evaluation", "Date and Time Literals", "Precision Math"; each rule is
compared with a MariaDB server over generated values (tests/kpipe/expressions/mysql/). Types of the SQL:

- `null`: NULL of any type
- `int`: BIGINT
- `decimal`: DECIMAL(precision, scale), at most 38 digits, DuckDB's limit
- `double`: DOUBLE
- `bool`: BOOLEAN, in MySQL 1 and 0
- `text`: VARCHAR, compared by a binary collation, as SingleStore compares values from JSON
- `blob`: BLOB
- `date`, `datetime`, `time`: DATE, TIMESTAMP, TIME; UTC, without zero dates
- `span`: BIGINT, microseconds: a TIME that may be negative or longer than a day; never the type of a column
- `json`: JSON
- `unit`, `interval`: operands of date arithmetic, not values
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bind_sql, bound
from kpipe.expressions.mysql.moments import (
    moment_of_number,
    moment_of_text,
    span_of_number,
    span_of_text,
    text_of_span,
    time_of_day,
)
from kpipe.expressions.mysql.printing import printed

__all__ = [
    "NULL", "Value", "alike", "as_bytes", "boolean", "bytes_of", "content", "converted", "date", "datetime", "decimal", "double",
    "finite", "integer", "json", "literal_text", "number", "quoted", "reading", "span", "text", "time", "unrounded",
]  # fmt: skip

_MOST_DIGITS = 38
_LONGEST = 200_000  # characters of SQL; in generated columns, an argument that a rule uses twice doubles at each level


@dataclass(frozen=True)
class Value:
    """A part of a compiled expression.

    Attributes:
        sql: DuckDB's SQL.
        kind: see above.
        precision, scale: total digits and decimal places of a `decimal`; of an `int`, its largest number of digits.
        literal: the text of a literal; None: not a literal, or one of bytes.
        bits: of a literal such as 0x4D, its number in digits.
        unsigned: whether a `decimal` without a fraction is BIGINT UNSIGNED in MySQL.
        digits: decimal places of a `double` when printed; None: as many as it has. Of a `decimal`, 0: trailing zeros are not
            printed. Of a `datetime`: digits of a second; None: as many as it has.
        exact: the same quotient with more digits, for further arithmetic.
        single: whether a `double` is a FLOAT, which is printed with the digits of one.
    """

    sql: str
    kind: str
    precision: int = 19
    scale: int = 0
    literal: str | None = None
    bits: str | None = None
    unsigned: bool = False
    digits: int | None = None
    exact: Value | None = None
    single: bool = False

    def __post_init__(self) -> None:
        if len(self.sql) > _LONGEST:
            raise Untranslated("an expression is too long", "compute parts of it in a separate column, or in a program")


NULL = Value("NULL", "null", 0)


def quoted(text: str) -> str:
    """Quote a text as a DuckDB literal."""
    if "\0" in text:
        raise Untranslated("a text contains NUL", "remove it")
    return "'" + text.replace("'", "''") + "'"


def alike(sql: str, made: Value) -> Value:
    """Return SQL as a value of the same type as another one."""
    return replace(made, sql=sql, literal=None, bits=None, exact=None)


def unrounded(value: Value) -> Value:
    """Return a quotient with all digits that the server computes; any other value unchanged."""
    return value.exact or value


def finite(sql: str, digits: int | None = None) -> Value:
    """Return a computed DOUBLE. It fails at run time, as on the server, if it is out of range."""
    checked = "CASE WHEN isfinite(x) OR x IS NULL THEN x ELSE error('a DOUBLE is out of range') END"
    return Value(f"list_transform([{sql}], lambda x: {checked})[1]", "double", digits=digits if (digits or 0) <= 30 else None)


# A number at the start of a text, as MySQL reads it.
_NUMBER = r"^[ \t\n\v\f\r]*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"


def number(value: Value) -> Value:
    """Convert the value for arithmetic: to `int`, `decimal` or `double`."""
    if value.bits is not None:  # 0x4D is a text, but a number in arithmetic
        return Value(f"CAST({value.bits} AS DECIMAL(20,0))", "decimal", 20, unsigned=True)
    match value.kind:
        case "json":  # "5" is 5, true is 1
            return Value(f"CAST(kpipe_json('number', [CAST({value.sql} AS VARCHAR)]) AS DOUBLE)", "double")
        case "int" | "decimal" | "double":
            return value
        case "null":
            return Value("CAST(NULL AS BIGINT)", "int", 1)
        case "bool":
            return Value(f"CAST({value.sql} AS BIGINT)", "int", 1)
        case "date":
            return Value(f"CAST(strftime({value.sql}, '%Y%m%d') AS BIGINT)", "int", 8)
        case "datetime" if value.digits == 0:
            return Value(f"CAST(strftime({value.sql}, '%Y%m%d%H%M%S') AS BIGINT)", "int", 14)
        case "datetime":
            return Value(f"CAST(strftime({value.sql}, '%Y%m%d%H%M%S.%f') AS DECIMAL(20,6))", "decimal", 20, 6)
        case "time":
            return Value(f"CAST(replace(CAST({value.sql} AS VARCHAR), ':', '') AS DECIMAL(12,6))", "decimal", 12, 6)
        case "span":
            return Value(f"CAST(replace({text(value).sql}, ':', '') AS DECIMAL(13,6))", "decimal", 13, 6)
        case "text" | "blob":
            digits = f"regexp_replace(regexp_extract({reading(value)}, {quoted(_NUMBER)}, 1), '^$', '0')"
            most = "1.7976931348623157e308"  # the server reads larger numbers as this one
            bounded = f"CASE WHEN isinf(x) THEN sign(x) * {most} ELSE x END"
            return Value(f"list_transform([CAST({digits} AS DOUBLE)], lambda x: {bounded})[1]", "double")
    raise Untranslated("an interval is not a number", "write value + INTERVAL n UNIT")


def double(value: Value) -> Value:
    """Return the value as DOUBLE."""
    made = number(value)
    return made if made.kind == "double" else Value(f"CAST({(made.exact or made).sql} AS DOUBLE)", "double", digits=made.scale)


def decimal(value: Value, precision: int, scale: int) -> Value:
    """Convert the value to a DECIMAL, rounded half away from zero.

    Raises:
        Untranslated: the precision exceeds 38.
    """
    if precision > _MOST_DIGITS:
        raise Untranslated(
            f"a number has {precision} digits: expected at most {_MOST_DIGITS}", "write CAST(value AS DOUBLE) or AS DECIMAL(p, s)"
        )
    return Value(f"CAST({number(value).sql} AS DECIMAL({precision},{scale}))", "decimal", precision, scale)


def integer(value: Value) -> Value:
    """Convert the value to BIGINT; a value out of range becomes the nearest BIGINT.

    Numbers are rounded half away from zero, a DOUBLE half to even. A text is read up to its first non-digit.
    """
    if value.kind in ("text", "json") or (value.kind == "blob" and value.bits is None):
        digits = f"regexp_extract({reading(value)}, '^[ \\t\\n\\v\\f\\r]*([+-]?[0-9]+)', 1)"
        bounded = "greatest(least(coalesce(TRY_CAST(x AS HUGEINT), 0), 9223372036854775807), -9223372036854775808)"
        return Value(
            f"list_transform([{digits}], lambda x: CASE WHEN x IS NOT NULL THEN CAST({bounded} AS BIGINT) END)[1]", "int"
        )
    made = unrounded(number(value))
    if made.kind == "int":
        return made
    if made.kind == "decimal":
        whole = f"round({made.sql}, 0)" if made.scale else made.sql
        least, most = (f"CAST({edge} AS DECIMAL(38,0))" for edge in (-(2**63), 2**63 - 1))
        bounded = f"CASE WHEN x > {most} THEN {most} WHEN x < {least} THEN {least} ELSE x END"
        fits = made.precision - made.scale < 19
        return Value(f"CAST({whole if fits else f'list_transform([{whole}], lambda x: {bounded})[1]'} AS BIGINT)", "int")
    whole = f"round_even({made.sql}, 0)" if made.kind == "double" else made.sql
    last = 2**63 - 1
    bounded = f"WHEN {{0}} >= {last} THEN {last} WHEN {{0}} <= {-last - 1} THEN {-last} - 1"
    return Value(bound(whole, (f"(CASE {bounded} ELSE CAST({{0}} AS BIGINT) END)").format), "int")


def boolean(value: Value) -> Value:
    """Return whether the value is true, that is, a number other than 0."""
    if value.kind == "bool":
        return value
    if value.kind == "null":
        return Value("CAST(NULL AS BOOLEAN)", "bool")
    return Value(f"({unrounded(number(value)).sql} <> 0)", "bool")


def text(value: Value) -> Value:
    """Return the value as MySQL prints it. A row with bytes that are not UTF-8 fails: NULL would be another value."""
    sql = value.sql
    match value.kind:
        case "text":
            return value
        case "null":
            return Value("CAST(NULL AS VARCHAR)", "text")
        case "bool":
            return Value(f"CAST(CAST({sql} AS BIGINT) AS VARCHAR)", "text")
        case "double":
            return Value(printed(sql, value.digits, value.single), "text")
        case "decimal" if value.digits == 0:
            return Value(f"regexp_replace(regexp_replace(CAST({sql} AS VARCHAR), '(\\.[0-9]*?)0+$', '\\1'), '\\.$', '')", "text")
        case "decimal" if value.precision == value.scale:
            return Value(f"regexp_replace(CAST({sql} AS VARCHAR), '^(-?)\\.', '\\10.')", "text")
        case "datetime" if value.digits is not None:
            shown = value.digits + 1 if value.digits else 0
            return Value(f"left(strftime({sql}, '%Y-%m-%d %H:%M:%S.%f'), {19 + shown})", "text")
        case "datetime":  # a fraction of 0 is not printed
            return Value(f"regexp_replace(strftime({sql}, '%Y-%m-%d %H:%M:%S.%f'), '\\.000000$', '')", "text")
        case "blob":
            return Value(f"decode({sql})", "text")
        case "span":
            return Value(text_of_span(sql), "text")
        case "interval" | "unit":
            raise Untranslated("an interval is not a value", "write value + INTERVAL n UNIT")
    return Value(f"CAST({sql} AS VARCHAR)", "text", literal=value.literal)


def as_bytes(*values: Value) -> bool:
    """Return whether an operation on the values works on bytes: any of them is binary.

    Beside a text that is not a literal, a literal such as 0x4D is a text, too: MySQL converts it to the text's character set.
    """
    beside_text = any(value.kind in ("text", "json") and value.literal is None for value in values)
    return any(value.kind == "blob" and not (beside_text and literal_text(value) is not None) for value in values)


def literal_text(value: Value) -> str | None:
    """Return the text of a literal, also of one such as 0x4D; None: not a literal, or its bytes are not UTF-8."""
    if value.bits is None:
        return value.literal
    try:
        return bytes.fromhex(value.sql.removeprefix("unhex('").removesuffix("')")).decode()
    except ValueError:
        return None


def bytes_of(value: Value) -> str:
    """Return the value as BLOB: the bytes of its text."""
    return value.sql if value.kind == "blob" else f"encode({text(value).sql})"


def converted(value: Value) -> Value:
    """Return the value as text by an explicit conversion: NULL for bytes that are not UTF-8, as in MySQL."""
    return Value(f"TRY(decode({value.sql}))", "text") if value.kind == "blob" else text(value)


def reading(value: Value) -> str:
    """Return the text from which a number or a time is read: bytes that are not UTF-8 end it, as any other character."""
    if value.kind != "blob":
        return text(value).sql
    escaped = "regexp_replace(CAST({0} AS VARCHAR), '^( |\\\\x0[9A-D])+', '')"  # after white space: \xFF for a byte
    return bind_sql(f"coalesce(TRY(decode({{0}})), {escaped})".format, value.sql)


def content(value: Value) -> Value:
    """Convert the value to text: a JSON string without its quotes."""
    if value.kind != "json":
        return text(value)
    return Value(f"kpipe_json('extract_text', [CAST({value.sql} AS VARCHAR), '$'])", "text")


def datetime(value: Value) -> Value:
    """Convert the value to TIMESTAMP; NULL if it is not a date. A time gets today's date."""
    match value.kind:
        case "json":
            return datetime(content(value))
        case "datetime":
            return value
        case "date":
            return Value(f"TRY_CAST({value.sql} AS TIMESTAMP)", "datetime")
        case "time" | "span":
            return Value(f"(CAST(now() AT TIME ZONE 'UTC' AS DATE) + to_microseconds({span(value).sql}))", "datetime")
        case "null":
            return Value("CAST(NULL AS TIMESTAMP)", "datetime")
        case "int" | "decimal" | "double" | "bool":
            return Value(moment_of_number(_exact(value)), "datetime")
    return Value(moment_of_text(reading(value)), "datetime")


def _exact(value: Value) -> str:
    return f"TRY_CAST({number(value).sql} AS DECIMAL(38,6))"


def date(value: Value) -> Value:
    """Convert the value to DATE; NULL if it is not a date."""
    if value.kind == "date":
        return value
    return Value(f"CAST({datetime(value).sql} AS DATE)", "date")


def span(value: Value) -> Value:
    """Convert the value to MySQL's TIME, from -838:59:59 to 838:59:59; NULL if it is not a time."""
    match value.kind:
        case "span":
            return value
        case "json":
            return span(content(value))
        case "time":
            return Value(f"epoch_us({value.sql})", "span")
        case "null":
            return Value("CAST(NULL AS BIGINT)", "span")
        case "date":
            return Value(f"(CASE WHEN {value.sql} IS NOT NULL THEN CAST(0 AS BIGINT) END)", "span")
        case "datetime":
            return Value(time_of_day(value.sql), "span")
        case "int" | "decimal" | "bool":
            return Value(span_of_number(_exact(value)), "span")
        case "double":
            return Value(span_of_number(f"CAST(greatest(least({value.sql}, 1e20), -1e20) AS DECIMAL(38,6))"), "span")
    return Value(span_of_text(reading(value)), "span")


def time(value: Value) -> Value:
    """Convert the value to TIME; NULL if it is not a time of day."""
    match value.kind:
        case "json":
            return time(content(value))
        case "time":
            return value
        case "null":
            return Value("CAST(NULL AS TIME)", "time")
        case "datetime":
            return Value(f"CAST({value.sql} AS TIME)", "time")
    within = bound(
        span(value).sql, lambda v: f"(CASE WHEN {v} BETWEEN 0 AND 86399999999 THEN TIME '00:00:00' + to_microseconds({v}) END)"
    )
    return Value(within, "time")


def json(value: Value) -> Value:
    """Convert the value to JSON: a text is parsed; NULL if it is not a document."""
    if value.kind == "json":
        return value
    if value.kind in ("text", "blob", "null"):
        sql = text(value).sql
        return Value(f"kpipe_json_document('document', [{sql}])", "json")
    return Value(f"to_json({value.sql})", "json")
