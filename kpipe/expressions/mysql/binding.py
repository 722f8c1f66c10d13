"""Compute an argument once that the SQL of a rule names several times, so that nested calls stay as long as they are written.

DuckDB's SQL has no LET. `list_transform([argument], lambda name: body)[1]` is one: it is vectorized, passes NULL on, and
evaluates the argument once for each row, random() included. Short SQL is repeated: a column costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import md5

__all__ = ["bind_sql", "bound", "is_leaf", "repeating"]

_SHORT = 40  # characters of SQL that may stand several times
_PLAIN = re.compile(
    r"""'(?:[^']|'')*'                                                  # a text
    |(?:\w+\.)?"(?:[^"]|"")*"                                           # a column
    |CAST\((?:-?\d+|'(?:[^']|'')*'|"(?:[^"]|"")*")\ AS\ [A-Z]+(?:\([\d,]+\))?\)  # either in a type
    |\("(?:[^"]|"")*"\ AT\ TIME\ ZONE\ 'UTC'\)""",
    re.VERBOSE,
)
_VOLATILE = re.compile(r"\b(?:random|uuid)\(")
_CALL = re.compile(r"[a-z_]\w*(?=\()")
_CHEAP = {"abs", "epoch_us", "nullif", "round"}  # functions that cost less than a lambda
_CHEAP_LENGTH = 160
_JSON_LEAF = re.compile(r"""\(CASE json_type\("(?:[^"]|"")*"\) [^()]*json_extract_string\("(?:[^"]|"")*", '\$'\) .{,200}""")
_repeating: ContextVar[bool] = ContextVar("repeating", default=False)


@contextmanager
def repeating() -> Iterator[None]:
    """Repeat arguments in what is compiled inside: generated columns of DuckDB take no lambda."""
    token = _repeating.set(True)
    try:
        yield
    finally:
        _repeating.reset(token)


def _repeatable(sql: str) -> bool:
    """Whether SQL may stand several times: nothing in it is drawn anew, and it is short."""
    if _VOLATILE.search(sql):
        return False
    if len(sql) <= _SHORT or _PLAIN.fullmatch(sql) is not None:
        return True
    return len(sql) <= _CHEAP_LENGTH and set(_CALL.findall(sql)) <= _CHEAP


def is_leaf(sql: str) -> bool:
    """Return whether comparisons may repeat SQL: it is short, or a variable, of which DuckDB finds what they have in common."""
    return _repeatable(sql) or _JSON_LEAF.fullmatch(sql) is not None


def bind_sql(body: Callable[..., str], *arguments: str) -> str:
    """Return the SQL of a rule that names its arguments several times.

    Args:
        body: makes the SQL of the rule from names of its arguments.
        arguments: SQL. What is computed from different parts of an expression stands in one call: names are made of the
            arguments' SQL, and two calls of RAND() have the same.
    """
    if _repeating.get() and not any(map(_VOLATILE.search, arguments)):
        return body(*arguments)
    return _named_once(body, *arguments)


def _named_once(body: Callable[..., str], *arguments: str) -> str:
    long = [at for at, sql in enumerate(arguments) if not _repeatable(sql)]
    if not long:
        return body(*arguments)
    name = f"kpipe_{md5(' '.join(arguments).encode(), usedforsecurity=False).hexdigest()[:10]}"
    if len(long) == 1:
        names, packed = {long[0]: name}, arguments[long[0]]
    else:
        names = {at: f"{name}.a{at}" for at in long}
        packed = "{" + ", ".join(f"'a{at}': {arguments[at]}" for at in long) + "}"
    made = body(*(names.get(at, sql) for at, sql in enumerate(arguments)))
    return f"list_transform([{packed}], lambda {name}: {made})[1]"


def bound(sql: str, rule: Callable[[str], str]) -> str:
    """Return the same for a rule that names its argument so often that it is never repeated: how a text is read as a time."""
    return _named_once(rule, sql)
