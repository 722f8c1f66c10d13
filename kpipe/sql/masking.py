"""Handle secrets in statements: require templates, and mask literals before a text is shown or stored."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["MASK", "TEMPLATE", "from_statement", "is_secret", "masked", "masked_credentials", "to_statement"]

MASK = "***"

#: `${env:NAME}` and `${env:NAME:-default}`: a statement's form of YAML's `{{ env('NAME') }}`, without quotes inside.
TEMPLATE = re.compile(r"\$\{env:(\w+)(?::-([^{}']*))?\}")
_YAML = re.compile(r"\{\{\s*env\(\s*(['\"])(\w+)\1\s*(?:,\s*(['\"])([^{}']*?)\3\s*)?\)\s*\}\}")
_SECRET = re.compile(r"password|passwd|secret|ssl\.key\.pem|user\.info|jaas", re.IGNORECASE)
# Wider: a statement that matches is masked before it is shown or stored.
_SENSITIVE = re.compile(r"passw|secret|token|credential|\.pem|basic\.auth|user\.info|api.?key|jaas", re.IGNORECASE)
# A quoted text, or an unterminated one.
_LITERAL = re.compile(r"'(?:[^'\\]|\\.|'')*(?:'|\Z)|\"(?:[^\"\\]|\\.|\"\")*(?:\"|\Z)", re.DOTALL)


def is_secret(setting: str) -> bool:
    """Return whether a setting is a secret, as far as its name shows."""
    return bool(_SECRET.search(setting))


def masked(text: str) -> str:
    """Mask everything in a statement that may be a secret, so that it can be shown and stored. The length stays the same.

    If the statement mentions credentials, every quoted text is masked, because an invalid statement may contain its secret
    anywhere.
    """
    if not _SENSITIVE.search(text):
        return text
    return _LITERAL.sub(lambda match: _stars(match[0]), text)


def _stars(literal: str) -> str:
    inner = re.sub(r"[^\n]", "*", literal[1:])
    closed = len(literal) > 1 and literal[-1] == literal[0]
    return literal[0] + (inner[:-1] + literal[-1] if closed else inner)


def from_statement(text: str) -> str:
    """Convert templates of a statement to those of a definition."""

    def template(match: re.Match[str]) -> str:
        name, default = match.groups()
        return f"{{{{ env('{name}') }}}}" if default is None else f"{{{{ env('{name}', '{default}') }}}}"

    return TEMPLATE.sub(template, text)


def to_statement(text: str) -> str:
    """Convert templates of a definition to those of a statement."""

    def template(match: re.Match[str]) -> str:
        name, default = match[2], match[4]
        return f"${{env:{name}}}" if default is None else f"${{env:{name}:-{default}}}"

    return _YAML.sub(template, text)


def masked_credentials(part: dict[str, Any]) -> bool:
    """Mask literals under the `credentials` of a definition's source or target; return whether there were any."""
    masked_any = False
    for key, value in part.get("credentials", {}).items():
        if key != "sasl.username" and not _YAML.search(value):
            part["credentials"][key] = MASK
            masked_any = True
    return masked_any
