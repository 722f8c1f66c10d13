"""Parse and apply MySQL's JSON paths: `$.a[0]."b c"[last-1][0 to 2].*[*]**.d`.

Source: MySQL 8.4 manual, "JSON Path Syntax".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from kpipe.expressions.mysql.json.documents import MISSING, Invalid, parsed, written
from kpipe.expressions.short_cache import short_cache

__all__ = ["Leg", "found", "legs", "placed", "put", "removed", "single"]

#: Type and argument: `key` name, `place` index, `range` (first, last), `keys`, `items`, `deep`. An index is a pair: whether it
#: counts from the end, and the distance.
Leg = tuple[str, Any]

_PLACE = r"(?:last(?:\s*-\s*(?P<{0}back>\d{{1,9}}))?|(?P<{0}at>\d{{1,9}}))"
_LEG = re.compile(
    r"\s*(?:(?P<deep>\*\*)|\.\s*(?:(?P<keys>\*)|(?P<name>[^\W\d][\w$]*|\$[\w$]*)|(?P<quoted>\"(?:[^\"\\]|\\.)*\"))"
    rf"|\[\s*(?:(?P<items>\*)|(?P<first>{_PLACE.format('f')})(?:\s+to\s+(?P<second>{_PLACE.format('s')}))?)\s*\])",
)
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")


@short_cache(maxsize=1024)
def legs(path: str) -> tuple[Leg, ...]:
    """Parse a path into its steps.

    Raises:
        Invalid: it is not a valid path.
    """
    text = path.strip()
    if not text.startswith("$"):
        raise Invalid(f"invalid JSON path: {path[:40]}")
    made: list[Leg] = []
    position = 1
    while position < len(text):
        match = _LEG.match(text, position)
        if match is None:
            raise Invalid(f"invalid JSON path: {path[:40]}")
        made.append(_leg(match))
        position = match.end()
    if made and made[-1][0] == "deep":
        raise Invalid(f"invalid JSON path: {path[:40]} ends in **")
    return tuple(made)


def _leg(match: re.Match[str]) -> Leg:
    for simple in ("deep", "keys", "items"):
        if match[simple]:
            return simple, None
    if match["name"]:
        return "key", match["name"]
    if match["quoted"]:
        return "key", parsed(match["quoted"])
    first = _place(match["fat"], match["fback"])
    if match["second"]:
        return "range", (first, _place(match["sat"], match["sback"]))
    return "place", first


def _place(at: str | None, back: str | None) -> tuple[bool, int]:
    return (False, int(at)) if at is not None else (True, int(back or 0))


def single(path: tuple[Leg, ...]) -> bool:
    """Return whether a path leads to one value at most."""
    return all(kind in ("key", "place") for kind, _ in path)


def _at(place: tuple[bool, int], length: int) -> int:
    from_end, n = place
    return length - 1 - n if from_end else n


def placed(value: Any, path: tuple[Leg, ...], where: str = "$") -> Iterator[tuple[str, Any]]:
    """Yield the values at a path, each with its own path."""
    if not path:
        yield where, value
        return
    (kind, what), rest = path[0], path[1:]
    if kind == "deep":
        for at, below in _descendants(value, where):
            yield from placed(below, rest, at)
        return
    for step, below in _below(value, kind, what):
        yield from placed(below, rest, where + step)


def found(value: Any, path: tuple[Leg, ...]) -> list[Any]:
    """Return the values at a path."""
    return [item for _, item in placed(value, path)]


def _below(value: Any, kind: str, what: Any) -> Iterator[tuple[str, Any]]:
    if kind == "key":
        if isinstance(value, dict) and what in value:
            yield _named(what), value[what]
    elif kind == "keys":
        if isinstance(value, dict):
            yield from ((_named(name), item) for name, item in value.items())
    elif kind == "items":
        if isinstance(value, list):
            yield from ((f"[{at}]", item) for at, item in enumerate(value))
    else:
        items = value if isinstance(value, list) else [value]  # a value that is not an array counts as an array of one element
        first, second = (what, what) if kind == "place" else what
        for at in range(max(_at(first, len(items)), 0), min(_at(second, len(items)) + 1, len(items))):
            if kind == "range" or _at(first, len(items)) >= 0:
                yield (f"[{at}]" if isinstance(value, list) else ""), items[at]


def _named(name: str) -> str:
    return f".{name if _IDENTIFIER.fullmatch(name) else written(name)}"


def _descendants(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    yield where, value
    below = _below(value, "items" if isinstance(value, list) else "keys", None)
    for step, item in below:
        yield from _descendants(item, where + step)


def put(value: Any, path: tuple[Leg, ...], leaf: Callable[[Any], Any], new: Any = MISSING) -> Any:
    """Replace the value at a path by `leaf` of it, or insert `new` if it is missing. Return the document."""
    if not path:
        return leaf(value)
    (kind, what), rest = path[0], path[1:]
    create = not rest and new is not MISSING
    if kind == "key":
        if isinstance(value, dict) and what in value:
            value[what] = put(value[what], rest, leaf, new)
        elif isinstance(value, dict) and create:
            value[what] = new
        return value
    items = value if isinstance(value, list) else [value]
    at = _at(what, len(items))
    if 0 <= at < len(items):
        items[at] = put(items[at], rest, leaf, new)
        return value if isinstance(value, list) else items[0]
    if create:
        items.insert(0 if at < 0 else len(items), new)
        return items
    return value


def removed(value: Any, path: tuple[Leg, ...]) -> Any:
    """Remove the value at a path. Return the document."""

    def leaf(parent: Any) -> Any:
        kind, what = path[-1]
        if kind == "key" and isinstance(parent, dict):
            parent.pop(what, None)
        elif kind == "place" and isinstance(parent, list) and 0 <= _at(what, len(parent)) < len(parent):
            del parent[_at(what, len(parent))]
        return parent

    return put(value, path[:-1], leaf)
