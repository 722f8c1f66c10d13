"""Mask secrets in the text of statements, which may be invalid, before it is shown or stored."""

from __future__ import annotations

from collections.abc import Iterator

from kpipe.definition.secret_values import suggests_secret
from kpipe.expressions.tokens import Word, words

__all__ = ["masked"]

#: Signs that stay everywhere. Others may be part of a secret, and stay only between white space or these.
_SIGNS = ("(", ")", "{", "}", "[", "]", ",", ";", "=", ":", "::", "‘", "’", "“", "”")
_BEFORE_NAMES = ("PIPELINE", "TABLE", "IN")
_SETTINGS = ("CONFIG", "CREDENTIALS", "RETRY_OPTIONS")  # before :: and the name of one of them
_QUOTED = ("text", "quoted", "backticked", "open")


def masked(text: str) -> str:
    """Mask everything in statements that may be a secret, so that they can be shown and stored. The length stays the same.

    An invalid statement may contain its secret anywhere, also without quotes. If the text suggests that it contains one, only
    what cannot be a secret stays: signs, kpipe's keywords, and the first word of each statement. Plain names of pipelines,
    tables, types of destinations and settings stay, too.
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
    end, before, is_setting = 0, ";", False
    for word in (*words(text, escapes), Word("end", "", len(text), len(text))):
        between = text[end : word.start]
        yield end + len(between) - len(between.lstrip()), end + len(between.rstrip())  # a comment
        if word.text == "::":
            is_setting = before in _SETTINGS
        else:  # ::a.b
            is_setting = is_setting and (before == "::" or (not between and "." in (before, word.text)))
        if word.kind in _QUOTED:
            yield word.start + 1, word.end - (word.kind != "open")
        elif word.text not in _SIGNS and not (is_setting or (_is_apart(text, word) and _is_harmless(word, before, between))):
            yield word.start, word.end
        end, before = word.end, word.text.upper()


def _is_apart(text: str, word: Word) -> bool:
    """Return whether white space or one of these signs separates the word from others. A secret may contain signs."""
    around = (text[word.start - 1 : word.start], text[word.end : word.end + 1])
    return all(not sign.strip() or sign in _SIGNS for sign in around)


def _is_harmless(word: Word, before: str, between: str) -> bool:
    from kpipe.sql.grammar import KEYWORDS  # imported late: it loads lark

    is_first = before == ";" and (between != "" or word.start == 0)
    return word.kind == "sign" or (word.kind == "name" and (is_first or before in _BEFORE_NAMES or word.text.upper() in KEYWORDS))
