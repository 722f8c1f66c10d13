"""Parse an expression of MySQL or SingleStore by precedence climbing.

Precedences: MySQL 8.4 manual, "Operator Precedence"; `::`, `:>` and `!:>`: SingleStore's manual, "JSON keypaths" and "Cast
operators", which bind more tightly than any other. sqlglot was tried: its `&`, `|`, `^` and shifts have the precedences
of other databases, it renames functions, and it has no `->` for SingleStore.
"""

from __future__ import annotations

from functools import lru_cache

from kpipe.expressions.mysql.syntax.operands import BITS, Operands
from kpipe.expressions.mysql.syntax.tree import Node, refused, unquoted

__all__ = ["MOST_DEPTH", "parse"]

MOST_DEPTH = 60
"""Levels of parentheses and calls, so that parsing does not exceed Python's recursion limit."""

# IN, BETWEEN, LIKE and REGEXP bind more tightly than comparisons, though the manual lists them together: a = b IN (c).
_OR, _XOR, _AND, _NOT, _COMPARE, _PREDICATE = 1, 2, 3, 4, 5, 6
_BINARY = {
    "OR": _OR, "XOR": _XOR, "AND": _AND, "&&": _AND,
    "=": _COMPARE, "<=>": _COMPARE, ">=": _COMPARE, ">": _COMPARE, "<=": _COMPARE, "<": _COMPARE, "<>": _COMPARE,
    "!=": _COMPARE, "|": BITS, "&": 8, "<<": 9, ">>": 9, "+": 10, "-": 10, "*": 11, "/": 11, "DIV": 11, "%": 11, "MOD": 11,
    "^": 12,
}  # fmt: skip
_UNARY, _BANG, _COLLATE = 13, 14, 15
_SAME = {"&&": "AND", "!=": "<>", "MOD": "%"}


@lru_cache(maxsize=1024)
def parse(text: str) -> Node:
    """Parse a text that must be one expression.

    Raises:
        Untranslated: it is not one; the error contains the position.
    """
    reader = _Reader(text)
    if reader.word.kind == "end":
        raise refused("an expression is missing")
    found = reader.expression(0)
    if reader.word.kind != "end":
        raise reader.unexpected()
    return found


class _Reader(Operands):
    """Parses operators by their precedences."""

    def expression(self, least: int) -> Node:
        """Parse an expression of operators with at least this precedence.

        An operator must not be followed by one of higher precedence: `a IN (b) + c` is not an expression.
        """
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise refused(f"an expression is nested more than {MOST_DEPTH} levels deep", "", self.word.start, self.word.end)
        left, most = self._prefix(least)
        while True:
            further = self._infix(left, least, most)
            if further is None:
                self._depth -= 1
                return left
            left, most = further

    def _prefix(self, least: int) -> tuple[Node, int]:
        start, word = self.word.start, self.word.folded
        if word == "NOT" and least <= _NOT:
            self.take()
            return self.node("not", start, None, self.expression(_NOT)), _NOT
        if word == "!":
            self.take()
            return self.node("not", start, None, self.expression(_BANG)), _COLLATE
        if word in ("-", "+", "~"):
            self.take()
            kind = {"-": "neg", "+": "plus", "~": "bitnot"}[word]
            return self.node(kind, start, None, self.expression(_UNARY)), _COLLATE
        if word == "BINARY":
            self.take()
            return self.node("binary", start, None, self.expression(_COLLATE)), _COLLATE
        return self._postfix(self._primary()), _COLLATE

    def _postfix(self, value: Node) -> Node:
        while True:
            start, word = value.start, self.word.folded
            if word in ("::", "::$", "::%"):
                self.take()
                value = self.node("path", start, (word[2:], self._member()), value)
            elif word in (":>", "!:>"):
                self.take()
                value = self.node("cast", start, (self._type(), word), value)
            elif word in ("->", "->>"):
                self.take()
                if self.word.kind != "text":
                    raise self.unexpected("a path in quotes")
                value = self.node(word, start, unquoted(self.take().text), value)
            elif word == "." and value.kind == "call":
                self.take()
                value = self.node("member", start, self.name(), value)
            else:
                return value

    def _infix(self, left: Node, least: int, most: int) -> tuple[Node, int] | None:
        word, start = self.word.folded, left.start
        if word == "COLLATE" and least <= _COLLATE:
            self.take()
            return self.node("collate", start, self.name(), left), _COLLATE
        if word == "IS" and least <= _COMPARE <= most:
            return self._is(left, least)
        if least <= _PREDICATE < most:
            predicate = self._predicate(left)
            if predicate is not None:
                return predicate, _COMPARE
        binds = _BINARY.get(word)
        if binds is None or not least <= binds <= most:
            return None
        self.take()
        right = self.expression(binds + 1)
        return self.node(_SAME.get(word, word), start, None, left, right), binds

    def _is(self, left: Node, least: int) -> tuple[Node, int] | None:
        begin = self._at
        self.take()
        negated = self.taken("NOT")
        for name in ("NULL", "UNKNOWN", "TRUE", "FALSE"):
            if self.taken(name):
                if name != "NULL" and least > _NOT:  # a whole condition, unlike IS NULL
                    self._at = begin
                    return None
                node = self.node("is", left.start, "NULL" if name == "UNKNOWN" else name, left)
                node = self.node("not", left.start, None, node) if negated else node
                return node, _COMPARE if name == "NULL" else _NOT
        raise self.unexpected("NULL, TRUE, FALSE or UNKNOWN")

    def _predicate(self, left: Node) -> Node | None:
        start, begin = left.start, self._at
        negated = self.taken("NOT")
        if self.taken("IN"):
            node = self.node("in", start, None, left, *self._list())
        elif self.taken("BETWEEN"):
            low = self.expression(BITS)
            self.expect("AND")
            node = self.node("between", start, None, left, low, self.expression(_PREDICATE))
        elif self.taken("LIKE"):
            pattern = self.expression(BITS)
            escape = self.expression(BITS) if self.taken("ESCAPE") else Node("text", "\\")
            node = self.node("like", start, None, left, pattern, escape)
        elif not negated and self.taken("SOUNDS", "LIKE"):
            sounds = [self.node("call", start, "SOUNDEX", item) for item in (left, self.expression(BITS))]
            node = self.node("=", start, None, *sounds)
        elif self.taken("MEMBER"):
            self.taken("OF")
            self.expect("(")
            node = self._closed("call", start, "MEMBER OF", left, self.expression(0))
        elif self.taken("REGEXP") or self.taken("RLIKE"):
            node = self.node("regexp", start, None, left, self.expression(BITS))
        else:
            self._at = begin
            return None
        return self.node("not", start, None, node) if negated else node
