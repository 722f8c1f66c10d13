"""Read the tokens of an expression from left to right, and report unexpected ones."""

from __future__ import annotations

from kpipe.expressions.mysql.syntax.tree import Node, Word, refused, words

__all__ = ["Cursor"]

_NOT_HERE = {
    "||": ("|| means OR in MySQL, and concatenation in other databases", "write OR, or CONCAT(a, b)"),
    ":=": ("an assignment is not allowed in an expression", "write SET column = expression"),
    ";": ("; is not allowed in an expression", ""),
    "[": ("[ is not an operator of MySQL", "write JSON_EXTRACT_STRING(value, 0), or value::0"),
    "{": ("{ is only allowed before a date or a time", "write {d '2015-07-21'}, or DATE '2015-07-21'"),
    **dict.fromkeys(("?", "$", ":"), ("parameters are not supported in an expression", "write the value")),
    "@": ("server variables are not supported", "write the value; @name is a field of the record"),
    "AS": ("an alias is not allowed in an expression", "write SET column = expression"),
    "AT": ("AT is not an operator of MySQL", "write CONVERT_TZ(value, 'UTC', 'Europe/Berlin')"),
    "ILIKE": ("ILIKE is not an operator of MySQL", "write LOWER(value) LIKE 'text%'"),
    "LIMIT": ("a query is not allowed in an expression", "remove LIMIT"),
    "SIMILAR": ("SIMILAR TO is not an operator of MySQL", "write value REGEXP 'pattern'"),
    "AGAINST": ("a record has no full-text index", "write INSTR(value, text) > 0, LIKE or REGEXP"),
    "OVER": ("a window function is not allowed in an expression: a task sees some records only", "remove OVER"),
}

_MOST_LEVELS = 120


class Cursor:
    """Reads tokens from left to right.

    Args:
        text: the expression.
    """

    def __init__(self, text: str) -> None:
        self._words, self._at, self._depth = words(text), 0, 0

    @property
    def word(self) -> Word:
        """The next token."""
        return self._words[self._at]

    def take(self) -> Word:
        """Return the next token and advance."""
        word = self.word
        self._at = min(self._at + 1, len(self._words) - 1)
        return word

    def taken(self, *folded: str) -> bool:
        """Advance past these keywords or signs if they come next, in any letter case; return whether they did."""
        ahead = self._words[self._at : self._at + len(folded)]
        if [word.folded for word in ahead] != list(folded):
            return False
        self._at += len(folded)
        return True

    def expect(self, sign: str) -> Word:
        """Advance past a token that must come next."""
        if self.word.folded != sign:
            raise self.unexpected(sign)
        return self.take()

    def unexpected(self, wanted: str = "") -> Exception:
        """Return the error about the next token."""
        word = self.word
        if word.folded in _NOT_HERE and not wanted:
            return refused(*_NOT_HERE[word.folded], word.start, word.end)
        what = f"unexpected {word.text[:20]}" if word.kind != "end" else "unexpected end of the expression"
        return refused(what, f"expected {wanted}" if wanted else "", word.start, word.end)

    def node(self, kind: str, start: int, value: object = None, *args: Node) -> Node:
        """Return a node that ends before the next token.

        Raises:
            Untranslated: it is nested too deeply to be walked recursively on Python's stack.
        """
        made = Node(kind, value, args, start, self._words[self._at - 1].end)
        if made.depth > _MOST_LEVELS:
            raise refused(
                f"more than {_MOST_LEVELS} operators in a row", "write IN (a, b, c), which has no limit", start, made.end
            )
        return made

    def name(self) -> str:
        """Return the next token, which must be a name, without backticks."""
        word = self.take()
        if word.kind == "backticked":
            return word.text[1:-1].replace("``", "`")
        if word.kind != "name":
            self._at -= 1
            raise self.unexpected("a name")
        return word.text
