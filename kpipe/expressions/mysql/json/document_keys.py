"""Compute SingleStore's JSON functions over documents, keypaths and values, all given as JSON texts.

None is SQL's NULL, as an argument and as a result; '1' and '0' are true and false. An invalid document gives NULL. Sources:
SingleStore's manual, "JSON Functions", a page for each, "JSON Keypaths" and "JSON_ARRAY_PACK".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from kpipe.expressions.mysql.json.documents import (
    MISSING,
    Invalid,
    double,
    edited,
    equal,
    kind,
    member,
    parsed,
    read,
    shared,
    whole,
    written,
)
from kpipe.expressions.short_cache import short_cache

__all__ = ["OPERATIONS", "is_mask", "length", "truth"]

Text = str | None


@short_cache(maxsize=1024)
def _keypath(text: str) -> list[str] | None:
    """Return the keys of a keypath, given as a JSON array of texts; None if one of them is NULL."""
    keys: list[str | None] = parsed(text)
    return None if None in keys else [str(key) for key in keys]


def truth(value: bool) -> str:
    """Return a boolean as '1' or '0'."""
    return "1" if value else "0"


def _at(document: Text, path: Text) -> Any:
    keys = _keypath(path or "[]")
    value = read(document, shared)
    return MISSING if keys is None or value is MISSING else member(value, keys)


def _get(document: Text, path: Text) -> Text:
    value = _at(document, path)
    return None if value is MISSING or value is None else written(value)


def _string(document: Text, path: Text) -> Text:
    value = _at(document, path)
    return None if value is MISSING or value is None else value if type(value) is str else written(value)


def _double(document: Text, path: Text) -> Text:
    value = _at(document, path)
    return None if value is MISSING or value is None else repr(double(value))


def _bigint(document: Text, path: Text) -> Text:
    value = _at(document, path)
    return None if value is MISSING or value is None else str(whole(value))


def _get_type(document: Text) -> Text:
    value = read(document)
    return None if value is MISSING else kind(value)


def _member_length(document: Text, path: Text) -> Text:
    value = _at(document, path)
    return None if value is MISSING else length(value)


def length(value: Any) -> str:
    """Return the number of elements or members of a value; a scalar has 1."""
    return str(len(value)) if isinstance(value, (list, dict)) else "1"


def _member_keys(document: Text, path: Text) -> Text:
    value = _at(document, path)
    return written(list(value)) if isinstance(value, dict) else None


def _set_key(document: Text, path: Text, new: Text) -> Text:
    value, keys, made = read(document), _keypath(path or "[]"), read(new)
    if not isinstance(value, (list, dict)) or not keys or made is MISSING:
        return None
    return written(edited(value, keys, lambda _: made))


def _delete_key(document: Text, path: Text) -> Text:
    value, keys = read(document), _keypath(path or "[]")
    if value is MISSING or not keys:
        return None
    return written(edited(value, keys, lambda _: MISSING))


def _splice(document: Text, start: Text, length: Text, new: Text) -> Text:
    value, made = read(document), read(new)
    if not isinstance(value, list) or start is None or length is None or made is MISSING:
        return None
    begin = int(start) if int(start) >= 0 else max(len(value) + int(start), 0)
    value[begin : begin + max(int(length), 0)] = made
    return written(value)


def _push(document: Text, new: Text) -> Text:
    value, made = read(document), read(new)
    return written([*value, made]) if isinstance(value, list) and made is not MISSING else None


def _array_contains(document: Text, wanted: Text) -> Text:
    """Compute JSON_ARRAY_CONTAINS. By the manual's examples, an invalid document contains nothing, and a non-array gives NULL."""
    value, sought = read(document), read(wanted)
    if document is None or (value is not MISSING and not isinstance(value, list)):
        return None
    return truth(value is not MISSING and sought is not MISSING and any(equal(item, sought) for item in value))


def _match_exists(document: Text, path: Text) -> Text:
    keys, value = _keypath(path or "[]"), read(document)
    if keys is None or value is MISSING:
        return None
    return truth(_matches(value, keys))


def _matches(value: Any, keys: list[str]) -> bool:
    """Yield the matches of a key: a member of an object, an index of an array, or a member of each of the array's elements."""
    if not keys:
        return True
    below = member(value, keys[:1])
    if below is not MISSING:
        return _matches(below, keys[1:])
    return isinstance(value, list) and any(isinstance(item, dict) and _matches(item, keys) for item in value)


def is_mask(text: str) -> bool:
    """Return whether a text is a mask: an object whose values are masks, or 1."""
    return _masks(read(text))


def _masks(value: Any) -> bool:
    return isinstance(value, dict) and all(_masks(item) or (not isinstance(item, dict) and _one(item)) for item in value.values())


def _one(item: Any) -> bool:
    return item is not None and written(item) == "1"


def _included(value: Any, mask: dict[str, Any]) -> Any:
    """Keep the members that a mask names, also in objects inside an array; MISSING for a scalar."""
    if isinstance(value, list):
        items = [_included(item, mask) for item in value]
        return [item for item in items if item is not MISSING]
    if not isinstance(value, dict):
        return MISSING
    named = {name: item for name, item in value.items() if name in mask}
    made = {name: _included(item, mask[name]) if isinstance(mask[name], dict) else item for name, item in named.items()}
    return {name: item for name, item in made.items() if item is not MISSING}


def _excluded(value: Any, mask: dict[str, Any]) -> Any:
    """Remove the members that a mask names with 1."""
    if isinstance(value, list):
        return [_excluded(item, mask) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {name: item for name, item in value.items() if name not in mask or isinstance(mask[name], dict)}
    return {name: _excluded(item, mask[name]) if name in mask else item for name, item in kept.items()}


def _masked(apply: Callable[[Any, dict[str, Any]], Any]) -> Callable[..., Text]:
    def operation(document: Text, mask: Text) -> Text:
        value = read(document)
        return written(apply(value, parsed(mask or "{}"))) if isinstance(value, dict) else None

    return operation


def _pack(document: Text, letter: Text) -> Text:
    value = read(document)
    if not isinstance(value, list):
        return None
    make: Callable[[Any], float] = double if letter in ("f", "d") else whole
    try:
        return struct.pack(f"<{len(value)}{letter}", *map(make, value)).hex()
    except (struct.error, OverflowError):
        raise Invalid("a number of the array is out of range for the type") from None


def _unpack(vector: Text, letter: Text) -> Text:
    if vector is None:
        return None
    content, size = bytes.fromhex(vector), struct.calcsize(f"<{letter}")
    if len(content) % size:
        raise Invalid(f"a vector has {len(content)} bytes: expected a multiple of {size}")
    digits = {"f": "%.9g", "d": "%.17g"}.get(letter or "", "%d")
    return f"[{','.join(digits % item for item in struct.unpack(f'<{len(content) // size}{letter}', content))}]"


OPERATIONS: dict[str, Callable[..., Text]] = {
    "get": _get, "string": _string, "double": _double, "bigint": _bigint, "get_type": _get_type, "member_length": _member_length,
    "member_keys": _member_keys, "set_key": _set_key, "delete_key": _delete_key, "splice": _splice, "push": _push,
    "array_contains": _array_contains, "match_exists": _match_exists, "pack": _pack, "unpack": _unpack,
    "include_mask": _masked(_included), "exclude_mask": _masked(_excluded),
}  # fmt: skip
