"""Compile a MySQL expression to DuckDB's SQL: one rule for each node type, chosen by the types of its operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.arithmetic import negated
from kpipe.expressions.mysql.binding import repeating
from kpipe.expressions.mysql.byte_operators import byte_bits, flipped, is_bytes, on_bytes
from kpipe.expressions.mysql.casts import cast, returned
from kpipe.expressions.mysql.columns import Resolve, column_name, of_column, of_columns
from kpipe.expressions.mysql.common_types import combined
from kpipe.expressions.mysql.function_list import called
from kpipe.expressions.mysql.functions.patterns import like, matches
from kpipe.expressions.mysql.json.json_paths import arrow, member, plain_member
from kpipe.expressions.mysql.literal_values import LITERALS
from kpipe.expressions.mysql.operators import BINARY, between, first_equal, one_of
from kpipe.expressions.mysql.rows import unrowed
from kpipe.expressions.mysql.syntax.parser import parse
from kpipe.expressions.mysql.syntax.tree import Node, refused
from kpipe.expressions.mysql.times.intervals import moved
from kpipe.expressions.mysql.values import NULL, Value, boolean, converted, quoted, text  # fmt: skip
from kpipe.schema.columns import Columns

__all__ = ["check", "columns_of", "compiled", "computed", "duckdb_text"]


def compiled(text: str, resolve: Resolve) -> Value:
    """Compile the expression to DuckDB's SQL.

    Args:
        text: the expression, as its author wrote it.
        resolve: returns the value of a column.

    Raises:
        Untranslated: it is not an expression, or uses something unsupported; the error contains the position.
    """
    return _Compiler(resolve).of(parse(text))


def check(text: str, lookups: bool = False) -> None:
    """Check an expression without the columns' types: all columns are treated as text.

    Args:
        text: the expression.
        lookups: whether `name(key).column` may be a lookup, treated as text, too.

    Raises:
        Untranslated: as `compiled`.
    """
    _Compiler(lambda parts: of_column(column_name(parts[-1]), None), lookups).of(parse(text))


def computed(text: str, columns: Columns) -> str:
    """Compile the expression of a computed column, which must run on any DuckDB.

    Args:
        text: the expression.
        columns: of the table, as far as kpipe supports their types.

    Raises:
        Untranslated: as `compiled`, or it needs a function that only kpipe's connections have.
    """
    with repeating():
        sql = _Compiler(of_columns(columns), plain=True).of(parse(text)).sql
    if "kpipe_" in sql or "lambda" in sql:  # DuckDB's generated columns do not support lambdas
        raise Untranslated("this expression is not supported in a computed column")
    return sql


@lru_cache(maxsize=1024)
def columns_of(text: str) -> frozenset[str]:
    """Return the names that the expression reads: columns, variables with their @, Kafka's coordinates.

    Raises:
        Untranslated: it is not an expression.
    """
    from kpipe.expressions.mysql.functions.kafka_functions import coordinates

    names = set()
    for node in parse(text).walk():
        if node.kind == "column":
            names.add(node.value[-1])
        elif node.kind == "call" and node.value == "GET_KAFKA_PIPELINE_PROP":
            names |= coordinates(node)
    return frozenset(names)


def duckdb_text(text: str) -> str | None:
    """Return the argument of DUCKDB('...') if that is the whole expression; None: the expression is MySQL's.

    Raises:
        Untranslated: it is not an expression.
    """
    node = parse(text)
    if node.kind != "call" or node.value != "DUCKDB":
        return None
    if len(node.args) != 1 or node.args[0].kind != "text":
        raise refused("DUCKDB takes one expression in quotes", "write DUCKDB('list_sum(prices)')", node.start, node.end)
    return str(node.args[0].value)


class _Compiler:
    """Compiles one expression.

    Args:
        resolve: returns the value of a column.
        lookups: whether lookup calls are allowed; they are treated as text.
        plain: whether JSON members are read by DuckDB's own functions.
    """

    def __init__(self, resolve: Resolve, lookups: bool = False, plain: bool = False) -> None:
        self._resolve, self._lookups = resolve, lookups
        self._member_of = plain_member if plain else member

    def of(self, node: Node) -> Value:
        """Compile a node. An error without a position gets the node's."""
        try:
            return self._of(node)
        except Untranslated as error:
            if error.start is None:
                error.start, error.end = node.start, node.end
            raise

    def _of(self, node: Node) -> Value:
        if node.kind in BINARY:
            return self._binary(node)
        rule: Callable[[Node], Value] | None = self._signs.get(node.kind) or getattr(self, f"_{node.kind}", None)
        if rule is None:
            raise refused(f"{node.kind} is not supported", "", node.start, node.end)
        return rule(node)

    @property
    def _signs(self) -> dict[str, Callable[[Node], Value]]:
        return {**LITERALS, "->": self._arrow, "->>": self._arrow, "binary": self._as_bytes}

    def _args(self, node: Node) -> list[Value]:
        return [self.of(item) for item in node.args]

    def _paren(self, node: Node) -> Value:
        return self.of(node.args[0])

    # Columns and calls

    def _column(self, node: Node) -> Value:
        return self._resolve(node.value)

    def _call(self, node: Node) -> Value:
        from kpipe.expressions.mysql.functions.kafka_functions import prop

        if node.value == "GET_KAFKA_PIPELINE_PROP":
            return prop(node)
        if node.value == "VALUES":
            (column,) = node.args or (node,)
            if column.kind != "column":
                raise refused("VALUES takes a column", "", node.start, node.end)
            return self._resolve(("excluded", column.value[-1]))
        return called(node.value, self._args(node))

    def _unit(self, node: Node) -> Value:
        return Value(quoted(node.value), "unit", literal=node.value)

    def _interval(self, node: Node) -> Value:
        count = self.of(node.args[0])
        return Value(
            text(count).sql if count.kind == "text" else count.sql,
            "interval",
            count.precision,
            count.scale,
            f"{node.value} {count.kind}",
        )

    def _member(self, node: Node) -> Value:
        if self._lookups:
            self._args(node.args[0])
            return self._resolve((str(node.value),))
        raise refused(
            f"lookup {node.args[0].value} does not exist", "define it: LOOKUP name KEY (column) FROM ...", node.start, node.end
        )

    # Operators

    def _binary(self, node: Node) -> Value:
        plain = unrowed(node)
        if plain is not None:
            return self.of(plain)
        left, right = self._args(node)
        if "interval" in (left.kind, right.kind):
            return self._later(node, left, right)
        if on_bytes(node.kind, left, right):
            return byte_bits(node.kind, left, right)
        return BINARY[node.kind](left, right)

    def _later(self, node: Node, left: Value, right: Value) -> Value:
        if node.kind not in ("+", "-") or left.kind == right.kind or (node.kind == "-" and left.kind == "interval"):
            raise refused("an interval can only be added to a time or subtracted from it", "", node.start, node.end)
        moment, step = (right, left) if left.kind == "interval" else (left, right)
        return moved(moment, step, node.kind)

    def _neg(self, node: Node) -> Value:
        return negated(self.of(node.args[0]))

    def _plus(self, node: Node) -> Value:
        return self.of(node.args[0])

    def _bitnot(self, node: Node) -> Value:
        value = self.of(node.args[0])
        if is_bytes(value):
            return flipped(value)
        return BINARY["^"](value, Value("18446744073709551615::DECIMAL(20,0)", "decimal", 20))

    def _not(self, node: Node) -> Value:
        return Value(f"(NOT {boolean(self.of(node.args[0])).sql})", "bool")

    def _is(self, node: Node) -> Value:
        value = self.of(node.args[0])
        if node.value == "NULL":
            return Value(f"({value.sql} IS NULL)", "bool")
        return Value(f"({boolean(value).sql} IS NOT DISTINCT FROM {node.value.lower()})", "bool")

    def _row(self, node: Node) -> Value:
        raise refused("a list is only allowed after IN or beside another list", "write (a, b) = (1, 2)", node.start, node.end)

    def _in(self, node: Node) -> Value:
        plain = unrowed(node)
        if plain is not None:
            return self.of(plain)
        value, *choices = self._args(node)
        if not choices:
            raise refused("IN takes a list of values", "", node.start, node.end)
        return one_of(value, choices)

    def _between(self, node: Node) -> Value:
        value, low, high = self._args(node)
        return between(value, low, high)

    def _like(self, node: Node) -> Value:
        value, pattern, escape = self._args(node)
        return like(value, pattern, escape)

    def _regexp(self, node: Node) -> Value:
        value, pattern = self._args(node)
        return matches(value, pattern)

    def _case(self, node: Node) -> Value:
        operand, otherwise = node.value
        args = list(node.args)
        subject = self.of(args.pop(0)) if operand else None
        last = self.of(args.pop()) if otherwise else NULL
        whens, thens = [self.of(item) for item in args[::2]], [self.of(item) for item in args[1::2]]
        if not whens:
            raise refused("CASE has no WHEN", "", node.start, node.end)
        if subject:
            return first_equal("=", subject, whens, [*thens, last])
        tests = [boolean(when) for when in whens]

        def chosen(*results: str) -> str:
            said = " ".join(f"WHEN {test.sql} THEN {result}" for test, result in zip(tests, results[:-1], strict=True))
            return f"(CASE {said} ELSE {results[-1]} END)"

        return combined([*thens, last], chosen)

    def _collate(self, node: Node) -> Value:
        if not node.value.lower().endswith(("_bin", "binary")):
            raise refused(
                f"collation {node.value} is not supported",
                "texts are compared by their bytes; write LOWER(a) = LOWER(b)",
                node.start,
                node.end,
            )
        return self.of(node.args[0])

    def _as_bytes(self, node: Node) -> Value:
        return cast(replace(self.of(node.args[0]), literal=None, bits=None), "BINARY", ())

    def _json_value(self, node: Node) -> Value:
        (call,) = node.args
        raw = called("JSON_EXTRACT", self._args(call))
        return returned(self.of(call), Value(f"CAST({raw.sql} AS VARCHAR)", "text"), *node.value)

    def _using(self, node: Node) -> Value:
        if node.value.lower() not in ("utf8", "utf8mb3", "utf8mb4"):
            raise refused(f"character set {node.value} is not supported", "texts are UTF-8", node.start, node.end)
        return converted(self.of(node.args[0])) if node.args else Value("''", "unit")

    def _cast(self, node: Node) -> Value:
        (name, sizes), sign = node.value
        return cast(self.of(node.args[0]), name, sizes, strict=sign == "!:>")

    def _extract(self, node: Node) -> Value:
        from kpipe.expressions.mysql.times.time_functions import extracted

        return extracted(node.value, self.of(node.args[0]))

    def _trim(self, node: Node) -> Value:
        from kpipe.expressions.mysql.functions.text_functions import trimmed

        value, what = self._args(node)
        return trimmed(node.value, value, what)

    # JSON

    def _path(self, node: Node) -> Value:
        form, names = node.value[0], [node.value[1]]
        while node.args[0].kind == "path" and not node.args[0].value[0]:  # a::b::c is one path
            node = node.args[0]
            names.insert(0, node.value[1])
        return self._member_of(self.of(node.args[0]), names, form)

    def _arrow(self, node: Node) -> Value:
        return arrow(self.of(node.args[0]), node.value, as_text=node.kind == "->>")
