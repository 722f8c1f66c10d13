"""Write tables of Markdown, and read Google-style docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

__all__ = ["attributes", "cell", "sentence", "summary", "table"]

_ATTRIBUTE = re.compile(r"^    (\w+(?:, \w+)*): (.+(?:\n {8,}.+)*)", re.MULTILINE)


def cell(text: str) -> str:
    """Return a text as one cell: one line, with `|` escaped."""
    return " ".join(text.split()).replace("|", "\\|")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [titles, ["---"] * len(titles), *[[cell(text) for text in row] for row in rows]]
    return "\n".join("|" + "|".join(line) + "|" if line[0] == "---" else f"| {' | '.join(line)} |" for line in lines) + "\n"


def sentence(text: str) -> str:
    """Return a text that begins with a capital letter, unless with code, and ends with one full stop."""
    text = " ".join(text.split())
    text = text if re.match(r"kpipe\b|[\w.]*[._(=-]", text) else text[:1].upper() + text[1:]
    return text if text.endswith((".", ":", "?")) else f"{text}."


def summary(item: type) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join((inspect.getdoc(item) or "").partition("\n\n")[0].split())


def attributes(item: type) -> dict[str, str]:
    """Return the attributes of a class and of its bases, by name, from the `Attributes:` of their docstrings."""
    found: dict[str, str] = {}
    for base in reversed(item.__mro__):
        part = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        for names, text in _ATTRIBUTE.findall(part):
            found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return found
