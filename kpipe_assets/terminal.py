"""Print to the terminal. Control characters in data are escaped."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from kpipe.terminal import as_json, plain_lines

__all__ = ["Terminal", "echo", "emit", "unexpected"]


class Terminal(Console):
    """A console that writes no escape codes other than its own styles."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render, and escape each character that cannot be printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain_lines(segment.text), segment.style)


def echo(text: str, err: bool = False) -> None:
    """Print text with control characters escaped."""
    click.echo(plain_lines(text), err=err)


def unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected error, escaped: its message may contain a record."""
    echo("".join(traceback.format_exception(kind, error, trace)).rstrip(), err=True)
    sys.stderr.flush()


def emit(value: Any) -> None:
    """Write one JSON line to stdout and flush it."""
    sys.stdout.write(as_json(value) + "\n")
    sys.stdout.flush()
