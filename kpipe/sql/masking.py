"""Secrets in statements: which values must be templates, and how a text is shown that may hold a value all the same."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["MASK", "TEMPLATE", "from_statement", "is_secret", "masked", "masked_credentials", "to_statement"]

MASK = "***"

#: `${env:NAME}` and `${env:NAME:-default}`: in a statement what `{{ env('NAME') }}` is in YAML, without quotes inside.
TEMPLATE = re.compile(r"\$\{env:(\w+)(?::-([^{}']*))?\}")
_YAML = re.compile(r"\{\{\s*env\(\s*(['\"])(\w+)\1\s*(?:,\s*(['\"])([^{}']*?)\3\s*)?\)\s*\}\}")
_SECRET = re.compile(r"password|passwd|secret|ssl\.key\.pem|user\.info|jaas", re.IGNORECASE)
# Wider: what makes a whole statement one that is masked before it is shown or kept.
_SENSITIVE = re.compile(r"passw|secret|token|credential|\.pem|basic\.auth|user\.info|api.?key|jaas", re.IGNORECASE)
# A text in quotes, or one that does not end.
_LITERAL = re.compile(r"'(?:[^'\\]|\\.|'')*(?:'|\Z)|\"(?:[^\"\\]|\\.|\"\")*(?:\"|\Z)", re.DOTALL)


def is_secret(setting: str) -> bool:
    """Whether a setting of that name holds a secret, as far as its name tells."""
    return bool(_SECRET.search(setting))


def masked(text: str) -> str:
    """The text of a statement as it may be shown and kept: of the same length, without anything that may be a secret.

    Where the statement speaks of credentials at all, every text in quotes is masked that is not made of templates alone:
    a statement that is wrong may have its secret anywhere.
    """
    if not _SENSITIVE.search(text):
        return text
    return _LITERAL.sub(lambda match: _stars(match[0]), text)


def _stars(literal: str) -> str:
    inner = re.sub(r"[^\n]", "*", literal[1:])
    closed = len(literal) > 1 and literal[-1] == literal[0]
    return literal[0] + (inner[:-1] + literal[-1] if closed else inner)


def from_statement(text: str) -> str:
    """Templates of a statement as the definition keeps them."""

    def template(match: re.Match[str]) -> str:
        name, default = match.groups()
        return f"{{{{ env('{name}') }}}}" if default is None else f"{{{{ env('{name}', '{default}') }}}}"

    return TEMPLATE.sub(template, text)


def to_statement(text: str) -> str:
    """Templates of a definition as a statement has them."""

    def template(match: re.Match[str]) -> str:
        name, default = match[2], match[4]
        return f"${{env:{name}}}" if default is None else f"${{env:{name}:-{default}}}"

    return _YAML.sub(template, text)


def masked_credentials(part: dict[str, Any]) -> bool:
    """Mask what is written out under the `credentials` of a definition's source or into; whether anything was."""
    found = False
    for key, value in part.get("credentials", {}).items():
        if key != "sasl.username" and not _YAML.search(value):
            part["credentials"][key] = MASK
            found = True
    return found
