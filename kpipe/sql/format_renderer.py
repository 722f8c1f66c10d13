"""Print the clauses of a format: FORMAT, its options, and its list of columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kpipe.definition.json_path import parse_path, write_path
from kpipe.expressions.quoting import quoted, quoted_name

__all__ = ["format_clauses"]

_FIELDS = (("delimiter", "TERMINATED BY"), ("quote", "ENCLOSED BY"), ("escape", "ESCAPED BY"))
_LINES = (("line_end", "TERMINATED BY"), ("line_start", "STARTING BY"))


def format_clauses(fields: Mapping[str, Any], key: str) -> Iterator[str]:
    """Yield the clauses of a format.

    Args:
        fields: the format, as in YAML.
        key: text behind the type: that of a key's format, or empty.
    """
    yield f"FORMAT {fields.get('type', 'json').upper()}{key}"
    for clause, options in (("FIELDS", _FIELDS), ("LINES", _LINES)):
        parts = [f"{words} {quoted(fields[field])}" for field, words in options if field in fields]
        if parts:
            yield f"{clause} {' '.join(parts)}"
    if "skip_lines" in fields:
        yield f"IGNORE {fields['skip_lines']} LINES"
    if "null" in fields:
        yield f"NULL DEFINED BY {quoted(fields['null'])}" + (" OPTIONALLY ENCLOSED" if fields.get("null_quoted") else "")
    if "registry" in fields:
        yield f"SCHEMA REGISTRY {quoted(fields['registry'])}"
    if "schema" in fields:
        yield f"SCHEMA {quoted(fields['schema'])}"
    for field in ("descriptors", "message"):
        if field in fields:
            yield f"{field.upper()} {quoted(fields[field])}"
    if fields.get("validate"):
        yield "VALIDATE"
    if "mapping" in fields:
        yield "(\n    " + ",\n    ".join(_mapped(name, value) for name, value in fields["mapping"].items()) + "\n)"
    if "fields" in fields:
        yield f"({', '.join(map(_column, fields['fields']))})"


def _mapped(name: str, value: str | Mapping[str, Any]) -> str:
    path = value if isinstance(value, str) else value["path"]
    text = f"{_column(name)} <- {write_path(parse_path(path))}"
    return text if isinstance(value, str) else f"{text} DEFAULT {_literal(value['default'])}"


def _column(name: str) -> str:
    return name if name.startswith("@") else quoted_name(name)


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    return {None: "NULL", True: "TRUE", False: "FALSE"}[value] if value is None or isinstance(value, bool) else repr(value)
