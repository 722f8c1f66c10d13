"""Expressions of SET, WHERE and ON DUPLICATE KEY UPDATE: DuckDB's SQL, and MySQL's functions where DuckDB has none.

A definition keeps an expression as its author wrote it; `to_duckdb` gives what a task runs. One text means the same in every
notation. What stands in it:

- columns of the record, by name, and variables, `@name`, which are columns of that name to DuckDB: "@name"
- Kafka's coordinates: `_kafka_partition`, `_kafka_offset`, `_kafka_timestamp`, `_kafka_topic`, `_kafka_key`, `_kafka_headers`
- functions and operators of DuckDB; those of MySQL in mysql.py, which mean what they mean there
- texts in single quotes, where a backslash is a backslash; names in double quotes or backticks

What no rule touches comes out as it was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kpipe.sql.tokens import Word, words
from kpipe.sql.untranslated import Untranslated

__all__ = ["check", "columns_of", "parsed", "to_duckdb"]

# Marks a call that a rule translates, so that the parser leaves it alone.
_MARK = "kpipe__"
_TYPES = {"signed": "BIGINT", "unsigned": "UBIGINT", "datetime": "TIMESTAMP"}
_OPERATORS = {"div": "//", "<=>": "IS NOT DISTINCT FROM"}
_PARSED = ("rlike", "regexp")  # operators of MySQL's that the parser knows
_REFUSED_SIGNS = {
    "!:>": "TRY_CAST(value AS type)",
    "::$": "JSON_EXTRACT_STRING(value, 'name')",
    "::%": "JSON_EXTRACT_DOUBLE(value, 'name')",
    "&&": "AND",
}


@dataclass(frozen=True)
class _Marked:
    """A text in which calls are marked and names are DuckDB's.

    Attributes:
        changed: whether it differs from what was written in more than white space.
    """

    text: str
    changed: bool


def check(text: str) -> None:
    """Whether a task could run it, as far as can be told without one.

    Raises:
        Untranslated: it could not.
    """
    to_duckdb(text)


@lru_cache(maxsize=1024)
def to_duckdb(text: str) -> str:
    """The expression as DuckDB runs it.

    Raises:
        Untranslated: not one expression, or it calls a function of MySQL's that kpipe does not translate.
    """
    marked = _marked(text)
    tree = parsed(marked.text)
    if not marked.changed:
        return text.strip()
    from sqlglot import exp

    from kpipe.sql.mysql import translated

    def rule(node: Any) -> Any:
        if isinstance(node, exp.Anonymous) and str(node.this).lower().startswith(_MARK):
            return translated(str(node.this)[len(_MARK) :].upper(), [item.transform(rule) for item in node.expressions])
        return node

    return str(tree.transform(rule).sql(dialect="duckdb", comments=False))


def columns_of(text: str) -> frozenset[str]:
    """Names that the expression takes values from: columns, variables with their @, Kafka's coordinates.

    Raises:
        Untranslated: as `to_duckdb`.
    """
    from sqlglot import exp

    tree = parsed(to_duckdb(text))
    own = {str(name.name) for item in tree.find_all(exp.Lambda) for name in item.expressions}
    return frozenset(str(item.parts[0].name) for item in tree.find_all(exp.Column)) - own


def _marked(text: str) -> _Marked:
    from kpipe.sql.mysql import REFUSED, is_translated

    out: list[str] = []
    changed, at = False, 0
    found = list(words(text))
    for here, word in enumerate(found):
        before = found[here - 1].text.lower() if here else ""
        after = found[here + 1].text if here + 1 < len(found) else ""
        new = _as_duckdb(word, before)
        if word.kind == "name" and after == "(" and before != ".":
            name = word.text.upper()
            if name in REFUSED:
                raise Untranslated(f"{name} is not translated: {REFUSED[name][0]}", REFUSED[name][1])
            if is_translated(name, _arity(found, here + 1)):
                new = _MARK + word.text
        out += [text[at : word.start], new]
        changed = changed or new != word.text or (word.kind == "name" and word.text.lower() in _PARSED)
        at = word.end
    if not found:
        raise Untranslated("an expression is missing")
    comments = len("".join(word.text for word in found)) < len(re.sub(r"\s", "", text)) and ("--" in text or "/*" in text)
    return _Marked("".join([*out, text[at:]]), changed or comments)


def _as_duckdb(word: Word, before: str) -> str:
    """A word of MySQL's as DuckDB has it."""
    text = word.text
    if word.kind == "variable":
        return f'"{text}"'
    if word.kind == "backticked":
        return '"' + text[1:-1].replace("``", "`").replace('"', '""') + '"'
    if text in _REFUSED_SIGNS:
        raise Untranslated(f"{text} is not translated", f"write {_REFUSED_SIGNS[text]}")
    if text == ":>":
        return "::"
    if word.kind == "open":
        raise Untranslated(f"the text that begins with {text[:20]} does not end")
    if text == ";":
        raise Untranslated("an expression holds no ;")
    folded = text.lower()
    if word.kind == "name" and before in ("as", "::", ":>") and folded in _TYPES:
        return _TYPES[folded]
    if folded == "xor" and before:
        raise Untranslated("XOR is not translated", "write (a <> b), or xor(a, b) for bits")
    return _OPERATORS.get(folded, text) if before else text


def _arity(found: list[Word], opening: int) -> int:
    """How many arguments a call has whose parenthesis stands there."""
    depth, count, empty = 0, 1, True
    for word in found[opening:]:
        if word.text in ("(", "[", "{"):
            depth += 1
        elif word.text in (")", "]", "}"):
            depth -= 1
            if not depth:
                break
        elif word.text == "," and depth == 1:
            count += 1
        empty = empty and word.text in ("(",)
    return 0 if empty else count


def parsed(text: str) -> Any:
    """The syntax tree, if the text is one expression.

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
