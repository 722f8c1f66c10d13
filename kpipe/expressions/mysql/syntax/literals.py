"""Parse literals of several tokens: character set introducers, `{d '...'}`, and bytes in hexadecimal or binary digits.

Sources: MySQL 8.4 manual, "String Literals", "Character Set Introducers", "Date and Time Literals", "Hexadecimal Literals",
"Bit-Value Literals".
"""

from __future__ import annotations

from abc import abstractmethod

from kpipe.expressions.mysql.syntax.cursor import Cursor
from kpipe.expressions.mysql.syntax.tree import Node, refused, unquoted

__all__ = ["Literals"]

_UNICODE = ("_utf8", "_utf8mb3", "_utf8mb4")
_CODECS = {"_ascii": "ascii", "_latin1": "cp1252", **dict.fromkeys(_UNICODE, "utf-8")}
_BRACED = {"D": "DATE", "T": "TIME", "TS": "TIMESTAMP"}


class Literals(Cursor):
    """Parses literals."""

    @abstractmethod
    def _primary(self) -> Node: ...

    def bytes_literal(self) -> Node:
        """Parse `0x4D`, `x'4D'` or `b'101'`."""
        word = self.take()
        digits = word.text[2:].rstrip("'")
        if word.kind == "hex" and word.text[1] == "'" and len(digits) % 2:
            raise refused(f"{word.text[:20]} has an odd number of digits", "add a leading 0", word.start, word.end)
        return self.node(word.kind, word.start, digits)

    def braced(self) -> Node:
        """Parse `{d '2015-07-21'}`, the ODBC syntax of dates and times."""
        start, kind, text = self.word.start, *self._words[self._at + 1 : self._at + 3]
        name = _BRACED.get(kind.folded)
        if name is None or text.kind != "text":
            raise self.unexpected()
        self._at += 3
        self.expect("}")
        return self.node("temporal", start, (name, unquoted(text.text)))

    def introduced(self) -> Node:
        """Parse a literal after the name of a character set: `_utf8mb4'text'`, `_latin1 x'E9'`, `_binary'text'`."""
        word = self.take()
        name, literal = word.text.lower(), self._primary()
        if name == "_binary":
            return self.node("binary", word.start, None, literal)
        codec = _CODECS.get(name)
        if codec is None:
            raise refused(
                f"character set {word.text} is not supported",
                "texts are UTF-8: write _utf8mb4'text', or CONVERT(value USING utf8mb4)",
                word.start,
                word.end,
            )
        made = _decoded(literal, codec)
        if made is None:
            raise refused(f"invalid literal for character set {word.text}", "write it as UTF-8", literal.start, literal.end)
        return self.node("text", word.start, made)


def _decoded(literal: Node, codec: str) -> str | None:
    """Return the text of a literal in a character set; None if its bytes are invalid there.

    A text in quotes is always UTF-8 in kpipe; the server would read its bytes in the given character set.
    """
    if literal.kind == "text":
        text = str(literal.value)
        return text if codec == "utf-8" or text.isascii() else None
    digits = str(literal.value)
    code = bytes.fromhex(digits.rjust(-(-len(digits) // 2) * 2, "0")) if literal.kind == "hex" else _packed(digits)
    try:
        return code.decode(codec)
    except UnicodeDecodeError:
        return None


def _packed(bits: str) -> bytes:
    return int(bits or "0", 2).to_bytes(-(-len(bits) // 8), "big")
