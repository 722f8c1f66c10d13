"""Parse operands: literals, columns, calls, CASE, casts and intervals."""

from __future__ import annotations

from abc import abstractmethod

from kpipe.expressions.mysql.refused.functions import REFUSED
from kpipe.expressions.mysql.syntax.literals import Literals
from kpipe.expressions.mysql.syntax.tree import Node, refused, unquoted

__all__ = ["BITS", "UNITS", "Operands"]

BITS = 7
"""Precedence of bit operators, the lowest allowed between the keywords of BETWEEN, LIKE and POSITION."""

UNITS = (
    "MICROSECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "SECOND_MICROSECOND",
    "MINUTE_MICROSECOND", "MINUTE_SECOND", "HOUR_MICROSECOND", "HOUR_SECOND", "HOUR_MINUTE", "DAY_MICROSECOND", "DAY_SECOND",
    "DAY_MINUTE", "DAY_HOUR", "YEAR_MONTH",
)  # fmt: skip
_RESERVED = frozenset([
    "AND", "OR", "XOR", "NOT", "IS", "IN", "LIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END", "NULL", "TRUE",
    "FALSE", "DIV", "INTERVAL", "BINARY", "COLLATE", "REGEXP", "RLIKE", "ESCAPE", "SELECT", "EXISTS", "FROM", "AS",
    "USING",
])  # fmt: skip
_NILADIC = frozenset(
    ["CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIME", "LOCALTIMESTAMP", "UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP"]
)


class Operands(Literals):
    """Parses operands, which may contain expressions."""

    @abstractmethod
    def expression(self, least: int) -> Node:
        """Parse an expression of operators with at least this precedence."""

    def _member(self) -> str:
        word = self.word
        if word.kind == "name" or (word.kind == "number" and word.text.isdigit()):
            return self.take().text
        if word.kind in ("backticked", "text"):
            return self.name() if word.kind == "backticked" else unquoted(self.take().text)
        raise self.unexpected("the name of a member")

    def _list(self) -> list[Node]:
        self.expect("(")
        found: list[Node] = []
        if self.word.folded != ")":
            found.append(self.expression(0))
            while self.taken(","):
                found.append(self.expression(0))
        self.expect(")")
        return found

    def _primary(self) -> Node:
        word = self.word
        match word.kind:
            case "number":
                self.take()
                return self.node("number", word.start, word.text)
            case "text":
                self.take()
                text = unquoted(word.text)
                while self.word.kind == "text":  # adjacent texts are concatenated
                    text += unquoted(self.take().text)
                return self.node("text", word.start, text)
            case "hex" | "bits":
                return self.bytes_literal()
            case "null":
                self.take()
                return self.node("null", word.start)
            case "variable":
                self.take()
                return self.node("column", word.start, (word.text,))
            case "backticked":
                return self._column()
            case "name":
                return self._named()
        if word.folded == "(":
            items = self._list()
            if not items:
                raise self.unexpected()
            return self.node("row" if len(items) > 1 else "paren", word.start, None, *items)
        if word.folded == "{":
            return self.braced()
        raise self.unexpected()

    def _column(self) -> Node:
        start, parts = self.word.start, [self.name()]
        while self.word.folded == "." and self._words[self._at + 1].kind in ("name", "backticked"):
            self.take()
            parts.append(self.name())
        return self.node("column", start, tuple(parts))

    def _named(self) -> Node:
        word, folded = self.word, self.word.folded
        after = self._words[self._at + 1]
        if folded in ("NULL", "TRUE", "FALSE"):
            self.take()
            return self.node("null" if folded == "NULL" else "bool", word.start, folded == "TRUE")
        if folded in ("SELECT", "EXISTS"):
            raise refused(
                "a query is not allowed in an expression: a task has no tables",
                "use columns and functions",
                word.start,
                word.end,
            )
        if folded == "CASE":
            return self._case()
        if folded == "INTERVAL" and after.folded != ",":
            return self._interval()
        if folded in ("DATE", "TIME", "TIMESTAMP", "DATETIME") and after.kind == "text":
            self.take()
            return self.node("temporal", word.start, (folded, unquoted(self.take().text)))
        if folded == "N" and after.kind == "text" and after.start == word.end:
            self.take()
            return self._primary()
        if folded.startswith("_") and after.kind in ("text", "hex", "bits"):
            return self.introduced()
        if after.text == "(":
            return self._call()
        if folded in _NILADIC:
            self.take()
            return self.node("call", word.start, folded)
        if folded in _RESERVED:
            raise self.unexpected()
        return self._column()

    def _case(self) -> Node:
        start = self.take().start
        parts: list[Node] = []
        operand = self.word.folded != "WHEN"
        if operand:
            parts.append(self.expression(0))
        while self.taken("WHEN"):
            parts.append(self.expression(0))
            self.expect("THEN")
            parts.append(self.expression(0))
        otherwise = self.taken("ELSE")
        if otherwise:
            parts.append(self.expression(0))
        self.expect("END")
        return self.node("case", start, (operand, otherwise), *parts)

    def _interval(self) -> Node:
        start, begin, depth = self.take().start, self._at, self._depth
        if self.taken("("):  # INTERVAL (n) DAY, or the function INTERVAL(n, 0, 2)
            self.expression(0)
            several = self.word.folded == ","
            self._at, self._depth = (begin - 1, depth) if several else (begin, depth)
            if several:
                return self._call()
        count = self.expression(0)
        return self.node("interval", start, self._unit(), count)

    def _unit(self) -> str:
        word = self.word
        unit = word.folded.removeprefix("SQL_TSI_")
        if unit not in UNITS:
            raise refused(
                f"unknown unit of time: {word.text[:20] or 'nothing'}", f"units are {', '.join(UNITS[:9])}", word.start, word.end
            )
        self.take()
        return unit

    def _call(self) -> Node:
        word = self.take()
        name, start = word.folded, word.start
        self.expect("(")
        match name:
            case "CAST":
                value = self.expression(0)
                self.expect("AS")
                return self._closed("cast", start, (self._type(), "CAST"), value)
            case "CONVERT":
                value = self.expression(0)
                if self.taken("USING"):
                    return self._closed("using", start, self.name(), value)
                self.expect(",")
                return self._closed("cast", start, (self._type(), "CAST"), value)
            case "EXTRACT":
                unit = self._unit()
                self.expect("FROM")
                return self._closed("extract", start, unit, self.expression(0))
            case "TRIM":
                return self._trim(start)
            case "POSITION":
                what = self.expression(BITS)
                self.expect("IN")
                return self._closed("call", start, "LOCATE", what, self.expression(0))
            case "TIMESTAMPADD" | "TIMESTAMPDIFF":
                unit = self._unit()
                self.expect(",")
                return self.node("call", start, name, Node("unit", unit), *self._rest())
            case "ROW":
                items = self._rest()
                if len(items) < 2:
                    raise refused("ROW: expected two values or more", "", start, self.word.start)
                return self.node("row", start, None, *items)
            case "JSON_VALUE":
                return self._json_value(start)
            case "JSON_TABLE":  # its COLUMNS clause is not a list of arguments
                why, instead = REFUSED[name]
                raise refused(f"{name} is not supported: {why}", instead, word.start, word.end)
            case "GET_FORMAT":
                kind = self.name().upper()
                self.expect(",")
                return self.node("call", start, name, Node("text", kind), *self._rest())
        self.taken("*")  # COUNT(*), which is rejected by its name
        args = self._rest(name)
        return self.node("call", start, name, *args)

    def _rest(self, name: str = "") -> list[Node]:
        args: list[Node] = []
        separators = (",", "FROM", "FOR") if name in ("SUBSTRING", "SUBSTR", "MID") else (",",)  # SUBSTRING(text FROM 2 FOR 3)
        if self.word.folded != ")":
            args.append(self.expression(0))
            while self.word.folded in separators:
                self.take()
                args.append(self.expression(0))
        if name == "CHAR" and self.taken("USING"):
            args.append(Node("using", self.name()))
        self.expect(")")
        return args

    def _json_value(self, start: int) -> Node:
        """Parse JSON_VALUE(document, path [RETURNING type] [NULL ON EMPTY] [NULL ON ERROR])."""
        args = [self.expression(0)]
        self.expect(",")
        args.append(self.expression(0))
        returned = self._type() if self.taken("RETURNING") else None
        for _ in ("EMPTY", "ERROR"):
            if self.word.folded in ("DEFAULT", "ERROR"):
                raise refused(
                    f"{self.word.text} in JSON_VALUE is not supported",
                    "write COALESCE(JSON_VALUE(value, '$.a'), 'default')",
                    self.word.start,
                    self.word.end,
                )
            _ = self.taken("NULL", "ON", "EMPTY") or self.taken("NULL", "ON", "ERROR")
        call = self._closed("call", start, "JSON_VALUE", *args)
        return call if returned is None else self.node("json_value", start, returned, call)

    def _closed(self, kind: str, start: int, value: object, *args: Node) -> Node:
        self.expect(")")
        return self.node(kind, start, value, *args)

    def _trim(self, start: int) -> Node:
        side = next((name for name in ("BOTH", "LEADING", "TRAILING") if self.taken(name)), "BOTH")
        what: Node | None = None
        if self.word.folded != "FROM":
            what = self.expression(0)
        if self.taken("FROM"):
            return self._closed("trim", start, side, self.expression(0), what or Node("text", " "))
        if what is None:
            raise self.unexpected()
        return self._closed("trim", start, side, what, Node("text", " "))

    def _type(self) -> tuple[str, tuple[int, ...]]:
        word = self.word
        if word.kind != "name":
            raise self.unexpected("a type")
        name = self.take().folded
        if name in ("SIGNED", "UNSIGNED"):
            _ = self.taken("INTEGER") or self.taken("INT")
        if name == "DOUBLE":
            self.taken("PRECISION")
        sizes: list[int] = []
        if self.taken("("):
            while self.word.kind == "number" and self.word.text.isdigit():
                sizes.append(int(self.take().text))
                self.taken(",")
            self.expect(")")
        if self.taken("CHARACTER", "SET") or self.taken("CHARSET") or self.taken("COLLATE"):
            charset = self.word
            if not self.name().lower().startswith(("utf8", "binary")):
                raise refused(f"character set {charset.text} is not supported", "texts are UTF-8", charset.start, charset.end)
        if self.taken("UNSIGNED"):
            name = f"{name} UNSIGNED"
        return name, tuple(sizes)
