"""Find a list in a JSON document, and return its items as they are written: numbers keep all digits."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["items", "member", "parsed"]

_SPACE = re.compile(r"[ \t\r\n]*")
_MOST_DIGITS = 4_000  # Python converts 4,300; the decoder of records decides about longer numbers


def _whole(text: str) -> int | str:
    return int(text) if len(text) <= _MOST_DIGITS else text


_DECODER = json.JSONDecoder(parse_int=_whole)


def parsed(text: str) -> Any:
    """Parse a document; integers of very many digits are their text.

    Raises:
        ValueError: it is not JSON.
    """
    if text.startswith("\ufeff"):
        msg = "a byte order mark"
        raise ValueError(msg)
    return _DECODER.decode(text)


def items(text: str, path: str) -> list[tuple[str, Any]]:
    """Return text and value of each item of the list.

    Args:
        text: the document, which is valid JSON.
        path: members that lead to the list, divided by dots (`member`); empty: the document is the list.

    Raises:
        ValueError: there is no list, or an item is not an object; the message names what was found.
    """
    at = _skip(text, 0)
    rest = path
    while rest:
        name, at = _value_of(text, at, rest, path)
        rest = rest[len(name) + 1 :]
    if text[at : at + 1] != "[":
        msg = f"expected a list{f' in {path}' if path else ''}, found {text[at : at + 1]!r}"
        raise ValueError(msg)
    found: list[tuple[str, Any]] = []
    at = _skip(text, at + 1)
    while text[at] != "]":
        value, end = _DECODER.raw_decode(text, at)
        if not isinstance(value, dict):
            msg = f"expected objects in the list, found {type(value).__name__}"
            raise ValueError(msg)
        # A line break inside of a string is escaped, so others are space.
        found.append((text[at:end].replace("\r", " ").replace("\n", " "), value))
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return found


def member(document: Any, path: str) -> Any:
    """Return the value that members lead to; None: it does not exist.

    Names may contain dots, such as `@odata.nextLink`: each step takes the longest name that exists.
    """
    while path:
        own = document if isinstance(document, dict) else {}
        name = next((name for name in _names(path) if name in own), None)
        if name is None:
            return None
        document, path = own[name], path[len(name) + 1 :]
    return document


def _names(path: str) -> list[str]:
    """Return the names with which a path may begin, the longest first."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _value_of(text: str, at: int, rest: str, path: str) -> tuple[str, int]:
    """Return the member with which the rest of a path begins, and where its value begins."""
    names, found = _names(rest), dict[str, int]()
    if text[at : at + 1] == "{":
        at = _skip(text, at + 1)
        while text[at] != "}":
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
            if key in names:
                if key in found:
                    msg = f"expected one member {key}, found two"
                    raise ValueError(msg)
                found[key] = at
            at = _skip(text, _DECODER.raw_decode(text, at)[1])
            at = _skip(text, at + 1) if text[at] == "," else at
    for name in names:
        if name in found:
            return name, found[name]
    msg = f"expected a list in {path}, found no member {rest}"
    raise ValueError(msg)
