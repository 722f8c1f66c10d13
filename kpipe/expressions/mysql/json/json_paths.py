"""Compile access to JSON members: SingleStore's `::`, `::$` and `::%`, MySQL's `->` and `->>`, and paths as arguments.

Sources: SingleStore's manual, "Accessing Fields in a JSON Object" and "JSON Keypaths"; MySQL 8.4 manual, "Functions That
Search JSON Values". documents.py and its neighbours compute the results.
"""

from __future__ import annotations

import json as notation
from collections.abc import Sequence

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.json.document_paths import legs, single
from kpipe.expressions.mysql.json.documents import Invalid
from kpipe.expressions.mysql.values import Value, quoted, text

__all__ = ["arrow", "asked", "document", "fragment", "keypath", "member", "path", "plain_member", "scalar"]

_FORMS = {"": ("get", "json"), "$": ("string", "text"), "%": ("double", "double")}


def asked(kind: str, operation: str, *args: str) -> Value:
    """Return the SQL that calls an operation of document_functions.py, as a value of that type."""
    name = "kpipe_json_document" if kind == "json" else "kpipe_json"
    made = f"{name}({quoted(operation)}, CAST([{', '.join(args)}] AS VARCHAR[]))"
    match kind:
        case "int":
            return Value(f"CAST({made} AS BIGINT)", kind)
        case "double":
            return Value(f"CAST({made} AS DOUBLE)", kind)
        case "bool":
            return Value(f"({made} = '1')", kind)
        case "blob":
            return Value(f"unhex({made})", kind)
    return Value(made, kind)


def document(value: Value) -> str:
    """Return the SQL of an argument that is a document."""
    return f"CAST({value.sql} AS VARCHAR)" if value.kind == "json" else text(value).sql


def fragment(value: Value, null: str = "'null'") -> str:
    """Return the SQL of a value as JSON: a text becomes a JSON string, NULL becomes the argument `null`."""
    match value.kind:
        case "json":
            said = document(value)
        case "bool":
            said = f"CAST({value.sql} AS VARCHAR)"
        case "int" | "decimal" | "double":
            said = text(value).sql
        case _:
            said = f"CAST(to_json({text(value).sql}) AS VARCHAR)"
    return f"coalesce({said}, {null})" if null != "NULL" else said


def keypath(keys: Sequence[Value]) -> str:
    """Return the SQL of a keypath: a JSON array of texts.

    Raises:
        Untranslated: a key is written like a path of MySQL's.
    """
    for key in keys:
        if key.kind == "text" and key.literal is not None and key.literal.startswith(("$.", "$[")):
            raise Untranslated(
                f"expected the name of one member, found the path {key.literal[:40]}",
                "write each key as an argument: (value, 'a', 'b', 0); or MySQL's value->>'$.a.b[0]'",
            )
    if all(key.literal is not None and key.kind in ("text", "int") for key in keys):
        return quoted(notation.dumps([key.literal for key in keys], ensure_ascii=False))
    return f"CAST(to_json([{', '.join(text(key).sql for key in keys)}]) AS VARCHAR)"


def path(value: Value, one: bool = False) -> str:
    """Return the SQL of a MySQL path.

    Args:
        value: the argument.
        one: whether it must lead to one value.

    Raises:
        Untranslated: it is an invalid literal, or has a wildcard where that is not allowed.
    """
    if value.literal is not None:
        try:
            way = legs(value.literal)
        except Invalid as error:
            raise Untranslated(str(error), "write '$.member.other[0]', other names in quotes: '$.\"a-b\"'") from None
        if one and not single(way):
            raise Untranslated(f"the path {value.literal[:40]} has a * or a range", "write a path to one value")
    return text(value).sql


def member(value: Value, names: Sequence[str], form: str) -> Value:
    """Return a member of an object or an element of an array, as JSON (``), text (`$`) or number (`%`)."""
    operation, kind = _FORMS[form]
    return asked(kind, operation, document(value), quoted(notation.dumps(list(names), ensure_ascii=False)))


def plain_member(value: Value, names: Sequence[str], form: str) -> Value:
    """Return the same by DuckDB's own functions: NULL for an invalid document; digits are indexes of arrays only."""
    quotes = [f"[{name}]" if name.isdigit() else '."' + name.replace("\\", "\\\\").replace('"', '\\"') + '"' for name in names]
    way = quoted("$" + "".join(quotes))
    said = f"CASE WHEN json_valid({document(value)}) THEN {document(value)} END"
    if form == "":
        return Value(f"json_extract({said}, {way})", "json")
    found = f"json_extract_string({said}, {way})"
    return Value(found, "text") if form == "$" else Value(f"TRY_CAST({found} AS DOUBLE)", "double")


def arrow(value: Value, way: str, as_text: bool) -> Value:
    """Return the value at a MySQL path, as JSON or as text.

    Raises:
        Untranslated: it is not a valid path.
    """
    said = path(Value(quoted(way), "text", literal=way))
    return asked("text" if as_text else "json", "extract_text" if as_text else "extract", document(value), said)


def scalar(document: Value) -> Value:
    """Return a JSON value as the text of a variable: without quotes, `true` and `false` as 1 and 0, others unchanged.

    SingleStore's manual, "Extracting and Converting JSON Values".
    """
    sql = document.sql
    truth = f"(CASE CAST({sql} AS VARCHAR) WHEN 'true' THEN '1' ELSE '0' END)"
    kinds = f"WHEN 'VARCHAR' THEN json_extract_string({sql}, '$') WHEN 'BOOLEAN' THEN {truth} WHEN 'NULL' THEN NULL"
    return Value(f"(CASE json_type({sql}) {kinds} ELSE CAST({sql} AS VARCHAR) END)", "text")
