"""Mask secrets in the text of statements, which may be invalid, before it is shown or stored."""

from __future__ import annotations

from collections.abc import Iterator

from kpipe.definition.secret_values import suggests_secret
from kpipe.expressions.tokens import Word, words
from kpipe.sql.first_keywords import KPIPE, QUERY

__all__ = ["masked"]


def masked(text: str) -> str:
    """Mask everything in statements that may be a secret, so that they can be shown and stored. The length stays the same.

    If the text suggests that it contains a secret, every quoted text and every comment is masked: an invalid statement may
    contain its secret anywhere. Other statements than kpipe's and queries, such as SET, may contain a secret without quotes, so
    only their first word stays.
    """
    if not suggests_secret(text):
        return text
    hidden = bytearray(len(text))
    for escapes in (False, True):  # an invalid statement has no dialect: in either, the secret must not be outside of quotes
        for start, end in _secrets(text, escapes):
            hidden[start:end] = b"*" * (end - start)
    return "".join("*" if hide and sign != "\n" else sign for sign, hide in zip(text, hidden, strict=True))


def _secrets(text: str, escapes: bool) -> Iterator[tuple[int, int]]:
    """Yield start and end of each part that may be a secret."""
    end, is_first, is_plain = 0, True, False
    for word in (*words(text, escapes), Word("end", "", len(text), len(text))):
        between = text[end : word.start]
        yield end + len(between) - len(between.lstrip()), end + len(between.rstrip())  # a comment
        if word.kind in ("text", "quoted", "open"):
            yield word.start + 1, word.end - (word.kind != "open")
        if is_first:
            is_plain = bool(KPIPE.match(text, word.start) or QUERY.match(text, word.start))
        elif not is_plain and word.text != ";":
            yield word.start, word.end
        end, is_first = word.end, word.text == ";"
