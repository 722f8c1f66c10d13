"""Mask secrets in the text of statements, which may be invalid, before it is shown or stored."""

from __future__ import annotations

import re

from kpipe.definition.secret_values import suggests_secret

__all__ = ["masked"]

# A quoted text, or an unterminated one.
_LITERAL = re.compile(r"'(?:[^'\\]|\\.|'')*(?:'|\Z)|\"(?:[^\"\\]|\\.|\"\")*(?:\"|\Z)", re.DOTALL)


def masked(text: str) -> str:
    """Mask everything in a statement that may be a secret, so that it can be shown and stored. The length stays the same.

    If the statement suggests that it contains a secret, every quoted text is masked: an invalid statement may contain its
    secret anywhere.
    """
    return _LITERAL.sub(lambda match: _stars(match[0]), text) if suggests_secret(text) else text


def _stars(literal: str) -> str:
    inner = re.sub(r"[^\n]", "*", literal[1:])
    closed = len(literal) > 1 and literal[-1] == literal[0]
    return literal[0] + (inner[:-1] + literal[-1] if closed else inner)
