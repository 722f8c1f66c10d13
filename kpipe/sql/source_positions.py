"""Record the positions of a definition's fields in a statement, so that any error about a field shows its text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from unicodedata import combining, east_asian_width

from kpipe.errors import InvalidStatement, KpipeError
from kpipe.expressions.tokens import words
from kpipe.sql.masking import masked

__all__ = ["Places", "Spans", "pointed", "pointing"]

#: Path of a field in the definition to position and length of its text.
Spans = Mapping[tuple[str, ...], tuple[int, int]]

# Finds the subject in a message if the error does not name it.
_NAMED = re.compile(r"\b(?:function|type|column) (\w+) does not (?:exist|take)|\bhas no column (\w+)$")
_LONGEST = 110  # characters of a line; longer lines are cut


@dataclass(frozen=True)
class Places:
    """Positions of the fields of a statement's definition.

    Attributes:
        text: all statements that were parsed together.
        spans: positions of the fields that clauses set. `("options",)` is the clause that may set any field.
        file: name of the file; empty: no file.
    """

    text: str
    spans: Spans
    file: str = ""

    def moved(self, text: str, start: int, file: str) -> Places:
        """Return the positions for a text in which the statement begins at `start`."""
        return Places(text, {path: (at + start, length) for path, (at, length) in self.spans.items()}, file)

    def pointed(self, error: KpipeError, pipeline: str = "") -> InvalidStatement | None:
        """Return the error with line, column and a caret; None if no clause sets its field.

        Args:
            error: about a field of the definition (`KpipeError.about`).
            pipeline: its name, which is removed from the message.
        """
        path = error.field
        known = [path[:end] for end in range(len(path), 0, -1)] + [("options",)]
        known += [part for part in self.spans if part[:1] == path[:1]] + [("name",)]
        found = next((self.spans[part] for part in known if part in self.spans), None) if path else None
        if found is None:
            return None
        named = _NAMED.search(error.what)
        at, length = _word(self.text, *found, error.word or (named[1] or named[2] if named else ""))
        what = error.what.removeprefix(f"pipeline {pipeline}: ")
        return pointed(self.text, at, length, self.file, what, error.hint)


@contextmanager
def pointing(places: Places | None, pipeline: str = "") -> Iterator[None]:
    """Convert errors about a field of the definition to errors at its position in the statement.

    Raises:
        InvalidStatement: instead of an error about such a field.
    """
    try:
        yield
    except KpipeError as error:
        found = places.pointed(error, pipeline) if places is not None else None
        if found is None:
            raise
        raise found from error


def pointed(text: str, place: int, length: int, file: str, what: str, hint: str) -> InvalidStatement:
    """Return the error with the line, in which secrets are masked, and a caret under the position."""
    line = text.count("\n", 0, place) + 1
    first = text.rfind("\n", 0, place) + 1
    last = text.find("\n", first)
    shown = masked(text)[first : last if last >= 0 else len(text)]
    column = place - first
    marks = "^" * max(1, min(length, len(shown) - column))
    if len(shown) > _LONGEST:  # a long line is cut around the position
        cut = max(0, column - 50)
        shown, column = ("…" if cut else "") + shown[cut : cut + _LONGEST - 2], column - cut + (1 if cut else 0)
        marks = marks[: max(1, len(shown) - column)]
    shown = "".join(sign if sign.isprintable() or sign == "\t" else "\N{REPLACEMENT CHARACTER}" for sign in shown)
    before = "".join("\t" if sign == "\t" else " " * _width(sign) for sign in shown[:column])
    where = f"{file}:{line}:{place - first + 1}" if file else f"line {line}, column {place - first + 1}"
    return InvalidStatement(f"{where}: {what}", hint, f"{shown}\n{before}{marks}")


def _width(sign: str) -> int:
    """Return the number of terminal columns of a character."""
    return 2 if east_asian_width(sign) in "WF" else 0 if combining(sign) else 1


def _word(text: str, start: int, length: int, wanted: str) -> tuple[int, int]:
    """Return the position of a word inside a field's text; the whole text if it is missing."""
    folded = wanted.lower()
    for word in words(text[start : start + length]) if wanted else ():
        plain = word.text[1:-1] if word.kind in ("quoted", "backticked") else word.text
        if plain.lower() == folded:
            return start + word.start, word.end - word.start
    inside = text.find(f'"{wanted}"', start, start + length) if wanted else -1  # a JSON member
    return (inside, len(wanted) + 2) if inside >= 0 else (start, length)
