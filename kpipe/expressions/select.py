"""`select` of a pipeline: SELECT items FROM records [, UNNEST(list) AS name] [WHERE expression]. Taken apart, not executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kpipe.errors import InvalidPipeline
from kpipe.expressions.tokens import Word, words

__all__ = ["RELATION", "Query", "Unnest", "parse_query", "unnests"]

#: What the records of a block are called in a query.
RELATION = "records"
_HINT = "write SELECT expression AS column, ... FROM records WHERE condition: each record gives one row or none"
_UNNEST_HINT = "write FROM records, UNNEST(list) AS item, or UNNEST(list) WITH ORDINALITY AS t(item, number)"


@dataclass(frozen=True)
class Unnest:
    """A list of the record, of which each element gives a row; none where there is no list, or nothing in it.

    Attributes:
        text: the expression that gives the list.
        element: what an element is called.
        number: what its place in the list is called, counted from 1; None where it has no name.
    """

    text: str
    element: str
    number: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What it gives names to."""
        return (self.element,) if self.number is None else (self.element, self.number)


@dataclass(frozen=True)
class Query:
    """A query's parts, as they were written.

    Attributes:
        assigned: column and expression.
        only: columns that are taken as they are; None: all (`*`).
        where: the condition.
        unnest: the list that gives several rows.
    """

    assigned: dict[str, str]
    only: tuple[str, ...] | None
    where: str | None
    unnest: Unnest | None = None


def unnests(text: str | None) -> bool:
    """Whether a query takes several rows from one record; false for what is no query."""
    if text is None:
        return False
    try:
        return parse_query(text, "").unnest is not None
    except InvalidPipeline:
        return False


def parse_query(text: str, pipeline: str) -> Query:
    """The query of a pipeline.

    Args:
        text: the query.
        pipeline: its name, for messages.

    Raises:
        InvalidPipeline: it is another kind of query.
    """

    def wrong(what: str) -> InvalidPipeline:
        return InvalidPipeline(f"pipeline {pipeline}: select: {what}", _HINT)

    found = list(words(text))
    if not found or found[0].text.lower() != "select":
        raise wrong("it does not begin with SELECT")
    if len(found) > 1 and found[1].text.lower() in ("distinct", "all"):
        raise wrong(f"{found[1].text.upper()} is not for one record")
    groups: list[list[Word]] = [[]]
    depth, at = 0, 1
    while at < len(found):
        word = found[at]
        depth += (word.text in ("(", "[", "{")) - (word.text in (")", "]", "}"))
        if not depth and word.text.lower() == "from" and found[at - 1].text.lower() != "distinct":
            break
        if not depth and word.text == ",":
            groups.append([])
        else:
            groups[-1].append(word)
        at += 1
    rest = found[at:]
    if len(rest) < 2 or rest[1].text.lower().strip('"`') != RELATION:
        raise wrong(f"it does not take its rows FROM {RELATION}")
    where = None
    try:
        unnest, rest = _unnest(rest[2:], text)
    except ValueError as error:
        raise InvalidPipeline(f"pipeline {pipeline}: select: {error}", _UNNEST_HINT) from error
    if rest:
        if rest[0].text.lower() != "where" or len(rest) == 1:
            raise wrong(f"{rest[0].text} behind FROM {RELATION}")
        where = text[rest[1].start :].strip()
    assigned: dict[str, str] = {}
    only: list[str] = []
    every = False
    for group in groups:
        if len(group) == 1 and group[0].text == "*":
            every = True
            continue
        name, expression = _item(group, text)
        if name is None:
            raise wrong(f"{(expression or 'an item')[:40]} has no name: AS column")
        if name.lower() in map(str.lower, (*assigned, *only)):
            raise wrong(f"{name} is given twice")
        if expression is None:
            only.append(name)
        else:
            assigned[name] = expression
    return Query(assigned, None if every else tuple(only), where, unnest)


def _unnest(rest: list[Word], text: str) -> tuple[Unnest | None, list[Word]]:
    """What stands between FROM records and WHERE, and what is left behind it.

    Raises:
        ValueError: it begins as an UNNEST, and is none.
    """
    begins = [word.text.lower() for word in rest[:3]]
    skip = 1 if begins[:2] == [",", "unnest"] else 2 if begins == ["cross", "join", "unnest"] else 0
    if not skip:
        return None, rest
    rest, depth, close = rest[skip + 1 :], 0, 0
    for at, word in enumerate(rest):
        depth += (word.text in ("(", "[", "{")) - (word.text in (")", "]", "}"))
        if not depth:
            close = at
            break
    if close < 2 or rest[0].text != "(":
        msg = "UNNEST takes one list in parentheses"
        raise ValueError(msg)
    inner, rest = text[rest[1].start : rest[close - 1].end], rest[close + 1 :]
    ordinal = [word.text.lower() for word in rest[:2]] == ["with", "ordinality"]
    rest = rest[2:] if ordinal else rest
    end = next((at for at, word in enumerate(rest) if word.text.lower() == "where"), len(rest))
    named, rest = list(rest[:end]), rest[end:]
    if named and named[0].text.lower() == "as" and len(named) > 1:
        named = named[1:]
    if len(named) > 1 and named[1].text == "(" and named[-1].text == ")":  # t(item, number): t is not needed
        named = [word for word in named[2:-1] if word.text != ","]
    if len(named) != 1 + ordinal or not all(_is_name(word) for word in named):
        msg = "UNNEST has no name for its element" if not ordinal else "WITH ORDINALITY takes two names: t(item, number)"
        raise ValueError(msg)
    names = [_name(word) for word in named]
    if len({name.lower() for name in names}) < len(names) or any(name.lower().startswith(("_kafka_", "@")) for name in names):
        msg = f"UNNEST cannot name {' and '.join(names)}"
        raise ValueError(msg)
    return Unnest(inner, names[0], names[1] if ordinal else None), rest


def _item(group: Sequence[Word], text: str) -> tuple[str | None, str | None]:
    """Name and expression; no expression where a column is taken as it is."""
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
