"""Find the list of columns in CREATE TABLE of SingleStore and MySQL."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile

from kpipe.expressions.tokens import Word, words

__all__ = ["LONGEST", "has_columns", "kinds_of", "opening_of"]

#: Tokens before the list of columns, at most.
LONGEST = 16
_KINDS = ("ROWSTORE", "COLUMNSTORE", "REFERENCE", "GLOBAL", "TEMPORARY", "TEMP")


def has_columns(text: str) -> bool:
    """Return whether the text begins with CREATE TABLE and a list of columns, whose quoted texts have MySQL's escapes."""
    tokens = list(islice(words(text, escapes=True), LONGEST))
    index = kinds_of(tokens)[1]
    return index is not None and opening_of(tokens, index) is not None


def kinds_of(tokens: Sequence[Word]) -> tuple[list[str], int | None]:
    """Return the kinds of the table, and the index of its name; None: the statement is not CREATE TABLE."""
    head = [word.text.upper() for word in tokens[:LONGEST]]
    index = 3 if head[1:3] == ["OR", "REPLACE"] else 1
    kinds = list(takewhile(_KINDS.__contains__, head[index:]))
    index += len(kinds)
    if head[:1] != ["CREATE"] or head[index : index + 1] != ["TABLE"]:
        return kinds, None
    return kinds, index + (4 if head[index + 1 : index + 4] == ["IF", "NOT", "EXISTS"] else 1)


def opening_of(tokens: Sequence[Word], index: int) -> int | None:
    """Return the index of the parenthesis that begins the list of columns; None: there is no list.

    Args:
        tokens: of the statement.
        index: of the table's name.
    """
    ends = ("(", ";", "AS", "LIKE")
    end = next((at for at in range(index, len(tokens)) if tokens[at].text.upper() in ends), None)
    return end if end is not None and end > index and tokens[end].text == "(" else None
