"""The words of an expression from the left: what every part of the reader asks of them."""

from __future__ import annotations

from kpipe.expressions.mysql.syntax.tree import Node, Word, refused, words

__all__ = ["Cursor"]

_NOT_HERE = {
    "||": ("|| is OR in MySQL and joins texts in others", "write OR, or CONCAT(a, b)"),
    ":=": ("an expression assigns nothing", "write SET column = expression"),
    ";": ("an expression holds no ;", ""),
    "[": ("[ is no operator here", "write JSON_EXTRACT_STRING(value, 0), or value::0"),
    "{": ("{ stands before a date or a time only", "write {d '2015-07-21'}, or DATE '2015-07-21'"),
    **dict.fromkeys(("?", "$", ":"), ("an expression has no parameters", "write the value")),
    "@": ("there are no variables of a server", "write the value; @name is a field of the record"),
    "AS": ("an expression has no alias", "write SET column = expression"),
    "AT": ("AT is no operator of MySQL's", "write CONVERT_TZ(value, 'UTC', 'Europe/Berlin')"),
    "ILIKE": ("ILIKE is no operator of MySQL's", "write LOWER(value) LIKE 'text%'"),
    "LIMIT": ("an expression holds no query", "leave LIMIT out"),
    "SIMILAR": ("SIMILAR TO is no operator of MySQL's", "write value REGEXP 'pattern'"),
    "AGAINST": ("a record has no full-text index", "write INSTR(value, text) > 0, LIKE or REGEXP"),
    "OVER": ("an expression holds no window: a task sees some records at a time, never all", "leave OVER out"),
}

_MOST_LEVELS = 120


class Cursor:
    """Takes words from the left.

    Args:
        text: the expression.
    """

    def __init__(self, text: str) -> None:
        self._words, self._at, self._depth = words(text), 0, 0

    @property
    def word(self) -> Word:
        """The next word."""
        return self._words[self._at]

    def take(self) -> Word:
        """Return the next word, and go on."""
        found = self.word
        self._at = min(self._at + 1, len(self._words) - 1)
        return found

    def taken(self, *folded: str) -> bool:
        """Go behind these words if they stand here, in any case of letters."""
        ahead = self._words[self._at : self._at + len(folded)]
        if [word.folded for word in ahead] != list(folded):
            return False
        self._at += len(folded)
        return True

    def expect(self, sign: str) -> Word:
        """Go behind a word that must be here."""
        if self.word.folded != sign:
            raise self.unexpected(sign)
        return self.take()

    def unexpected(self, wanted: str = "") -> Exception:
        """Return the error about the next word."""
        word = self.word
        if word.folded in _NOT_HERE and not wanted:
            return refused(*_NOT_HERE[word.folded], word.start, word.end)
        here = f"{word.text[:20]} cannot stand here" if word.kind != "end" else "the expression ends too early"
        return refused(here, f"expected {wanted}" if wanted else "", word.start, word.end)

    def node(self, kind: str, start: int, value: object = None, *args: Node) -> Node:
        """Return a node that ends before the next word.

        Raises:
            Untranslated: more levels stand below it than Python's stack has for those who walk there.
        """
        made = Node(kind, value, args, start, self._words[self._at - 1].end)
        if made.depth > _MOST_LEVELS:
            raise refused(
                f"more than {_MOST_LEVELS} operators in a row", "IN (a, b, c) takes any number of values", start, made.end
            )
        return made

    def name(self) -> str:
        """Return the next word, which must be a name, with or without backticks."""
        word = self.take()
        if word.kind == "backticked":
            return word.text[1:-1].replace("``", "`")
        if word.kind != "name":
            self._at -= 1
            raise self.unexpected("a name")
        return word.text
