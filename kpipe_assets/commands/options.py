"""Options, tables and parsers that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kpipe.terminal import plain
from kpipe.topics import Part

__all__ = ["as_json", "as_partitions", "pipeline_name", "plain"]

_LAST_PARTITION, _MOST_PARTITIONS = 2**31 - 1, 1_000_000

_F = TypeVar("_F", bound=Callable[..., Any])


def as_json(command: _F) -> _F:
    """Add the option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print only JSON lines on stdout.")(command)


def pipeline_name(command: _F) -> _F:
    """Add the argument NAME."""
    return click.argument("name", metavar="NAME")(command)


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
        if int(last or first) > _LAST_PARTITION or int(last or first) - int(first) >= _MOST_PARTITIONS:
            raise click.BadParameter(f"expected partitions below 2^31, and at most {_MOST_PARTITIONS:,}, found {text!r}")
        parts.update(f"{topic}:{number}" if topic else number for number in range(int(first), int(last or first) + 1))
    return frozenset(parts)
