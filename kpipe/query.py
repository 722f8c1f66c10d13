"""`select` of a pipeline: SELECT items FROM records [WHERE expression], row by row. Taken apart, not executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kpipe.errors import InvalidPipeline
from kpipe.sql.tokens import Word, words

__all__ = ["RELATION", "Query", "parse_query"]

#: What the records of a block are called in a query.
RELATION = "records"
_HINT = "write SELECT expression AS column, ... FROM records WHERE condition: each record gives one row or none"


@dataclass(frozen=True)
class Query:
    """A query's parts, as they were written.

    Attributes:
        assigned: column and expression.
        only: columns that are taken as they are; None: all (`*`).
        where: the condition.
    """

    assigned: dict[str, str]
    only: tuple[str, ...] | None
    where: str | None


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
    if len(rest) > 2:
        if rest[2].text.lower() != "where" or len(rest) == 3:
            raise wrong(f"{rest[2].text} behind FROM {RELATION}")
        where = text[rest[3].start :].strip()
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
    return Query(assigned, None if every else tuple(only), where)


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
