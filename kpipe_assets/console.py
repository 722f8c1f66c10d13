"""A console of Rich, for tables and progress. Commands import it when they print one: it takes as long as DuckDB."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from kpipe.terminal import plain_lines

__all__ = ["Terminal", "listing", "wide"]


class Terminal(Console):
    """A console that writes no escape codes other than its own styles."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render, and escape each character that cannot be printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain_lines(segment.text), segment.style)


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
