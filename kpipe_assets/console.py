"""A console of Rich, for tables and progress. Commands import it when they print one: it takes as long as DuckDB."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from kpipe.terminal import plain_lines

__all__ = ["Listing", "Terminal", "listing", "wide"]


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


class Listing(Table):
    """A table whose cells are shown as they are: names of files and tables may contain Rich's markup."""

    def add_row(self, *renderables: RenderableType | None, **options: Any) -> None:
        """Add a row; see Rich."""
        super().add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in renderables), **options)


def listing(*titles: str) -> Listing:
    """Return an empty table in the style of all commands. Columns whose title ends in `>` are right-aligned."""
    table = Listing(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(Text(title.rstrip(">")), justify="right" if title.endswith(">") else "left", no_wrap=title.endswith(">"))
    return table
