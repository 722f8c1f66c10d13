"""Options, tables and parsers that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
from rich.table import Table

from kpipe.terminal import plain
from kpipe.topics import Part
from kpipe_assets.terminal import Terminal

__all__ = ["as_json", "as_partitions", "listing", "pipeline_name", "plain", "wide"]

_F = TypeVar("_F", bound=Callable[..., Any])


def as_json(command: _F) -> _F:
    """Add the option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print only JSON lines on stdout.")(command)


def pipeline_name(command: _F) -> _F:
    """Add the argument NAME."""
    return click.argument("name", metavar="NAME")(command)


def wide(stderr: bool = False) -> Terminal:
    """Return a console with the terminal's width, or 140 columns if the output is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Terminal(stderr=stderr, highlight=False, width=None if stream.isatty() else 140)


def listing(*titles: str) -> Table:
    """Return an empty table in the style of all commands. Columns whose title ends in `>` are right-aligned."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(title.rstrip(">"), justify="right" if title.endswith(">") else "left", no_wrap=title.endswith(">"))
    return table


def as_partitions(_: click.Context, __: click.Parameter, value: str | None) -> frozenset[Part] | None:
    """Parse `0,2-5` to numbers, and `web:0,web:2-5` to partitions of that topic."""
    if value is None:
        return None
    parts: set[Part] = set()
    for text in value.split(","):
        topic, colon, numbers = text.strip().rpartition(":")
        first, dash, last = numbers.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)) or (colon and not topic):
            raise click.BadParameter(f"expected partitions as 0,2-5 or TOPIC:0,TOPIC:2-5, found {text!r}")
        parts.update(f"{topic}:{number}" if topic else number for number in range(int(first), int(last or first) + 1))
    return frozenset(parts)
