"""Expressions in DuckDB's SQL, as definitions in YAML and Python hold them: `where`, `set`, `select`, `into.update`.

A definition keeps an expression as its author wrote it; `to_duckdb` gives what a task runs. Beside DuckDB's SQL it holds:

- variables, `@name`, which are columns of that name to DuckDB: "@name"; names in backticks
- Kafka's coordinates: `_kafka_partition`, `_kafka_offset`, `_kafka_timestamp`, `_kafka_topic`, `_kafka_key`, `_kafka_headers`
- GET_KAFKA_PIPELINE_PROP, as in SingleStore

What is none of these comes out as it was written. MySQL's language has a package of its own (mysql/), see languages.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.functions.kafka_functions import property_of
from kpipe.expressions.tokens import Word, words

__all__ = ["check", "columns_of", "parsed", "to_duckdb"]

_PROP = "get_kafka_pipeline_prop"
_MYSQLS = frozenset(("<=>", "&&", "!:>", ":>", "::$", "::%", "div", "rlike", "regexp", "xor"))


def check(text: str) -> None:
    """Check whether a task could run it, as far as can be told without one.

    Raises:
        Untranslated: it could not.
    """
    to_duckdb(text)


@lru_cache(maxsize=1024)
def to_duckdb(text: str) -> str:
    """Return the expression as DuckDB runs it.

    Raises:
        Untranslated: not one expression.
    """
    out: list[str] = []
    at, found = 0, list(words(text))
    if not found:
        raise Untranslated("an expression is missing")
    for here, word in enumerate(found):
        if word.start < at:
            continue
        behind_value = here and (found[here - 1].kind != "sign" or found[here - 1].text in (")", "]"))
        if behind_value and word.text.lower() in _MYSQLS:
            raise Untranslated(f"{word.text} is MySQL's", "begin the expression with mysql:")
        called = word.kind == "name" and word.text.lower() == _PROP
        out += [text[at : word.start], _prop(found[here + 1 : here + 4]) if called else _as_duckdb(word)]
        at = found[here + 3].end if called else word.end
    made = "".join([*out, text[at:]]).strip()
    parsed(made)
    return made


def columns_of(text: str) -> frozenset[str]:
    """Return the names that the expression takes values from: columns, variables with their @, Kafka's coordinates.

    Raises:
        Untranslated: as `to_duckdb`.
    """
    from sqlglot import exp

    tree = parsed(to_duckdb(text))
    own = {str(name.name) for item in tree.find_all(exp.Lambda) for name in item.expressions}
    return frozenset(str(item.parts[0].name) for item in tree.find_all(exp.Column)) - own


def _prop(after: list[Word]) -> str:
    """GET_KAFKA_PIPELINE_PROP, by the three words behind its name."""
    opening, name, closing = ([word.text for word in after] + [""] * 3)[:3]
    if opening != "(" or closing != ")" or not name.startswith("'"):
        raise Untranslated("GET_KAFKA_PIPELINE_PROP takes one name in quotes", "GET_KAFKA_PIPELINE_PROP('prop_offset')")
    return property_of(name[1:-1].replace("''", "'"))[1]


def _as_duckdb(word: Word) -> str:
    text = word.text
    if word.kind == "variable":
        return f'"{text}"'
    if word.kind == "backticked":
        return '"' + text[1:-1].replace("``", "`").replace('"', '""') + '"'
    if word.kind == "open":
        raise Untranslated(f"the text that begins with {text[:20]} does not end")
    if text == ";":
        raise Untranslated("an expression holds no ;")
    return text


def parsed(text: str) -> Any:
    """Return the syntax tree, if the text is one expression.

    Raises:
        Untranslated: it is not.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        found = sqlglot.parse(f"SELECT ({text}\n)", read="duckdb")
    except SqlglotError as error:
        details: list[dict[str, Any]] = getattr(error, "errors", None) or [{}]
        near = str(details[0].get("highlight") or "").strip()
        raise Untranslated("not an expression" + (f" (near {near[:40]})" if near and near != ")" else "")) from error
    except RecursionError as error:
        raise Untranslated("nested too deeply") from error
    select = found[0] if len(found) == 1 else None
    items = select.expressions if isinstance(select, exp.Select) else []
    # More than the one item in parentheses, or anything behind it: the text has left them.
    if select is None or len(items) != 1 or not isinstance(items[0], exp.Paren | exp.Subquery) or _extra(select):
        raise Untranslated("not one expression")
    if items[0].find(exp.Query):
        raise Untranslated("an expression holds no query: a task has no tables to ask", "use columns and functions of them")
    if items[0].find(exp.Window):
        raise Untranslated("an expression holds no window: a task sees some records at a time, never all", "leave OVER out")
    return items[0].this


def _extra(select: Any) -> bool:
    return any(value for key, value in select.args.items() if key not in ("expressions", "kind"))
