"""Compile comparisons in which one side is JSON.

A JSON value counts by its content: "x" is the text x, true is 1, "5" compared with a number is 5. A literal that contains
double quotes, '"x"', is a document, as SingleStore prints one. Sources: MySQL 8.4 manual, "Comparison and Ordering of
JSON Values"; a MariaDB server.
"""

from __future__ import annotations

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.json.json_paths import asked, document
from kpipe.expressions.mysql.values import Value, bytes_of, content, datetime, double, json, span

__all__ = ["comparable"]

_EQUAL = ("=", "<>", "<=>")


def comparable(sign: str, left: Value, right: Value) -> tuple[Value, Value] | None:
    """Convert two values for a comparison; None if neither is JSON.

    Raises:
        Untranslated: two documents are compared by order.
    """
    kinds = {left.kind, right.kind}
    if "json" not in kinds:
        return None
    if kinds == {"json"} and sign not in _EQUAL:
        raise Untranslated("JSON documents have no order", "compare value::%a (a number) or value::$a (a text)")
    if sign in _EQUAL and (kinds == {"json"} or any((item.literal or "").startswith('"') for item in (left, right))):
        return _both("canonical", left, right)
    if kinds & {"date", "datetime"}:
        return datetime(left), datetime(right)
    if kinds & {"time", "span"}:
        return span(left), span(right)
    if sign in _EQUAL and kinds & {"int", "decimal", "bool"}:
        return _both("numeral", left, right)  # compared by all digits
    if kinds <= {"json", "text", "blob", "null"}:
        if "blob" in kinds:
            one, other = (bytes_of(item if item.kind == "blob" else content(item)) for item in (left, right))
            return Value(one, "blob"), Value(other, "blob")
        return content(left), content(right)
    return double(left), double(right)


def _both(operation: str, left: Value, right: Value) -> tuple[Value, Value]:
    a, b = (asked("text", operation, document(json(item) if item.kind in ("text", "blob") else item)) for item in (left, right))
    return a, b
