"""Compile expressions written in DuckDB's SQL: `where`, `set`, `select`, `into.update` of a definition in YAML or Python.

A definition stores the text as its author wrote it; `to_duckdb` returns what a task runs. Three additions to DuckDB's SQL:

- variables, `@name`, compiled to a column "@name"; names in backticks
- Kafka's coordinates: `_kafka_partition`, `_kafka_offset`, `_kafka_timestamp`, `_kafka_topic`, `_kafka_key`, `_kafka_headers`
- GET_KAFKA_PIPELINE_PROP, as in SingleStore

Everything else is passed on unchanged. For expressions in MySQL's dialect see mysql/ and languages.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.functions.kafka_functions import property_of
from kpipe.expressions.tokens import Word, words

__all__ = ["check", "columns_of", "parsed", "to_duckdb"]

_PROP = "get_kafka_pipeline_prop"
_MYSQL_OPERATORS = frozenset(("<=>", "&&", "!:>", ":>", "::$", "::%", "div", "rlike", "regexp", "xor"))


def check(text: str) -> None:
    """Check whether a task could run the expression, as far as its text shows.

    Raises:
        Untranslated: a task could not run it.
    """
    to_duckdb(text)


@lru_cache(maxsize=1024)
def to_duckdb(text: str) -> str:
    """Return the expression as DuckDB's SQL.

    Raises:
        Untranslated: the text is not exactly one expression.
    """
    out: list[str] = []
    copied, tokens = 0, list(words(text))
    if not tokens:
        raise Untranslated("an expression is missing")
    for index, word in enumerate(tokens):
        if word.start < copied:
            continue
        follows_value = index and (tokens[index - 1].kind != "sign" or tokens[index - 1].text in (")", "]"))
        if follows_value and word.text.lower() in _MYSQL_OPERATORS:
            raise Untranslated(f"{word.text} is a MySQL operator: expected DuckDB's SQL", "begin the expression with mysql:")
        is_property = word.kind == "name" and word.text.lower() == _PROP
        out += [text[copied : word.start], _prop(tokens[index + 1 : index + 4]) if is_property else _as_duckdb(word)]
        copied = tokens[index + 3].end if is_property else word.end
    sql = "".join([*out, text[copied:]]).strip()
    parsed(sql)
    return sql


@lru_cache(maxsize=1024)
def columns_of(text: str) -> frozenset[str]:
    """Return the names that the expression reads: columns, variables with their @, Kafka's coordinates.

    Raises:
        Untranslated: as `to_duckdb`.
    """
    from sqlglot import exp

    tree = parsed(to_duckdb(text))
    lambda_parameters = {str(name.name) for item in tree.find_all(exp.Lambda) for name in item.expressions}
    return frozenset(str(item.parts[0].name) for item in tree.find_all(exp.Column)) - lambda_parameters


def _prop(after: list[Word]) -> str:
    """Compile GET_KAFKA_PIPELINE_PROP from the three tokens after its name."""
    opening, name, closing = ([word.text for word in after] + [""] * 3)[:3]
    if opening != "(" or closing != ")" or not name.startswith("'"):
        raise Untranslated("GET_KAFKA_PIPELINE_PROP takes one name in quotes", "write GET_KAFKA_PIPELINE_PROP('prop_offset')")
    return property_of(name[1:-1].replace("''", "'"))[1]


def _as_duckdb(word: Word) -> str:
    text = word.text
    if word.kind == "variable":
        return f'"{text}"'
    if word.kind == "backticked":
        return '"' + text[1:-1].replace("``", "`").replace('"', '""') + '"'
    if word.kind == "open":
        raise Untranslated(f"unterminated quote: {text[:20]}")
    if text == ";":
        raise Untranslated("; is not allowed in an expression")
    return text


def parsed(text: str) -> Any:
    """Parse the text, which must be exactly one expression, to sqlglot's syntax tree.

    Raises:
        Untranslated: it is not one, or it contains a query or a window function.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        statements = sqlglot.parse(f"SELECT ({text}\n)", read="duckdb")
    except SqlglotError as error:
        details: list[dict[str, Any]] = getattr(error, "errors", None) or [{}]
        near = str(details[0].get("highlight") or "").strip()
        where = f" (near {near[:40]})" if near and near != ")" else ""
        raise Untranslated(f"not an expression{where}", "write one expression of DuckDB's SQL, such as lang = 'en'") from error
    except RecursionError as error:
        raise Untranslated("nested too deeply") from error
    select = statements[0] if len(statements) == 1 else None
    items = select.expressions if isinstance(select, exp.Select) else []
    # A second item, or a clause after it, means that the text closed the parentheses itself.
    if select is None or len(items) != 1 or not isinstance(items[0], exp.Paren | exp.Subquery) or _extra(select):
        raise Untranslated("not one expression")
    if items[0].find(exp.Query):
        raise Untranslated("a query is not allowed in an expression: a task has no tables", "use columns and functions")
    if items[0].find(exp.Window):
        raise Untranslated("a window function is not allowed in an expression: a task sees some records only", "remove OVER")
    return items[0].this


def _extra(select: Any) -> bool:
    return any(value for key, value in select.args.items() if key not in ("expressions", "kind"))
