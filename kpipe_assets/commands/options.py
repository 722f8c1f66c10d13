"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
from rich.console import Console

__all__ = ["as_json", "as_partitions", "emit", "pipeline_name", "wide"]

_F = TypeVar("_F", bound=Callable[..., Any])


def as_json(command: _F) -> _F:
    """The option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="JSON lines on stdout, nothing else there.")(command)


def pipeline_name(command: _F) -> _F:
    """The argument NAME."""
    return click.argument("name", metavar="NAME")(command)


def wide(stderr: bool = False) -> Console:
    """A console as wide as the terminal, or wide enough for our tables where there is none."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else 140)


def emit(value: Any) -> None:
    """One JSON line on stdout, at once."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def as_partitions(_: click.Context, __: click.Parameter, value: str | None) -> frozenset[int] | None:
    """`0,2-5` as numbers."""
    if value is None:
        return None
    numbers: set[int] = set()
    for part in value.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise click.BadParameter(f"{part!r} is not a partition or a range of them; write 0,2-5")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)
