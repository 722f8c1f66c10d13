"""Generate the page of functions, from the lists of those that are compiled and those that are rejected."""

from __future__ import annotations

from kpipe.expressions.mysql.function_list import SPECIAL, known
from kpipe.expressions.mysql.refused.functions import REFUSED
from website.reference.markdown import sentence, table

__all__ = ["functions"]

#: How calls with a syntax of their own are written.
SYNTAX = {
    "CAST": "CAST(value AS type)",
    "CONVERT": "CONVERT(value, type), CONVERT(value USING utf8mb4)",
    "DUCKDB": "DUCKDB('expression of DuckDB')",
    "EXTRACT": "EXTRACT(unit FROM value)",
    "GET_KAFKA_PIPELINE_PROP": "GET_KAFKA_PIPELINE_PROP('name')",
    "TRIM": "TRIM([BOTH | LEADING | TRAILING] [text] FROM value)",
    "VALUES": "VALUES(column)",
}
_OPERATORS = {"MEMBER OF"}  # compiled as a call, written between its operands


def arguments(least: int, most: int | None) -> str:
    """Return how many arguments a function takes."""
    return str(least) if least == most else f"{least} or more" if most is None else f"{least} to {most}"


def functions() -> str:
    """Return the page.

    Raises:
        LookupError: a call with a syntax of its own is not described.
    """
    if wrong := SYNTAX.keys() ^ set(SPECIAL):
        raise LookupError(f"website/reference/functions.py: SYNTAX and SPECIAL differ: {', '.join(sorted(wrong))}")
    taken = {name: arguments(item.least, item.most) for name, item in known().items() if name not in _OPERATORS}
    taken |= {name: f"`{text}`" for name, text in SYNTAX.items()}
    groups: dict[tuple[str, str], list[str]] = {}
    for name, reason in REFUSED.items():
        groups.setdefault(reason, []).append(name)
    rejected = [
        (", ".join(f"`{name}`" for name in sorted(names)), sentence(why), sentence(instead))
        for (why, instead), names in sorted(groups.items(), key=lambda group: min(group[1]))
    ]
    return "\n".join(
        [
            "# Functions\n",
            "Look up a function of MySQL or SingleStore that [statements](statements.md#expressions) take, or what to write"
            " instead of\na rejected function. Each function has MySQL's meaning; tests compare it with a MariaDB"
            " server.\n",
            "Definitions in YAML take DuckDB's SQL instead, or MySQL's after `mysql:`: see [expressions](expressions.md).\n",
            "## Functions that are taken\n",
            table(("function", "arguments"), [(f"`{name}`", taken[name]) for name in sorted(taken)]),
            "## Functions that are rejected\n",
            table(("function", "reason", "instead"), rejected),
        ]
    )
