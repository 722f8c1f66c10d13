"""Compile JSON functions: SingleStore's, which take keys, and MySQL's, which take paths.

Sources: SingleStore's manual, "JSON Functions"; MySQL 8.4 manual, "JSON Functions".
"""

from __future__ import annotations

from collections.abc import Sequence

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.json.document_keys import is_mask
from kpipe.expressions.mysql.json.json_paths import asked, document, fragment, keypath, path
from kpipe.expressions.mysql.values import Value, integer, number, quoted, reading, text

__all__ = ["FUNCTIONS"]

#: Suffixes of the functions of vectors, and the letter of the type in Python's `struct`.
_ELEMENTS = {"": "f", "_F32": "f", "_F64": "d", "_I8": "b", "_I16": "h", "_I32": "i", "_I64": "q"}


# SingleStore: a keypath is a list of keys and indexes


def _extract(kind: str, operation: str) -> Function:
    def rule(value: Value, *keys: Value) -> Value:
        return asked(kind, operation, document(value), keypath(keys))

    return Function(rule, 1, None)


def _element(form: str, value: Value, null: str = "'null'") -> str:
    """Return a value as JSON: a text, a number, or a document, by the suffix of the function's name."""
    if form == "STRING":
        return fragment(text(value), null)
    if form == "DOUBLE":
        return fragment(number(value), null)
    return document(value)


def _set(form: str) -> Function:
    def rule(value: Value, *keys: Value) -> Value:
        return asked("json", "set_key", document(value), keypath(keys[:-1]), _element(form, keys[-1]))

    return Function(rule, 3, None)


def _push(form: str) -> Function:
    return Function(lambda value, new: asked("json", "push", document(value), _element(form, new)), 2)


def _contains(form: str) -> Function:
    return Function(lambda value, new: asked("bool", "array_contains", document(value), _element(form, new, "NULL")), 2)


def _splice(form: str) -> Function:
    def rule(value: Value, start: Value, length: Value, *items: Value) -> Value:
        made = " || ',' || ".join(_element(form, item) for item in items)
        places = [f"CAST({integer(place).sql} AS VARCHAR)" for place in (start, length)]
        return asked("json", "splice", document(value), *places, f"('[' || {made} || ']')" if items else "'[]'")

    return Function(rule, 3, None)


def _delete(value: Value, *keys: Value) -> Value:
    return asked("json", "delete_key", document(value), keypath(keys))


def _masked(operation: str) -> Function:
    """Compile JSON_INCLUDE_MASK and JSON_EXCLUDE_MASK; the mask must be a literal."""

    def rule(value: Value, mask: Value) -> Value:
        if mask.literal is None or not is_mask(mask.literal):
            raise Untranslated("invalid mask: expected a literal object of masks or 1", """write '{"a": 1, "b": {"c": 1}}'""")
        return asked("json", operation, document(value), quoted(mask.literal))

    return Function(rule, 2)


def _unpack(letter: str, vector: Value) -> Value:
    if vector.kind not in ("blob", "null"):
        raise Untranslated("JSON_ARRAY_UNPACK: expected a vector", "write JSON_ARRAY_UNPACK(JSON_ARRAY_PACK(array))")
    return asked("json", "unpack", f"hex({vector.sql})", f"'{letter}'")


def _pack(letter: str, value: Value) -> Value:
    return asked("blob", "pack", document(value), f"'{letter}'")


def _vectors() -> dict[str, Function]:
    made = {}
    for suffix, letter in _ELEMENTS.items():
        made[f"JSON_ARRAY_PACK{suffix}"] = Function(lambda value, letter=letter: _pack(letter, value), 1)
        made[f"JSON_ARRAY_UNPACK{suffix}"] = Function(lambda value, letter=letter: _unpack(letter, value), 1)
    return made


# Both: SingleStore's with keys, MySQL's with a path


def _either(kind: str, keyed: str, by_path: str) -> Function:
    """Choose SingleStore's function if keys or nothing follow, MySQL's if a path follows, which begins with `$`."""

    def rule(value: Value, *keys: Value) -> Value:
        if not keys:
            return asked(kind, keyed, document(value), "'[]'")
        if any(key.literal is None for key in keys):
            raise Untranslated("keys and paths must be literals", "write the name in quotes: 'a', or '$.a'")
        if str(keys[0].literal).startswith("$") and keys[0].kind == "text":
            if len(keys) > 1:
                raise Untranslated(f"expected only the path {keys[0].literal}", "write '$.a.b', or keys: 'a', 'b'")
            return asked(kind, by_path, document(value), path(keys[0], one=True))
        return asked(kind, keyed, document(value), keypath(keys))

    return Function(rule, 1, None)


# MySQL: a path is one text


def _at_paths(kind: str, operation: str, least: int = 1, one: bool = False) -> Function:
    def rule(value: Value, *paths: Value) -> Value:
        return asked(kind, operation, document(value), *[path(way, one) for way in paths])

    return Function(rule, least + 1, None)


def _changed(operation: str) -> Function:
    def rule(value: Value, *pairs: Value) -> Value:
        _even(pairs, "pairs of a path and a value")
        said = [path(item, one=True) if at % 2 == 0 else fragment(item) for at, item in enumerate(pairs)]
        if operation == "array_insert":
            _places(pairs[::2])
        return asked("json", operation, document(value), *said)

    return Function(rule, 3, None)


def _places(paths: Sequence[Value]) -> None:
    for way in paths:
        if way.literal is not None and not way.literal.rstrip().endswith("]"):
            raise Untranslated(f"{way.literal[:40]} does not end in an array index", "write '$.list[0]'")


def _even(items: Sequence[Value], what: str) -> None:
    if len(items) % 2:
        raise Untranslated(f"expected {what}: the last one is incomplete")


def _object(*pairs: Value) -> Value:
    _even(pairs, "pairs of a key and a value")
    return asked("json", "object", *[text(item).sql if at % 2 == 0 else fragment(item) for at, item in enumerate(pairs)])


def _array(*items: Value) -> Value:
    return asked("json", "array", *map(fragment, items))


def _to_json(value: Value) -> Value:
    return asked("json", "document", fragment(value))


def _unquote(value: Value) -> Value:
    return asked("text", "unquote", document(value))


def _quote(value: Value) -> Value:
    if value.kind not in ("text", "blob", "null", "json"):
        raise Untranslated("JSON_QUOTE: expected a text", "write TO_JSON(value) for any other type")
    return asked("text", "quote", text(value).sql)


def _valid(value: Value) -> Value:
    if value.kind in ("text", "blob", "json", "null"):
        return asked("bool", "valid", reading(value) if value.kind == "blob" else document(value))
    return Value(f"(CASE WHEN {value.sql} IS NOT NULL THEN false END)", "bool")


def _of_document(kind: str, operation: str) -> Function:
    return Function(lambda value: asked(kind, operation, document(value)), 1)


def _json_contains(target: Value, candidate: Value, way: Value | None = None) -> Value:
    return asked("bool", "contains", document(target), document(candidate), "'$'" if way is None else path(way, one=True))


def _contains_path(value: Value, how: Value, *paths: Value) -> Value:
    return asked("bool", "contains_path", document(value), _which(how), *map(path, paths))


def _which(how: Value) -> str:
    if how.literal is not None and how.literal.lower() not in ("one", "all"):
        raise Untranslated(f"expected 'one' or 'all', found '{how.literal[:20]}'")
    return text(how).sql


def _search(value: Value, how: Value, wanted: Value, escape: Value | None = None, *paths: Value) -> Value:
    mark = "'\\'" if escape is None else f"coalesce({text(escape).sql}, '\\')"
    return asked("json", "search", document(value), _which(how), text(wanted).sql, mark, *map(path, paths))


def _remove(value: Value, *paths: Value) -> Value:
    if any(way.literal is not None and way.literal.strip() == "$" for way in paths):
        raise Untranslated("JSON_REMOVE cannot remove $, the whole document", "write NULL, or the path of a part")
    return asked("json", "remove", document(value), *[path(way, one=True) for way in paths])


def _exists(value: Value, way: Value) -> Value:
    """Compile JSON_EXISTS of MariaDB: NULL for an invalid document."""
    return asked("bool", "exists", document(value), path(way))


def _merged(operation: str) -> Function:
    return Function(lambda *values: asked("json", operation, *map(document, values)), 2, None)


FUNCTIONS: dict[str, Function] = {
    "JSON_EXTRACT_STRING": _extract("text", "string"),
    "JSON_EXTRACT_BIGINT": _extract("int", "bigint"),
    "JSON_EXTRACT_DOUBLE": _extract("double", "double"),
    "JSON_EXTRACT_JSON": _extract("json", "get"),
    **{f"JSON_SET_{form}": _set(form) for form in ("STRING", "DOUBLE", "JSON")},
    **{f"JSON_ARRAY_PUSH_{form}": _push(form) for form in ("STRING", "DOUBLE", "JSON")},
    **{f"JSON_ARRAY_CONTAINS_{form}": _contains(form) for form in ("STRING", "DOUBLE", "JSON")},
    **{f"JSON_SPLICE_{form}": _splice(form) for form in ("STRING", "DOUBLE", "JSON")},
    "JSON_DELETE_KEY": Function(_delete, 2, None),
    "JSON_GET_TYPE": _of_document("text", "get_type"),
    "JSON_MATCH_ANY_EXISTS": _extract("bool", "match_exists"),
    "JSON_BUILD_OBJECT": Function(_object, 0, None),
    "JSON_BUILD_ARRAY": Function(_array, 0, None),
    "JSON_INCLUDE_MASK": _masked("include_mask"),
    "JSON_EXCLUDE_MASK": _masked("exclude_mask"),
    "TO_JSON": Function(_to_json, 1),
    **_vectors(),
    "JSON_LENGTH": _either("int", "member_length", "length"),
    "JSON_KEYS": _either("json", "member_keys", "keys"),
    "JSON_EXTRACT": _at_paths("json", "extract"),
    "JSON_VALUE": Function(lambda value, way: asked("text", "value", document(value), path(way, one=True)), 2),
    "JSON_EXISTS": Function(_exists, 2),
    "JSON_UNQUOTE": Function(_unquote, 1),
    "JSON_QUOTE": Function(_quote, 1),
    "JSON_VALID": Function(_valid, 1),
    "JSON_TYPE": _of_document("text", "type"),
    "JSON_DEPTH": _of_document("int", "depth"),
    "JSON_PRETTY": _of_document("text", "pretty"),
    "JSON_CONTAINS": Function(_json_contains, 2, 3),
    "JSON_CONTAINS_PATH": Function(_contains_path, 3, None),
    "JSON_OVERLAPS": Function(lambda a, b: asked("bool", "overlaps", document(a), document(b)), 2),
    "MEMBER OF": Function(lambda item, value: asked("bool", "member_of", fragment(item, "NULL"), document(value)), 2),
    "JSON_SEARCH": Function(_search, 3, None),
    "JSON_ARRAY": Function(_array, 0, None),
    "JSON_OBJECT": Function(_object, 0, None),
    "JSON_MERGE_PATCH": _merged("merge_patch"),
    **dict.fromkeys(("JSON_MERGE_PRESERVE", "JSON_MERGE"), _merged("merge_preserve")),
    "JSON_SET": _changed("set"),
    "JSON_INSERT": _changed("insert"),
    "JSON_REPLACE": _changed("replace"),
    "JSON_ARRAY_APPEND": _changed("array_append"),
    "JSON_ARRAY_INSERT": _changed("array_insert"),
    "JSON_REMOVE": Function(_remove, 2, None),
}
