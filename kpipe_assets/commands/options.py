"""Options that several commands share, and how their values are read."""

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
    """The option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="JSON lines on stdout, nothing else there.")(command)


def pipeline_name(command: _F) -> _F:
    """The argument NAME."""
    return click.argument("name", metavar="NAME")(command)


def wide(stderr: bool = False) -> Terminal:
    """A console as wide as the terminal, or wide enough for our tables where there is none."""
    stream = sys.stderr if stderr else sys.stdout
    return Terminal(stderr=stderr, highlight=False, width=None if stream.isatty() else 140)


def listing(*titles: str) -> Table:
    """An empty table as all commands print them; a title that ends in `>` is that of numbers, which stand to the right."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(title.rstrip(">"), justify="right" if title.endswith(">") else "left", no_wrap=title.endswith(">"))
    return table


def as_partitions(_: click.Context, __: click.Parameter, value: str | None) -> frozenset[Part] | None:
    """`0,2-5` as numbers; `web:0,web:2-5` as partitions of that topic."""
    if value is None:
        return None
    found: set[Part] = set()
    for text in value.split(","):
        topic, colon, numbers = text.strip().rpartition(":")
        first, dash, last = numbers.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)) or (colon and not topic):
            raise click.BadParameter(f"{text!r} is not a partition or a range of them; write 0,2-5, or TOPIC:0,TOPIC:2-5")
        found.update(f"{topic}:{number}" if topic else number for number in range(int(first), int(last or first) + 1))
    return frozenset(found)
