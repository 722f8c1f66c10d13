"""Evaluate expressions over blocks of columns in DuckDB. They are validated first; errors name the row and the reason."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.errors import InvalidPipeline
from kpipe.expressions.errors import Untranslated
from kpipe.expressions.json_text import contains
from kpipe.expressions.languages import CONDITION, is_mysql, to_duckdb
from kpipe.expressions.mysql.columns import of_columns
from kpipe.schema.columns import VARCHAR, Columns, Scalar, Type, parse_type
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import staged_type
from resources.duckdb_engine.column_casts import NotCoercible, coercion, equality
from resources.duckdb_engine.error_messages import in_words
from resources.duckdb_engine.sql_types import sql_type

__all__ = ["Assigned", "Evaluator", "described", "empty", "fitted", "in_duckdb", "records"]

_AS_TEXT = {"JSON", "UUID", "HUGEINT"}  # in Arrow
# Errors that the values of a row cause. Other errors (memory, defects) are not caused by a row.
_ROW_ERRORS = (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.InvalidInputException, duckdb.InvalidTypeException)
_BIND_ERRORS = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException, duckdb.NotImplementedException)
# Further failing rows of a block get a general message, because each detailed one needs a query.
_MOST_REASONS = 100


@dataclass(frozen=True)
class Assigned:
    """A column that an expression computes.

    Attributes:
        name: name of the column.
        text: the expression.
        kind: the column's type; None: that of the expression.
    """

    name: str
    text: str
    kind: Type | None = None


class Evaluator:
    """Evaluates a pipeline's expressions over blocks of rows.

    Args:
        inputs: names and types of the columns that the expressions read.
        where: condition of the rows to keep; empty: all.
        assigned: columns to compute.

    Raises:
        InvalidPipeline: an expression does not fit these types, or its type does not fit its column.
    """

    def __init__(self, inputs: Columns, where: str, assigned: Sequence[Assigned]) -> None:
        self.inputs = inputs
        self._where = self._duckdb("where", where, CONDITION) if where else ""
        self._texts = [self._duckdb(f"set.{item.name}", item.text, str(item.kind or "")) for item in assigned]
        self._names = [item.name for item in assigned]
        if where:
            self.bound("where", f"CAST(({self._where}\n) AS BOOLEAN)")
        types = [self.bound(f"set.{item.name}", text) for item, text in zip(assigned, self._texts, strict=True)]
        kinds = [_kind(item, have) if item.kind is None else item.kind for item, have in zip(assigned, types, strict=True)]
        #: The computed columns with their types.
        self.columns = Columns(tuple(zip(self._names, kinds, strict=True)))
        parts = []
        for index, (item, have, kind) in enumerate(zip(assigned, types, kinds, strict=True)):
            try:
                value, bad = coercion(have, kind)
            except NotCoercible as error:
                raise InvalidPipeline(f"set.{item.name}: {error}", f"write CAST(... AS {kind})") from error
            column = f'"__kpipe_{index}"'
            parts.append((value.format(column), bad.format(column) if bad else ""))
        values = [f"{value} AS c{index}" for index, (value, _) in enumerate(parts)]
        self._bad = [index for index, (_, bad) in enumerate(parts) if bad]
        values += [f"({parts[index][1]}) AS b{index}" for index in self._bad]
        inner = ", ".join(f'({text}\n) AS "__kpipe_{index}"' for index, text in enumerate(self._texts))
        self._values = f"SELECT {', '.join(values)} FROM (SELECT {inner} FROM {records(inputs)})"  # noqa: S608 - see `records`
        if assigned:
            try:
                in_memory.query(self._values, empty(inputs))
            except duckdb.Error as error:
                raise InvalidPipeline(f"set: {in_words(str(error))}", "write CAST(... AS type)") from error

    def holds(self, block: pa.Table) -> tuple[np.ndarray[Any, Any], dict[int, str]]:
        """Return for each row whether `where` is true, and the reasons of the rows for which it fails, by index."""
        text = f"CAST(({self._where}\n) AS BOOLEAN)"
        sql = f"SELECT {text} AS w FROM {records(self.inputs)}"  # noqa: S608 - see `records`
        result, reasons = self._run(sql, block, [("where", text)])
        wanted = np.zeros(block.num_rows, bool)
        good = _others(reasons, block.num_rows)
        wanted[good] = pc.fill_null(result.column("w"), False).to_numpy()
        return wanted, reasons

    def values(self, block: pa.Table) -> tuple[pa.Table, dict[int, str]]:
        """Return the computed columns of the valid rows, in staged types, and the reasons of the other rows by index."""
        expressions = [(name, text) for name, text in zip(self._names, self._texts, strict=True)]
        result, reasons = self._run(self._values, block, expressions)
        rows = _others(reasons, block.num_rows)
        good = np.ones(len(rows), bool)
        for index in self._bad:
            name, kind = self.columns.items[index]
            for row in np.flatnonzero(result.column(f"b{index}").to_numpy()).tolist():
                value = self._shown(index, block.slice(int(rows[row]), 1)) if len(reasons) < _MOST_REASONS else "a value"
                reasons.setdefault(int(rows[row]), f"{name}: {value} is not a valid {kind}")
                good[row] = False
        arrays = [result.column(f"c{index}").cast(staged_type(kind)) for index, (_, kind) in enumerate(self.columns)]
        table = pa.table(arrays, names=list(self.columns.names()))
        return table if good.all() else table.filter(pa.array(good)), reasons

    def _run(self, sql: str, block: pa.Table, expressions: Sequence[tuple[str, str]]) -> tuple[pa.Table, dict[int, str]]:
        try:
            return self._query(sql, block), {}
        except _ROW_ERRORS:
            failing = self._failing(block, expressions)
        if not failing:  # no single row fails: raise the error again
            return self._query(sql, block), {}
        reasons = {row: self._why(block.slice(row, 1), expressions) if n < _MOST_REASONS else "an expression fails for it"
                   for n, row in enumerate(failing)}  # fmt: skip
        return self._query(sql, block.take(pa.array(_others(reasons, block.num_rows)))), reasons

    def _failing(self, block: pa.Table, expressions: Sequence[tuple[str, str]]) -> list[int]:
        """Return the rows for which an expression fails: TRY returns NULL for these, but a STRUCT is never NULL."""
        tries = " AND ".join(f"TRY({{'v': ({text}\n)}}) IS NOT NULL" for _, text in expressions)
        try:
            result = self._query(f"SELECT {tries} AS ok FROM {records(self.inputs)}", block)  # noqa: S608 - see `records`
            return [int(row) for row in np.flatnonzero(~result.column("ok").to_numpy())]
        # TRY rejects volatile functions, and repeated subexpressions are evaluated outside of it: then bisect the block.
        except (duckdb.BinderException, *_ROW_ERRORS):
            return list(self._halves(block, expressions, 0))

    def _halves(self, block: pa.Table, expressions: Sequence[tuple[str, str]], start: int) -> Iterator[int]:
        texts = ", ".join(f"({text}\n) AS t{index}" for index, (_, text) in enumerate(expressions))
        try:
            self._query(f"SELECT {texts} FROM {records(self.inputs)}", block)  # noqa: S608 - see `records`
        except _ROW_ERRORS:
            if block.num_rows == 1:
                yield start
                return
            half = block.num_rows // 2
            yield from self._halves(block.slice(0, half), expressions, start)
            yield from self._halves(block.slice(half), expressions, start + half)

    def _why(self, row: pa.Table, expressions: Sequence[tuple[str, str]]) -> str:
        for name, text in expressions:
            try:
                self._query(f"SELECT ({text}\n) AS v FROM {records(self.inputs)}", row)  # noqa: S608 - see `records`
            except _ROW_ERRORS as error:
                return f"{name}: {_message(error)}"
        return "an expression fails for it"

    def _shown(self, index: int, row: pa.Table) -> str:
        """Return the value of an expression for a row, shortened."""
        sql = f"SELECT CAST(({self._texts[index]}\n) AS VARCHAR) AS v FROM {records(self.inputs)}"  # noqa: S608 - see `records`
        text = str(self._query(sql, row).column("v")[0].as_py())
        return text if len(text) <= 40 else text[:40] + "..."

    def bound(self, where: str, text: str) -> str:
        """Return the type of an expression over these inputs, as DuckDB names it.

        Raises:
            InvalidPipeline: the expression does not fit the inputs.
        """
        try:
            # WHERE rejects aggregates, window functions and UNNEST.
            in_memory.query(f"SELECT 1 FROM {records(self.inputs)} WHERE ({text}\n) IS NULL", empty(self.inputs))  # noqa: S608
            description = in_memory.query(f"DESCRIBE SELECT ({text}\n) AS v FROM {records(self.inputs)}", empty(self.inputs))  # noqa: S608
        except _BIND_ERRORS as error:
            texts = [name for name, kind in self.inputs if str(kind) == "VARCHAR"]
            hint = f"text columns: {', '.join(texts)}; write CAST(... AS type), or declare types in `columns`" if texts else ""
            raise InvalidPipeline(f"{where}: {in_words(str(error))}", hint) from error
        except _ROW_ERRORS as error:
            raise InvalidPipeline(f"{where}: it fails for every record: {in_words(str(error))}") from error
        return str(description.column("column_type")[0].as_py())

    def _query(self, sql: str, block: pa.Table) -> pa.Table:
        return in_memory.query(sql, block)

    def _duckdb(self, where: str, text: str, wanted: str) -> str:
        """Compile an expression of either dialect over these inputs."""
        return in_duckdb(self.inputs, where, text, wanted)


def in_duckdb(inputs: Columns, where: str, text: str, wanted: str = "") -> str:
    """Compile an expression to DuckDB's SQL. DuckDB's dialect stays unchanged, because `Selection` has compiled it.

    Args:
        inputs: names and types of the columns that it reads.
        where: name of the expression in messages.
        text: the expression, in either dialect.
        wanted: type of the result; `CONDITION`; empty: any.

    Raises:
        InvalidPipeline: it is not an expression, or does not fit these types.
    """
    if not is_mysql(text):
        return text
    try:
        return to_duckdb(text, of_columns(inputs), wanted)
    except Untranslated as error:
        raise InvalidPipeline(f"{where}: {error.what}", error.hint) from error


def fitted(inputs: Columns, where: str, text: str, kind: Type) -> str:
    """Return the expression as a value of that type, in its staged form; a value that equals none of them becomes NULL.

    Raises:
        InvalidPipeline: it does not fit these types, or none of its values can be converted.
    """
    text = in_duckdb(inputs, where, text, str(kind))
    have = Evaluator(inputs, "", ()).bound(where, text)
    have_type = _column_type(have)
    try:
        if have != '"NULL"' and have_type != kind and not _alike(have_type, kind):
            raise NotCoercible(f"cannot convert {have} to {kind}")
        value, bad = coercion(have, kind)
        equal = equality(have, kind)
    except NotCoercible as error:
        raise InvalidPipeline(f"{where}: {error}", f"write CAST(... AS {kind})") from error
    operand = f"({text}\n)"
    unfit = " OR ".join(part.format(operand) for part in (bad, equal and f"NOT coalesce({equal}, false)") if part)
    return f"CASE WHEN {unfit} THEN NULL ELSE {value.format(operand)} END" if unfit else value.format(operand)


def _alike(have: Type | None, want: Type) -> bool:
    """Return whether some values of the types can be converted: numbers, times, and text in both directions."""
    families = ("TIMESTAMP.*|DATE", r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(.*")
    if VARCHAR in (have, want) and isinstance(have, Scalar) and isinstance(want, Scalar):
        return True
    return any(re.fullmatch(family, str(have)) and re.fullmatch(family, str(want)) for family in families)


def described(table: pa.Table) -> list[tuple[str, Type | None]]:
    """Return the type of each column, as DuckDB names it and as kpipe does; None: no column can have it."""
    types = in_memory.query("DESCRIBE SELECT * FROM block", table).column("column_type").to_pylist()
    aliases = {'"NULL"': "VARCHAR", "TIMESTAMP_NS": "TIMESTAMP"}
    return [(str(duckdb_type), _column_type(aliases.get(str(duckdb_type), str(duckdb_type)))) for duckdb_type in types]


_ALIASES = {"TIMESTAMP_S": "TIMESTAMP", "TIMESTAMP_MS": "TIMESTAMP", "TIME_NS": "TIME"}


def _column_type(have: str) -> Type | None:
    try:
        return parse_type(_ALIASES.get(have, have))
    except InvalidPipeline:
        return None


def _kind(item: Assigned, have: str) -> Type:
    column_type = _column_type(have) if have != '"NULL"' else None
    if column_type is not None:
        return column_type
    what = "no type of its own" if have == '"NULL"' else f"type {have}, which no column can have"
    raise InvalidPipeline(f"set.{item.name}: the expression has {what}", "write CAST(... AS type), or declare a type")


def records(columns: Columns) -> str:
    """Return the block with each column cast to its type: Arrow has text for some, at any depth. None: unknown."""
    casts = [
        f"CAST({_quoted(n)} AS {sql_type(k)}) AS {_quoted(n)}" for n, k in columns if k is not None and contains(k, _AS_TEXT)
    ]
    return f"(SELECT * REPLACE ({', '.join(casts)}) FROM block) AS records" if casts else "block AS records"  # noqa: S608 - quoted


def empty(columns: Columns) -> pa.Table:
    """Return a block of these columns without rows; a type of None is unknown."""
    arrays = [pa.array([], pa.null() if kind is None else staged_type(kind)) for _, kind in columns]
    names = list(columns.names())
    return pa.table(arrays, names=names) if names else pa.table([pa.array([], pa.bool_())], names=["__kpipe_none"])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _others(rows: dict[int, str], count: int) -> np.ndarray[Any, Any]:
    """Return the indexes below `count` that are not among the rows."""
    left = np.ones(count, bool)
    left[list(rows)] = False
    return np.flatnonzero(left)


def _message(error: duckdb.Error) -> str:
    """Return the first line of DuckDB's message, without its prefix."""
    text = str(error).split("\n", 1)[0].partition("Error: ")[2] or str(error).split("\n", 1)[0]
    text = text.partition("while executing the UDF: Invalid: ")[2] or text  # the message of document_functions.py
    return text if len(text) <= 200 else text[:200] + "..."
