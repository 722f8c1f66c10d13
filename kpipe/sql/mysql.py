"""MySQL's and SingleStore's functions as DuckDB has them: each rule on values in tests/kpipe/sql/test_expressions.py.

Only what public pipelines use, and only where the meaning is the same for every value; what is missing is refused by name.
Times are UTC, as everywhere in kpipe.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from kpipe.sql.time_formats import date_format, parse_format
from kpipe.sql.untranslated import Untranslated

__all__ = ["REFUSED", "is_translated", "translated"]

_NOW = "CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP)"
_Rule = str | Callable[[Sequence[Any]], str]


def is_translated(name: str, arity: int) -> bool:
    """Whether a rule takes a call of that name with so many arguments; all others are DuckDB's."""
    known = _RULES.get(name)
    return known is not None and arity in known


def translated(name: str, arguments: Sequence[Any]) -> Any:
    """The call as DuckDB has it.

    Args:
        name: of the function, upper case.
        arguments: syntax trees, translated.

    Raises:
        Untranslated: the rule does not hold for these arguments.
    """
    from sqlglot import exp

    rule = _RULES[name][len(arguments)]
    text = rule.format(*map(_sql, arguments)) if isinstance(rule, str) else rule(arguments)
    return exp.Var(this=text)  # as it is: DuckDB's own words, which need no parser


def _sql(node: Any) -> str:
    """An argument that may stand anywhere in a rule."""
    from sqlglot import exp

    text = str(node.sql(dialect="duckdb", comments=False))
    return text if isinstance(node, exp.Literal | exp.Column | exp.Paren | exp.Null | exp.Boolean | exp.Var) else f"({text})"


def _literal(node: Any, function: str, what: str) -> str:
    """The argument, which must be a text written out."""
    from sqlglot import exp

    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    if isinstance(node, exp.Column) and len(node.parts) == 1 and node.this.quoted:  # MySQL's texts stand in either quotes
        return str(node.name)
    raise Untranslated(f"{function}: {what} must be a text in quotes", "an expression cannot be translated there")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _concat(arguments: Sequence[Any]) -> str:
    """NULL if one of them is, unlike DuckDB's own."""
    return "(" + " || ".join(f"CAST({_sql(item)} AS VARCHAR)" for item in arguments) + ")"


def _str_to_date(arguments: Sequence[Any]) -> str:
    """NULL for what is no such date; a DATE or a TIME where the format has no more."""
    written = _literal(arguments[1], "STR_TO_DATE", "the format")
    format, kind = parse_format(written, "STR_TO_DATE")
    return f"CAST(try_strptime(CAST({_sql(arguments[0])} AS VARCHAR), {_quoted(format)}) AS {kind})"


def _date_format(arguments: Sequence[Any]) -> str:
    format = date_format(_literal(arguments[1], "DATE_FORMAT", "the format"), "DATE_FORMAT")
    return f"strftime(CAST({_sql(arguments[0])} AS TIMESTAMP), {_quoted(format)})"


_FROM_UNIXTIME = "make_timestamp(CAST(round(CAST({0} AS DOUBLE) * 1000000) AS BIGINT))"


def _from_unixtime(arguments: Sequence[Any]) -> str:
    format = date_format(_literal(arguments[1], "FROM_UNIXTIME", "the format"), "FROM_UNIXTIME")
    return f"strftime({_FROM_UNIXTIME.format(_sql(arguments[0]))}, {_quoted(format)})"


def _json(arguments: Sequence[Any], function: str) -> str:
    """The document and the path to a member, named by keys and places in arrays."""
    from sqlglot import exp

    parts = ["$"]
    for item in arguments[1:]:
        if isinstance(item, exp.Literal) and not item.is_string and str(item.this).isdigit():
            parts.append(f"[{item.this}]")
            continue
        key = _literal(item, function, "a key")
        if len(arguments) == 2 and re.match(r"[$/]", key):  # a path of DuckDB's own, or of MySQL's JSON_EXTRACT
            return f"{_sql(arguments[0])}, {_quoted(key)}"
        escaped = key.replace("\\", "\\\\").replace('"', '\\"')
        parts.append(f'."{escaped}"')
    return f"{_sql(arguments[0])}, {_quoted(''.join(parts))}"


def _json_as(kind: str, function: str) -> Callable[[Sequence[Any]], str]:
    def rule(arguments: Sequence[Any]) -> str:
        if kind == "JSON":
            return f"json_extract({_json(arguments, function)})"
        text = f"json_extract_string({_json(arguments, function)})"
        return text if kind == "VARCHAR" else f"TRY_CAST({text} AS {kind})"

    return rule


def _substring_index(arguments: Sequence[Any]) -> str:
    text, delimiter, count = map(_sql, arguments)
    if not re.fullmatch(r"\(?-? ?\d+\)?", count):
        raise Untranslated("SUBSTRING_INDEX: the count must be a number", "an expression cannot be translated there")
    number = int(count.strip("()").replace(" ", ""))
    cut = f"[1:{number}]" if number > 0 else f"[{number}:]" if number < 0 else "[1:0]"
    return f"array_to_string(string_split({text}, {delimiter}){cut}, {delimiter})"


def _interval(sign: str) -> Callable[[Sequence[Any]], str]:
    def rule(arguments: Sequence[Any]) -> str:
        from sqlglot import exp

        if not isinstance(arguments[1], exp.Interval):
            raise Untranslated("DATE_ADD, DATE_SUB: the second argument must be INTERVAL n UNIT")
        return f"(CAST({_sql(arguments[0])} AS TIMESTAMP) {sign} {_sql(arguments[1])})"

    return rule


def _timestampadd(arguments: Sequence[Any]) -> str:
    """That many units later."""
    unit = arguments[0].sql(dialect="duckdb").strip('"').lower().removeprefix("sql_tsi_")
    if unit not in _UNITS:
        raise Untranslated(f"TIMESTAMPADD: {unit[:20]} is no unit", f"units are {', '.join(_UNITS)}")
    count, moment = map(_sql, arguments[1:])
    return f"(CAST({moment} AS TIMESTAMP) + CAST(round({count}) AS BIGINT) * INTERVAL 1 {unit})"


_UNITS = ("microsecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")


def _timestampdiff(arguments: Sequence[Any]) -> str:
    """Whole units that have passed."""
    unit = arguments[0].sql(dialect="duckdb").strip('"').lower().removeprefix("sql_tsi_")
    first, second = map(_sql, arguments[1:])
    return f"date_sub({_quoted(unit)}, CAST({first} AS TIMESTAMP), CAST({second} AS TIMESTAMP))"


def _kafka(arguments: Sequence[Any]) -> str:
    """SingleStore's names, then ours (`prop_key`); any other is that of a header, the last one of that name. All are texts."""
    name = _literal(arguments[0], "GET_KAFKA_PIPELINE_PROP", "the name")
    known = {
        "prop_offset": "CAST(_kafka_offset AS VARCHAR)",
        "prop_partition": "CAST(_kafka_partition AS VARCHAR)",
        "prop_timestamp": "CAST(epoch_ms(_kafka_timestamp) AS VARCHAR)",
        "prop_topicname": "_kafka_topic",
        "prop_key": "TRY(decode(_kafka_key))",
    }
    header = f"TRY(decode(list_filter(_kafka_headers, lambda h: h.name = {_quoted(name)})[-1].value))"
    return known.get(name.lower(), header)


def _sha2(arguments: Sequence[Any]) -> str:
    if _sql(arguments[1]) not in ("256", "0"):
        raise Untranslated("SHA2 is translated for 256 bits only", "write SHA2(x, 256)")
    return f"sha256(CAST({_sql(arguments[0])} AS VARCHAR))"


def _part(name: str) -> str:
    return f"{name}(CAST({{0}} AS TIMESTAMP))"


_ANY = range(1, 33)  # so many arguments at most, where a function takes any number

# By name and number of arguments. A rule is a text with its arguments' places, or a function of them.
_RULES: dict[str, dict[int, _Rule]] = {
    "IF": {3: "(CASE WHEN {0} THEN {1} ELSE {2} END)"},
    "IFNULL": {2: "coalesce({0}, {1})"},
    "NVL": {2: "coalesce({0}, {1})"},
    "ISNULL": {1: "({0} IS NULL)"},
    "CONCAT": dict.fromkeys(_ANY, _concat),
    "CHAR_LENGTH": {1: "length({0})"},
    "CHARACTER_LENGTH": {1: "length({0})"},
    "LOCATE": {2: "strpos({1}, {0})"},
    "SUBSTRING_INDEX": {3: _substring_index},
    "LCASE": {1: "lower({0})"},
    "UCASE": {1: "upper({0})"},
    "MID": {3: "substring({0}, {1}, {2})"},
    "SHA": {1: "sha1({0})"},
    "SHA2": {2: _sha2},
    "RAND": {0: "random()"},
    "POW": {2: "pow({0}, {1})"},
    # dates and times
    "NOW": dict.fromkeys((0, 1), _NOW),
    "SYSDATE": dict.fromkeys((0, 1), _NOW),
    "LOCALTIME": dict.fromkeys((0, 1), _NOW),
    "LOCALTIMESTAMP": dict.fromkeys((0, 1), _NOW),
    "CURRENT_TIMESTAMP": dict.fromkeys((0, 1), _NOW),
    "UTC_TIMESTAMP": dict.fromkeys((0, 1), _NOW),
    "CURDATE": {0: f"CAST({_NOW} AS DATE)"},
    "CURRENT_DATE": {0: f"CAST({_NOW} AS DATE)"},
    "UTC_DATE": {0: f"CAST({_NOW} AS DATE)"},
    "CURTIME": dict.fromkeys((0, 1), f"CAST({_NOW} AS TIME)"),
    "STR_TO_DATE": {2: _str_to_date},
    "DATE_FORMAT": {2: _date_format},
    "FROM_UNIXTIME": {1: _FROM_UNIXTIME, 2: _from_unixtime},
    "UNIX_TIMESTAMP": {0: f"CAST(floor(epoch({_NOW})) AS BIGINT)", 1: "epoch(CAST({0} AS TIMESTAMP))"},
    "DATE": {1: "CAST(CAST({0} AS TIMESTAMP) AS DATE)"},
    "TIMESTAMP": {1: "CAST({0} AS TIMESTAMP)"},
    "DATE_ADD": {2: _interval("+")},
    "ADDDATE": {2: _interval("+")},
    "DATE_SUB": {2: _interval("-")},
    "SUBDATE": {2: _interval("-")},
    "DATEDIFF": {2: "date_diff('day', CAST(CAST({1} AS TIMESTAMP) AS DATE), CAST(CAST({0} AS TIMESTAMP) AS DATE))"},
    "TIMESTAMPDIFF": {3: _timestampdiff},
    "TIMESTAMPADD": {3: _timestampadd},
    **{name: {1: _part(name.lower())} for name in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")},
    "DAYOFMONTH": {1: _part("day")},
    # JSON
    "JSON_EXTRACT_STRING": dict.fromkeys(_ANY[1:], _json_as("VARCHAR", "JSON_EXTRACT_STRING")),
    "JSON_EXTRACT_BIGINT": dict.fromkeys(_ANY[1:], _json_as("BIGINT", "JSON_EXTRACT_BIGINT")),
    "JSON_EXTRACT_DOUBLE": dict.fromkeys(_ANY[1:], _json_as("DOUBLE", "JSON_EXTRACT_DOUBLE")),
    "JSON_EXTRACT_JSON": dict.fromkeys(_ANY[1:], _json_as("JSON", "JSON_EXTRACT_JSON")),
    "JSON_UNQUOTE": {1: "json_extract_string({0}, '$')"},
    "JSON_LENGTH": {1: "json_array_length({0})"},
    # of a pipeline
    "GET_KAFKA_PIPELINE_PROP": {1: _kafka},
    "VALUES": {1: "excluded.{0}"},
}

_NONE = "DuckDB has none with the same meaning"
_INSTEAD = "write it with DuckDB's functions"
#: Name to the reason and what to write instead.
REFUSED: dict[str, tuple[str, str]] = {
    "PIPELINE_BATCH_ID": ("a task does not know it", "kpipe_batches has the batch of every range of offsets"),
    "PIPELINE_SOURCE_FILE": ("there are no files", "GET_KAFKA_PIPELINE_PROP('prop_topicname') gives the topic"),
    "CONVERT": ("its types are MySQL's", "write CAST(value AS type)"),
    "CONVERT_TZ": (_NONE, "write timezone('Europe/Berlin', timezone('UTC', value))"),
    "TO_DATE": ("its formats are Oracle's", "write STR_TO_DATE(value, '%Y-%m-%d')"),
    "DAYOFWEEK": ("MySQL counts from Sunday as 1, DuckDB from 0", "write isodow(value), Monday is 1"),
    "WEEKDAY": ("MySQL counts from Monday as 0, DuckDB from Sunday", "write isodow(value), Monday is 1"),
    "SLEEP": ("a task does not wait", "leave it out"),
    "LAST_INSERT_ID": ("no row is inserted yet", "leave it out"),
    "JSON_SET": (_NONE, "write json_merge_patch(document, patch)"),
    **dict.fromkeys(
        (
            "ADDTIME", "SUBTIME", "TIMEDIFF", "SEC_TO_TIME", "TIME_TO_SEC", "MAKEDATE", "MAKETIME", "PERIOD_ADD", "PERIOD_DIFF",
            "TO_DAYS", "FROM_DAYS", "TO_SECONDS", "GET_FORMAT", "TIME_FORMAT", "FIELD", "ELT", "FIND_IN_SET", "MAKE_SET",
            "EXPORT_SET", "INET_ATON", "INET_NTOA", "INET6_ATON", "INET6_NTOA", "CONV", "CRC32", "SOUNDEX", "UNCOMPRESS",
            "COMPRESS", "AES_ENCRYPT", "AES_DECRYPT", "ENCRYPT", "PASSWORD", "UUID_TO_BIN", "BIN_TO_UUID", "UUID_SHORT",
            "JSON_INSERT", "JSON_REPLACE", "JSON_REMOVE", "JSON_SEARCH", "JSON_ARRAY_PACK", "JSON_ARRAY_UNPACK",
            "JSON_SET_STRING", "JSON_SET_DOUBLE", "JSON_SET_JSON", "JSON_DELETE_KEY", "JSON_SPLICE_STRING",
            "JSON_ARRAY_CONTAINS_STRING",
            "JSON_ARRAY_PUSH_STRING", "JSON_ARRAY_PUSH_JSON", "JSON_GET_TYPE", "GEOGRAPHY_POINT", "GEOGRAPHY_DISTANCE",
            "TO_TIMESTAMP_TZ", "TO_NUMBER", "TO_CHAR", "SECURITY_LISTS_INTERSECT", "DATABASE", "USER", "CURRENT_USER",
        ),
        (_NONE, _INSTEAD),
    ),
}  # fmt: skip
