"""Escape text from outside for a terminal.

Escaped are all characters that Python's `str.isprintable` rejects. These are C0 and C1 controls, DEL, separators of lines and
paragraphs, zero-width characters, surrogates and unassigned code points. Bidirectional formatting characters are escaped,
too (U+202A to U+202E, U+2066 to U+2069, U+200E, U+200F). Sources: https://trojansource.codes, CVE-2021-42574.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["as_json", "plain", "plain_lines"]


def plain(text: str) -> str:
    """Return the text with each character that is not printable escaped, line ends included."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def plain_lines(text: str) -> str:
    """Return the text with each character that is not printable escaped, except line ends."""
    return text if text.isprintable() else "\n".join(plain(line) for line in text.split("\n"))


def as_json(value: Any) -> str:
    """Return the value as one line of JSON that is safe to print and parses to the same value.

    Characters that are not printable become `\\\\uXXXX`; they occur inside strings only.
    """
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if text.isprintable() else "".join(sign if sign.isprintable() else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    """Return JSON's escape of a character: one UTF-16 code unit, or two."""
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
