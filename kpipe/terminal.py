"""Text from outside made safe for a terminal: what cannot be printed is shown as an escape.

That is every C0 and C1 control, DEL, marks that turn the direction of text (U+202A to U+202E, U+2066 to U+2069, U+200E, U+200F),
signs without a width, line and paragraph separators, surrogates, and code points that are not assigned: all that Python's
`str.isprintable` denies. https://trojansource.codes, CVE-2021-42574.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["as_json", "plain", "plain_lines"]


def plain(text: str) -> str:
    """Return the text with an escape for each sign that cannot be printed, ends of lines among them."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def plain_lines(text: str) -> str:
    """Return the text with an escape for each sign that cannot be printed; ends of lines stay."""
    return text if text.isprintable() else "\n".join(plain(line) for line in text.split("\n"))


def as_json(value: Any) -> str:
    """Return the value as one line of JSON that is safe to print, and that a parser reads as the same value.

    Signs that cannot be printed are `\\\\uXXXX`; they only stand inside of strings.
    """
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if text.isprintable() else "".join(sign if sign.isprintable() else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    """JSON's escape of a sign: one UTF-16 code unit, or two."""
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
