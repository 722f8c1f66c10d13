"""Generate the page of functions, from the lists of those that are compiled and those that are rejected."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from kpipe.expressions.mysql.function_list import SPECIAL, known
from kpipe.expressions.mysql.refused.functions import REFUSED
from website.reference.markdown import sentence, table
from website.reference.server_differences import server_differences

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
_FOREIGN = re.compile("it is (?:not )?an? (?:function|operator) of ")
_OPERATORS = {"MEMBER OF"}  # compiled as a call, written between its operands


def arguments(least: float, most: float) -> str:
    """Return how many arguments a function takes."""
    return str(least) if least == most else f"{least} or more" if most == math.inf else f"{least} to {most}"


def listed(names: Iterable[str]) -> str:
    """Return names in the order of the alphabet."""
    return ", ".join(f"`{name}`" for name in sorted(names))


def functions() -> str:
    """Return the page.

    Raises:
        LookupError: a call with a syntax of its own is not described.
    """
    if wrong := SYNTAX.keys() ^ set(SPECIAL):
        raise LookupError(f"website/reference/functions.py: SYNTAX and SPECIAL differ: {', '.join(sorted(wrong))}")
    taken: dict[tuple[float, float], list[str]] = {}
    for name, item in sorted(known().items()):
        if name not in _OPERATORS:
            taken.setdefault((item.least, math.inf if item.most is None else item.most), []).append(name)
    groups: dict[tuple[str, str], list[str]] = {}
    for name, reason in REFUSED.items():
        groups.setdefault(reason, []).append(name)
    refused = [(listed(names), why, instead) for (why, instead), names in sorted(groups.items(), key=lambda group: min(group[1]))]
    foreign = [(names, instead.removeprefix("write ")) for names, why, instead in refused if _FOREIGN.match(why)]
    others = [(names, sentence(why), sentence(instead)) for names, why, instead in refused if not _FOREIGN.match(why)]
    return "\n".join(
        [
            "# Functions\n",
            "Look up a function of MySQL or SingleStore that [statements](statements.md#expressions) take, or what to write"
            " instead of\na rejected function. Each function has MySQL's meaning; tests compare it with a MySQL and a"
            " MariaDB server,\nwhich [differ](#where-mysql-and-mariadb-differ) in some cases.\n",
            "Definitions in YAML take DuckDB's SQL instead, or MySQL's after `mysql:`: see [expressions](expressions.md).\n",
            "## Functions that are taken\n",
            table(
                ("arguments", "functions"),
                [(arguments(*bounds), listed(names)) for bounds, names in sorted(taken.items())],
            ),
            "With a syntax of their own: " + ", ".join(f"`{text}`" for _, text in sorted(SYNTAX.items())) + ".\n",
            "## Functions of other databases\n",
            "They are rejected.\n",
            table(("function", "write instead"), foreign),
            "## Functions that are rejected\n",
            table(("function", "reason", "instead"), others),
            server_differences(),
        ]
    )
