"""Names of tables by topic, and by a field of the record.

`into.table: "raw_{topic}"` gives each topic a table of its own, `into.table: "events_{field.type}"` each value of the field
`type`.
"""

from __future__ import annotations

import re

__all__ = ["NAME", "OF_FIELD", "OF_TOPIC", "field_of", "fill", "is_template", "of_value", "problem_of", "value_of"]

#: A pipeline's or a table's name: a plain SQL identifier, which is safe in a path and in a statement.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
#: The part of a template that a topic's name replaces.
OF_TOPIC = "{topic}"
#: The part of a template that the value of a record's field replaces.
OF_FIELD = re.compile(r"\{field\.([^{}]+)\}")
#: A value that may be a part of a table's name. No character is replaced, so that different values never share a name.
_VALUE = re.compile(r"[A-Za-z0-9_]+")


def is_template(table: str) -> bool:
    """Return whether a table's name is a template, so that each topic has a table of its own."""
    return OF_TOPIC in table


def fill(template: str, topic: str) -> str:
    """Return the name of a topic's table: characters that no name of a table has become `_`."""
    return template.replace(OF_TOPIC, re.sub(r"[^A-Za-z0-9_]", "_", topic))


def field_of(table: str) -> str | None:
    """Return the field whose value is a part of the tables' names; None if the name does not depend on records."""
    found = OF_FIELD.search(table)
    return found[1] if found is not None else None


def of_value(template: str, value: str) -> str:
    """Return the name of the table of a field's value, which `problem_of` must check."""
    return OF_FIELD.sub(lambda _: value, template)


def value_of(template: str, table: str) -> str | None:
    """Return the value whose table has that name; None if the template gives no such name."""
    prefix, _, suffix = OF_FIELD.sub("\0", template).partition("\0")
    if len(table) <= len(prefix) + len(suffix) or not (table.startswith(prefix) and table.endswith(suffix)):
        return None
    value = table[len(prefix) : len(table) - len(suffix)]
    return value if _VALUE.fullmatch(value) else None


def problem_of(table: str) -> str:
    """Return why a name cannot be a table's; empty if it can."""
    if not NAME.fullmatch(table):
        return f"{table!r} is not a table's name (a letter or _, then letters, digits, _; 63 at most)"
    if table.lower().startswith("kpipe_"):
        return f"{table!r}: names that begin with kpipe_ are reserved for the ledger"
    return ""
