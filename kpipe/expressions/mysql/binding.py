"""Compute an argument only once although the SQL of a rule uses it several times, so that nested calls stay short.

DuckDB's SQL has no LET. `list_transform([argument], lambda name: body)[1]` works as one: it is vectorized, passes NULL on,
and evaluates the argument once for each row, including random(). Short SQL is repeated, because a column costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import md5

__all__ = ["bind_sql", "bound", "is_leaf", "repeating"]

_SHORT = 40  # characters of SQL that may be repeated
_PLAIN = re.compile(
    r"""'(?:[^']|'')*'                                                  # a text
    |(?:\w+\.)?"(?:[^"]|"")*"                                           # a column
    |CAST\((?:-?\d+|'(?:[^']|'')*'|"(?:[^"]|"")*")\ AS\ [A-Z]+(?:\([\d,]+\))?\)  # either, cast to a type
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
    """Repeat arguments in everything compiled inside: DuckDB's generated columns do not support lambdas."""
    token = _repeating.set(True)
    try:
        yield
    finally:
        _repeating.reset(token)


def _repeatable(sql: str) -> bool:
    """Return whether SQL may be repeated: it is short and does not draw random values."""
    if _VOLATILE.search(sql):
        return False
    if len(sql) <= _SHORT or _PLAIN.fullmatch(sql) is not None:
        return True
    return len(sql) <= _CHEAP_LENGTH and set(_CALL.findall(sql)) <= _CHEAP


def is_leaf(sql: str) -> bool:
    """Return whether comparisons may repeat SQL: it is short, or a variable, whose common parts DuckDB computes once."""
    return _repeatable(sql) or _JSON_LEAF.fullmatch(sql) is not None


def bind_sql(body: Callable[..., str], *arguments: str) -> str:
    """Return the SQL of a rule that uses its arguments several times.

    Args:
        body: makes the SQL of the rule from names of its arguments.
        arguments: SQL. Pass values from different parts of an expression in one call: lambda names are hashes of the
            arguments' SQL, so that two calls of RAND() get the same name.
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
    """Return the SQL of a rule whose argument is never repeated because the rule uses it very often, as when parsing times."""
    return _named_once(rule, sql)
