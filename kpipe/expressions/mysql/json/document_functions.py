"""Compute MySQL's JSON functions: DuckDB calls `call` as `kpipe_json` (a text) and `kpipe_json_document` (JSON).

All arguments are texts: documents, paths, and values as JSON. None is SQL's NULL, as an argument and as a result; '1' and '0'
are true and false. An invalid document is an error. Source: MySQL 8.4 manual, "JSON Functions".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kpipe.expressions.mysql.json.document_keys import OPERATIONS as KEYED
from kpipe.expressions.mysql.json.document_keys import length, truth
from kpipe.expressions.mysql.json.document_paths import Leg, found, legs, placed, put, removed, single
from kpipe.expressions.mysql.json.documents import (
    MISSING,
    Invalid,
    Number,
    canonical,
    depth,
    double,
    equal,
    fixed,
    numeral,
    parsed,
    printed,
    read,
    shared,
    type_name,
    whole,
    written,
)
from kpipe.expressions.short_cache import short_cache

__all__ = ["NAMES", "call"]

#: Its name in DuckDB to its return type.
NAMES = {"kpipe_json": "VARCHAR", "kpipe_json_document": "JSON"}

Text = str | None


def call(name: str, args: list[Text]) -> Text:
    """Compute an operation.

    Raises:
        Invalid: an argument is not a valid document or path.
    """
    return _OPERATIONS[name](*args)


def _wildcards(path: tuple[Leg, ...]) -> None:
    if not single(path):
        raise Invalid("a path with * or a range is not allowed here")


def _extract(document: Text, *paths: Text) -> Text:
    if document is None or None in paths:
        return None
    value, ways = shared(document), [legs(path or "") for path in paths]
    items = [item for way in ways for item in found(value, way)]
    if len(ways) == 1 and single(ways[0]):
        return written(items[0]) if items else None
    return written(items) if items else None


def _unquote(text: Text) -> Text:
    if text is None or len(text) < 2 or not (text[0] == text[-1] == '"'):
        return text
    unquoted: str = parsed(text)
    return unquoted


def _extract_text(document: Text, path: Text) -> Text:
    return _unquote(_extract(document, path))


def _value(document: Text, path: Text) -> Text:
    extracted = _extract(document, path)
    return None if extracted == "null" else _unquote(extracted)


def _one(document: Text, path: Text) -> Any:
    """Return the value at a path to a single value, MISSING without one, or None for JSON's null."""
    way = legs(path or "")
    _wildcards(way)
    items = found(shared(document or ""), way)
    return items[0] if items else MISSING


def _length(document: Text, path: Text) -> Text:
    value = MISSING if document is None or path is None else _one(document, path)
    return None if value is MISSING else length(value)


def _key_names(document: Text, path: Text) -> Text:
    value = MISSING if document is None or path is None else _one(document, path)
    return written(list(value)) if isinstance(value, dict) else None


def _valid(text: Text) -> Text:
    return None if text is None else truth(read(text) is not MISSING)


def _contains(target: Text, candidate: Text, path: Text) -> Text:
    if target is None or candidate is None or path is None:
        return None
    value, sought = _one(target, path), parsed(candidate)
    return None if value is MISSING else truth(_holds(value, sought))


def _holds(target: Any, candidate: Any) -> bool:
    if isinstance(target, list):
        if isinstance(candidate, list):
            return all(any(_holds(item, wanted) for item in target) for wanted in candidate)
        return any(_holds(item, candidate) for item in target)
    if isinstance(target, dict) and isinstance(candidate, dict):
        return all(name in target and _holds(target[name], item) for name, item in candidate.items())
    return equal(target, candidate)


def _member_of(item: Text, document: Text) -> Text:
    """Compute MEMBER OF: whether an array contains the item, or another value equals it."""
    if item is None or document is None:
        return None
    value, wanted = shared(document), parsed(item)
    return truth(any(equal(part, wanted) for part in value) if isinstance(value, list) else equal(value, wanted))


def _contains_path(document: Text, how: Text, *paths: Text) -> Text:
    if document is None or how is None or None in paths:
        return None
    value = parsed(document)
    present = (bool(found(value, legs(path or ""))) for path in paths)
    return truth(any(present) if _which(how) == "one" else all(present))


def _exists(document: Text, path: Text) -> Text:
    value = read(document)
    return None if value is MISSING or path is None else truth(bool(found(value, legs(path))))


def _which(how: str) -> str:
    if how.lower() not in ("one", "all"):
        raise Invalid(f"expected one or all, found {how[:20]}")
    return how.lower()


def _overlaps(left: Text, right: Text) -> Text:
    if left is None or right is None:
        return None
    a, b = parsed(left), parsed(right)
    if isinstance(a, dict) and isinstance(b, dict):
        return truth(any(name in b and equal(item, b[name]) for name, item in a.items()))
    first, second = (item if isinstance(item, list) else [item] for item in (a, b))
    return truth(any(equal(x, y) for x in first for y in second))


def _merge_patch(*documents: Text) -> Text:
    merged: Any = MISSING  # unknown
    for index, text in enumerate(documents):
        patch = MISSING if text is None else parsed(text)
        if index == 0:
            merged = patch
        elif patch is MISSING or (isinstance(patch, dict) and merged is MISSING):
            merged = MISSING
        else:
            merged = _patched(merged, patch)
    return None if merged is MISSING else written(merged)


def _patched(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for name, item in patch.items():
        if item is None:
            made.pop(name, None)
        else:
            made[name] = _patched(made.get(name), item)
    return made


def _merge_preserve(*documents: Text) -> Text:
    if None in documents:
        return None
    values = [parsed(text or "") for text in documents]
    merged = values[0]
    for item in values[1:]:
        merged = _preserved(merged, item)
    return written(merged)


def _preserved(left: Any, right: Any) -> Any:
    if isinstance(left, dict) and isinstance(right, dict):
        return {**left, **{name: _preserved(left[name], item) if name in left else item for name, item in right.items()}}
    return [*(left if isinstance(left, list) else [left]), *(right if isinstance(right, list) else [right])]


def _each(change: Callable[[Any, tuple[Leg, ...], Any], Any]) -> Callable[..., Text]:
    """Return an operation that is applied to each pair of a path and a value, one after the other."""

    def rule(document: Text, *pairs: Text) -> Text:
        if document is None or None in pairs[::2]:
            return None
        value = parsed(document)
        for path, new in zip(pairs[::2], pairs[1::2], strict=True):
            way = legs(path or "")
            _wildcards(way)
            value = change(value, way, parsed(new or ""))
        return written(value)

    return rule


def _insert_at(value: Any, way: tuple[Leg, ...], new: Any) -> Any:
    if not way or way[-1][0] != "place":
        raise Invalid("the path of JSON_ARRAY_INSERT must end in an array index")

    def leaf(parent: Any) -> Any:
        if isinstance(parent, list):
            from_end, n = way[-1][1]
            parent.insert(max(len(parent) - 1 - n, 0) if from_end else n, new)
        return parent

    return put(value, way[:-1], leaf)


def _append(value: Any, way: tuple[Leg, ...], new: Any) -> Any:
    return put(value, way, lambda present: [*(present if isinstance(present, list) else [present]), new])


def _remove(document: Text, *paths: Text) -> Text:
    if document is None or None in paths:
        return None
    value = parsed(document)
    for path in paths:
        way = legs(path or "")
        _wildcards(way)
        if not way:
            raise Invalid("JSON_REMOVE cannot remove $, the whole document")
        value = removed(value, way)
    return written(value)


def _search(document: Text, how: Text, wanted: Text, escape: Text, *paths: Text) -> Text:
    if document is None or how is None or wanted is None or None in paths:
        return None
    value = parsed(document)
    places: dict[str, None] = {}
    for path in paths or ("$",):
        for where, item in placed(value, legs(path or "")):
            for at, below in placed(item, (("deep", None),), where):
                if type(below) is str and _like(below, wanted, escape or "\\"):
                    places[at] = None
    first = list(places)[: 1 if _which(how) == "one" else None]
    return None if not first else written(first[0] if len(first) == 1 else first)


@short_cache(maxsize=256)
def _signs(pattern: str, escape: str) -> tuple[tuple[str, bool], ...]:
    """Split a LIKE pattern into characters, each with whether it is a wildcard: an unescaped `%` or `_`."""
    made, position = [], 0
    while position < len(pattern):
        escaped = pattern[position] == escape and position + 1 < len(pattern)
        position += escaped
        made.append((pattern[position], not escaped and pattern[position] in "%_"))
        position += 1
    return tuple(made)


def _like(text: str, pattern: str, escape: str) -> bool:
    """Match a text to a LIKE pattern. Only the last `%` is ever retried, so that no record makes it slow."""
    signs = _signs(pattern, escape)
    position, sign, star, mark = 0, 0, -1, 0
    while position < len(text):
        if sign < len(signs) and signs[sign] == ("%", True):
            star, mark = sign, position
            sign += 1
        elif sign < len(signs) and (signs[sign] == ("_", True) or signs[sign] == (text[position], False)):
            position, sign = position + 1, sign + 1
        elif star >= 0:
            mark += 1
            position, sign = mark, star + 1
        else:
            return False
    return all(one == ("%", True) for one in signs[sign:])


def _object(*pairs: Text) -> Text:
    """Compute JSON_OBJECT from texts as keys and documents as values; the last of duplicate keys wins."""
    if None in pairs[::2]:
        raise Invalid("the key of a JSON object is NULL")
    return written({key: parsed(value or "") for key, value in zip(pairs[::2], pairs[1::2], strict=True)})


def _document(text: Text) -> Text:
    """Return a document without white space; NULL for an invalid document."""
    value = read(text)
    return None if value is MISSING else written(value)


def _number(document: Text) -> Text:
    value = read(document, shared)
    return None if value is MISSING else repr(double(value))


def _numeral(document: Text) -> Text:
    """Return a text that is the same for equal numbers. A text counts as its leading number, arrays and objects as 0."""
    value = read(document, shared)
    return None if value is MISSING else canonical(numeral(value))


def _fixed(document: Text, precision: Text, scale: Text) -> Text:
    value = read(document, shared)
    return None if value is MISSING else fixed(value, int(precision or 0), int(scale or 0))


def _integer(document: Text) -> Text:
    """Compute CAST(... AS SIGNED), which reads the leading digits of a text."""
    value = read(document, shared)
    if type(value) is str:
        digits = re.match(r"[ \t\n\r]*([+-]?[0-9]{1,400})", value)
        value = Number(digits[1].lstrip("+")) if digits else Number("0")
    return None if value is MISSING else str(whole(value))


_OPERATIONS: dict[str, Callable[..., Text]] = {
    **KEYED,
    "extract": _extract, "extract_text": _extract_text, "value": _value, "unquote": _unquote,
    "quote": lambda text: None if text is None else written(text), "length": _length, "keys": _key_names, "valid": _valid,
    "type": lambda text: None if text is None else type_name(parsed(text)),
    "depth": lambda text: None if text is None else str(depth(parsed(text))),
    "pretty": lambda text: None if text is None else printed(parsed(text)),
    "canonical": lambda text: None if text is None else canonical(parsed(text)),
    "contains": _contains, "member_of": _member_of,
    "contains_path": _contains_path, "exists": _exists, "overlaps": _overlaps, "search": _search,
    "merge_patch": _merge_patch, "merge_preserve": _merge_preserve, "remove": _remove,
    "set": _each(lambda value, way, new: put(value, way, lambda _: new, new)),
    "insert": _each(lambda value, way, new: put(value, way, lambda present: present, new)),
    "replace": _each(lambda value, way, new: put(value, way, lambda _: new)),
    "array_append": _each(_append), "array_insert": _each(_insert_at),
    "array": lambda *items: written([parsed(item or "") for item in items]), "object": _object,
    "document": _document,
    "parse": lambda text: None if text is None else written(parsed(text)), "number": _number, "integer": _integer,
    "numeral": _numeral, "fixed": _fixed,
}  # fmt: skip
