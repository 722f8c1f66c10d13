"""Names of tables by topic: `into.table: "raw_{topic}"` gives each topic a table of its own."""

from __future__ import annotations

import re

__all__ = ["NAME", "OF_TOPIC", "fill", "is_template", "problem_of"]

#: A pipeline's or a table's name: a plain SQL identifier, which is safe in a path and in a statement.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
#: The part of a template that a topic's name replaces.
OF_TOPIC = "{topic}"


def is_template(table: str) -> bool:
    """Return whether a table's name is a template, so that each topic has a table of its own."""
    return OF_TOPIC in table


def fill(template: str, topic: str) -> str:
    """Return the name of a topic's table: characters that no name of a table has become `_`."""
    return template.replace(OF_TOPIC, re.sub(r"[^A-Za-z0-9_]", "_", topic))


def problem_of(table: str) -> str:
    """Return why a name cannot be a table's; empty if it can."""
    if not NAME.fullmatch(table):
        return f"{table!r} is not a table's name (a letter or _, then letters, digits, _; 63 at most)"
    if table.lower().startswith("kpipe_"):
        return f"{table!r}: names that begin with kpipe_ are reserved for the ledger"
    return ""
