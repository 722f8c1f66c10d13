"""Parse the `select` of a pipeline: SELECT items FROM records [, UNNEST(list) AS name] [WHERE expression]. Executes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kpipe.errors import InvalidPipeline
from kpipe.expressions.tokens import Word, words

__all__ = ["RELATION", "Query", "Unnest", "parse_query", "unnests"]

#: The table name of a block's records in a query.
RELATION = "records"
_HINT = "write SELECT expression AS column, ... FROM records WHERE condition: each record becomes one row or none"
_UNNEST_HINT = "write FROM records, UNNEST(list) AS item, or UNNEST(list) WITH ORDINALITY AS t(item, number)"


@dataclass(frozen=True)
class Unnest:
    """A list of the record whose elements become rows; a missing or empty list gives no row.

    Attributes:
        text: the expression of the list.
        element: name of an element.
        number: name of its position, counted from 1; None without WITH ORDINALITY.
    """

    text: str
    element: str
    number: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names that UNNEST defines."""
        return (self.element,) if self.number is None else (self.element, self.number)


@dataclass(frozen=True)
class Query:
    """The parts of a query, as written.

    Attributes:
        assigned: column to expression.
        only: columns that are copied unchanged; None: all (`*`).
        where: the condition.
        unnest: the list whose elements become rows.
    """

    assigned: dict[str, str]
    only: tuple[str, ...] | None
    where: str | None
    unnest: Unnest | None = None


def unnests(text: str | None) -> bool:
    """Return whether a query can make several rows of one record; false for an invalid query."""
    if text is None:
        return False
    try:
        return parse_query(text, "").unnest is not None
    except InvalidPipeline:
        return False


def parse_query(text: str, pipeline: str) -> Query:
    """Parse the query of a pipeline.

    Args:
        text: the query.
        pipeline: its name, for messages.

    Raises:
        InvalidPipeline: it is not of the supported form.
    """

    def wrong(what: str) -> InvalidPipeline:
        return InvalidPipeline(f"pipeline {pipeline}: select: {what}", _HINT)

    tokens = list(words(text))
    if not tokens or tokens[0].text.lower() != "select":
        raise wrong("the query must begin with SELECT")
    if len(tokens) > 1 and tokens[1].text.lower() in ("distinct", "all"):
        raise wrong(f"{tokens[1].text.upper()} is not supported: the query runs on one record at a time")
    groups: list[list[Word]] = [[]]
    depth, index = 0, 1
    while index < len(tokens):
        word = tokens[index]
        depth += (word.text in ("(", "[", "{")) - (word.text in (")", "]", "}"))
        if not depth and word.text.lower() == "from" and tokens[index - 1].text.lower() != "distinct":
            break
        if not depth and word.text == ",":
            groups.append([])
        else:
            groups[-1].append(word)
        index += 1
    rest = tokens[index:]
    if len(rest) < 2 or rest[1].text.lower().strip('"`') != RELATION:
        raise wrong(f"expected FROM {RELATION}")
    where = None
    try:
        unnest, rest = _unnest(rest[2:], text)
    except ValueError as error:
        raise InvalidPipeline(f"pipeline {pipeline}: select: {error}", _UNNEST_HINT) from error
    if rest:
        if rest[0].text.lower() != "where" or len(rest) == 1:
            raise wrong(f"unexpected {rest[0].text} after FROM {RELATION}")
        where = text[rest[1].start :].strip()
    assigned: dict[str, str] = {}
    only: list[str] = []
    selects_all = False
    for group in groups:
        if len(group) == 1 and group[0].text == "*":
            selects_all = True
            continue
        name, expression = _item(group, text)
        if name is None:
            raise wrong(f"{(expression or 'an item')[:40]} needs a name: AS column")
        if name.lower() in map(str.lower, (*assigned, *only)):
            raise wrong(f"duplicate column {name}")
        if expression is None:
            only.append(name)
        else:
            assigned[name] = expression
    return Query(assigned, None if selects_all else tuple(only), where, unnest)


def _unnest(rest: list[Word], text: str) -> tuple[Unnest | None, list[Word]]:
    """Parse the tokens between FROM records and WHERE, and return the tokens after them.

    Raises:
        ValueError: it begins as an UNNEST, but is not a valid one.
    """
    keywords = [word.text.lower() for word in rest[:3]]
    skip = 1 if keywords[:2] == [",", "unnest"] else 2 if keywords == ["cross", "join", "unnest"] else 0
    if not skip:
        return None, rest
    rest, depth, close = rest[skip + 1 :], 0, 0
    for index, word in enumerate(rest):
        depth += (word.text in ("(", "[", "{")) - (word.text in (")", "]", "}"))
        if not depth:
            close = index
            break
    if close < 2 or rest[0].text != "(":
        msg = "UNNEST takes one list in parentheses"
        raise ValueError(msg)
    inner, rest = text[rest[1].start : rest[close - 1].end], rest[close + 1 :]
    ordinal = [word.text.lower() for word in rest[:2]] == ["with", "ordinality"]
    rest = rest[2:] if ordinal else rest
    end = next((index for index, word in enumerate(rest) if word.text.lower() == "where"), len(rest))
    name_tokens, rest = list(rest[:end]), rest[end:]
    if name_tokens and name_tokens[0].text.lower() == "as" and len(name_tokens) > 1:
        name_tokens = name_tokens[1:]
    if len(name_tokens) > 1 and name_tokens[1].text == "(" and name_tokens[-1].text == ")":  # t(item, number): t is not needed
        name_tokens = [word for word in name_tokens[2:-1] if word.text != ","]
    if len(name_tokens) != 1 + ordinal or not all(_is_name(word) for word in name_tokens):
        msg = "UNNEST needs a name for its element" if not ordinal else "WITH ORDINALITY takes two names: t(item, number)"
        raise ValueError(msg)
    names = [_name(word) for word in name_tokens]
    if len({name.lower() for name in names}) < len(names) or any(name.lower().startswith(("_kafka_", "@")) for name in names):
        msg = f"UNNEST cannot use the name {' and '.join(names)}"
        raise ValueError(msg)
    return Unnest(inner, names[0], names[1] if ordinal else None), rest


def _item(group: Sequence[Word], text: str) -> tuple[str | None, str | None]:
    """Return name and expression of an item; no expression for a column that is copied unchanged."""
    if len(group) == 1 and _is_name(group[0]):
        return _name(group[0]), None
    if len(group) > 2 and group[-2].text.lower() == "as" and _is_name(group[-1]):
        inner = group[:-2]
        if len(inner) == 1 and _is_name(inner[0]) and _name(inner[0]) == _name(group[-1]):
            return _name(group[-1]), None
        return _name(group[-1]), text[inner[0].start : inner[-1].end]
    return None, text[group[0].start : group[-1].end] if group else ""


def _is_name(word: Word) -> bool:
    return word.kind in ("name", "quoted", "backticked")


def _name(word: Word) -> str:
    if word.kind == "name":
        return word.text
    mark = word.text[0]
    return word.text[1:-1].replace(mark * 2, mark)
