"""Compile literals: NULL, numbers, texts, bytes, dates and times (MySQL 8.4 manual, "Literal Values")."""

from __future__ import annotations

from collections.abc import Callable
from math import isinf

from kpipe.expressions.mysql.syntax.tree import Node, refused
from kpipe.expressions.mysql.values import NULL, Value, date, datetime, decimal, quoted, span

__all__ = ["LITERALS"]


def _null(_: Node) -> Value:
    return NULL


def _bool(node: Node) -> Value:
    return Value("true" if node.value else "false", "bool", 1)


def _number(node: Node) -> Value:
    digits = str(node.value)
    if "e" in digits.lower():
        if isinf(float(digits)):
            raise refused(
                f"{digits} is out of range for DOUBLE", "the largest DOUBLE is 1.7976931348623157e308", node.start, node.end
            )
        return Value(f"CAST('{digits}' AS DOUBLE)", "double", literal=digits)
    whole, _, fraction = digits.partition(".")
    precision = len((whole.lstrip("0") or "0") + fraction)
    if not fraction and int(whole) < 2**63:
        return Value(f"CAST({whole} AS BIGINT)", "int", max(len(whole.lstrip("0")), 1), literal=digits)
    value = decimal(Value(f"'{digits}'", "decimal", precision, len(fraction)), precision, len(fraction))
    return Value(value.sql, "decimal", precision, len(fraction), digits, unsigned="." not in digits and int(digits) < 2**64)


def _text(node: Node) -> Value:
    parts = [quoted(part) for part in node.value.split("\0")]  # a text literal of DuckDB's cannot contain NUL
    return Value(parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})", "text", literal=node.value)


def _hex(node: Node) -> Value:
    digits = node.value if len(node.value) % 2 == 0 else f"0{node.value}"
    return Value(f"unhex('{digits}')", "blob", bits=str(int(digits[-16:] or "0", 16)))


def _bits(node: Node) -> Value:
    width = -(-len(node.value) // 8) * 2
    digits = f"{int(node.value, 2):0{width}X}" if width else ""
    return Value(f"unhex('{digits}')", "blob", bits=str(int(node.value[-64:] or "0", 2)))


def _temporal(node: Node) -> Value:
    kind, literal = node.value
    rule = {"DATE": date, "TIME": span}.get(kind, datetime)
    return rule(Value(quoted(literal), "text"))


#: Node type to its rule.
LITERALS: dict[str, Callable[[Node], Value]] = {
    "null": _null, "bool": _bool, "number": _number, "text": _text, "hex": _hex, "bits": _bits, "temporal": _temporal,
}  # fmt: skip
