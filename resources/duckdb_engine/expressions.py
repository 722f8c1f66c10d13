"""Expressions over a block of columns, by DuckDB: checked before anything runs, and exact about which row fails and why."""

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
from kpipe.expressions.languages import is_mysql, to_duckdb
from kpipe.expressions.mysql.columns import of_columns
from kpipe.schema.columns import VARCHAR, Columns, Scalar, Type, parse_type
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import staged_type
from resources.duckdb_engine.column_casts import NotCoercible, coercion
from resources.duckdb_engine.error_messages import in_words

__all__ = ["Assigned", "Evaluator", "described", "empty", "fitted", "in_duckdb", "records"]

# What fails for the values of a row. Anything else (memory, a defect) is no row's fault.
_ROW_ERRORS = (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.InvalidInputException, duckdb.InvalidTypeException)
_BIND_ERRORS = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException, duckdb.NotImplementedException)
# Each further failing row of a block has no message of its own: it would have to be run alone.
_MOST_REASONS = 100


@dataclass(frozen=True)
class Assigned:
    """A column that an expression gives.

    Attributes:
        name: of the column.
        text: the expression.
        kind: the column's type; None: that of the expression.
    """

    name: str
    text: str
    kind: Type | None = None


class Evaluator:
    """Evaluates a pipeline's expressions over blocks of rows.

    Args:
        inputs: names and types of what the expressions take values from.
        where: which rows are wanted; empty: all.
        assigned: columns to compute.

    Raises:
        InvalidPipeline: an expression does not fit these types, or its value not its column.
    """

    def __init__(self, inputs: Columns, where: str, assigned: Sequence[Assigned]) -> None:
        self.inputs = inputs
        self._where = self._duckdb("where", where, "BOOLEAN") if where else ""
        self._texts = [self._duckdb(f"set.{item.name}", item.text, str(item.kind or "")) for item in assigned]
        self._names = [item.name for item in assigned]
        if where:
            self.bound("where", f"CAST(({self._where}\n) AS BOOLEAN)")
        found = [self.bound(f"set.{item.name}", text) for item, text in zip(assigned, self._texts, strict=True)]
        kinds = [_kind(item, have) if item.kind is None else item.kind for item, have in zip(assigned, found, strict=True)]
        #: The computed columns with their types.
        self.columns = Columns(tuple(zip(self._names, kinds, strict=True)))
        parts = []
        for at, (item, have, kind) in enumerate(zip(assigned, found, kinds, strict=True)):
            try:
                value, bad = coercion(have, kind)
            except NotCoercible as error:
                raise InvalidPipeline(f"set.{item.name}: {error}", f"write CAST(... AS {kind})") from error
            place = f'"__kpipe_{at}"'
            parts.append((value.format(place), bad.format(place) if bad else ""))
        values = [f"{value} AS c{at}" for at, (value, _) in enumerate(parts)]
        self._bad = [at for at, (_, bad) in enumerate(parts) if bad]
        values += [f"({parts[at][1]}) AS b{at}" for at in self._bad]
        inner = ", ".join(f'({text}\n) AS "__kpipe_{at}"' for at, text in enumerate(self._texts))
        self._values = f"SELECT {', '.join(values)} FROM (SELECT {inner} FROM {records(inputs)})"  # noqa: S608 - see `records`
        if assigned:
            try:
                in_memory.query(self._values, empty(inputs))
            except duckdb.Error as error:
                raise InvalidPipeline(f"set: {in_words(str(error))}", "write CAST(... AS type)") from error

    def holds(self, block: pa.Table) -> tuple[np.ndarray[Any, Any], dict[int, str]]:
        """For each row whether it is wanted, and the reasons of those for which that cannot be said."""
        text = f"CAST(({self._where}\n) AS BOOLEAN)"
        sql = f"SELECT {text} AS w FROM {records(self.inputs)}"  # noqa: S608 - see `records`
        found, reasons = self._run(sql, block, [("where", text)])
        wanted = np.zeros(block.num_rows, bool)
        good = _others(reasons, block.num_rows)
        wanted[good] = pc.fill_null(found.column("w"), False).to_numpy()
        return wanted, reasons

    def values(self, block: pa.Table) -> tuple[pa.Table, dict[int, str]]:
        """The computed columns of the good rows, in staged types, and the reasons of the other rows by index."""
        said = [(name, text) for name, text in zip(self._names, self._texts, strict=True)]
        found, reasons = self._run(self._values, block, said)
        places = _others(reasons, block.num_rows)
        good = np.ones(len(places), bool)
        for at in self._bad:
            name, kind = self.columns.items[at]
            for row in np.flatnonzero(found.column(f"b{at}").to_numpy()).tolist():
                value = self._shown(at, block.slice(int(places[row]), 1)) if len(reasons) < _MOST_REASONS else "a value"
                reasons.setdefault(int(places[row]), f"{name}: {value} is no {kind}")
                good[row] = False
        arrays = [found.column(f"c{at}").cast(staged_type(kind)) for at, (_, kind) in enumerate(self.columns)]
        table = pa.table(arrays, names=list(self.columns.names()))
        return table if good.all() else table.filter(pa.array(good)), reasons

    def _run(self, sql: str, block: pa.Table, said: Sequence[tuple[str, str]]) -> tuple[pa.Table, dict[int, str]]:
        try:
            return self._asked(sql, block), {}
        except _ROW_ERRORS:
            failing = self._failing(block, said)
        if not failing:  # what fails is no row of its own: the same error once more, for whoever reads it
            return self._asked(sql, block), {}
        reasons = {at: self._why(block.slice(at, 1), said) if n < _MOST_REASONS else "an expression fails for it"
                   for n, at in enumerate(failing)}  # fmt: skip
        return self._asked(sql, block.take(pa.array(_others(reasons, block.num_rows)))), reasons

    def _failing(self, block: pa.Table, said: Sequence[tuple[str, str]]) -> list[int]:
        """Rows for which some expression fails: TRY gives NULL for these, and a STRUCT is none otherwise."""
        tries = " AND ".join(f"TRY({{'v': ({text}\n)}}) IS NOT NULL" for _, text in said)
        try:
            found = self._asked(f"SELECT {tries} AS ok FROM {records(self.inputs)}", block)  # noqa: S608 - see `records`
            return [int(at) for at in np.flatnonzero(~found.column("ok").to_numpy())]
        # TRY takes nothing volatile; and what stands there twice is evaluated once, outside of it: in halves, then.
        except (duckdb.BinderException, *_ROW_ERRORS):
            return list(self._halves(block, said, 0))

    def _halves(self, block: pa.Table, said: Sequence[tuple[str, str]], start: int) -> Iterator[int]:
        texts = ", ".join(f"({text}\n) AS t{at}" for at, (_, text) in enumerate(said))
        try:
            self._asked(f"SELECT {texts} FROM {records(self.inputs)}", block)  # noqa: S608 - see `records`
        except _ROW_ERRORS:
            if block.num_rows == 1:
                yield start
                return
            half = block.num_rows // 2
            yield from self._halves(block.slice(0, half), said, start)
            yield from self._halves(block.slice(half), said, start + half)

    def _why(self, row: pa.Table, said: Sequence[tuple[str, str]]) -> str:
        for name, text in said:
            try:
                self._asked(f"SELECT ({text}\n) AS v FROM {records(self.inputs)}", row)  # noqa: S608 - see `records`
            except _ROW_ERRORS as error:
                return f"{name}: {_message(error)}"
        return "an expression fails for it"

    def _shown(self, at: int, row: pa.Table) -> str:
        """The value of an expression for a row, in a few characters."""
        sql = f"SELECT CAST(({self._texts[at]}\n) AS VARCHAR) AS v FROM {records(self.inputs)}"  # noqa: S608 - see `records`
        text = str(self._asked(sql, row).column("v")[0].as_py())
        return text if len(text) <= 40 else text[:40] + "..."

    def bound(self, where: str, text: str) -> str:
        """Type of an expression over these inputs, as DuckDB names it.

        Raises:
            InvalidPipeline: it does not fit them.
        """
        try:
            # Where WHERE takes it, it is no aggregate, no window and no UNNEST.
            in_memory.query(f"SELECT 1 FROM {records(self.inputs)} WHERE ({text}\n) IS NULL", empty(self.inputs))  # noqa: S608
            found = in_memory.query(f"DESCRIBE SELECT ({text}\n) AS v FROM {records(self.inputs)}", empty(self.inputs))  # noqa: S608
        except _BIND_ERRORS as error:
            texts = [name for name, kind in self.inputs if str(kind) == "VARCHAR"]
            hint = (
                f"these are text: {', '.join(texts)}; CAST(... AS type), or declare their types under `columns`" if texts else ""
            )
            raise InvalidPipeline(f"{where}: {in_words(str(error))}", hint) from error
        except _ROW_ERRORS as error:
            raise InvalidPipeline(f"{where}: it fails whatever the record holds: {in_words(str(error))}") from error
        return str(found.column("column_type")[0].as_py())

    def _asked(self, sql: str, block: pa.Table) -> pa.Table:
        return in_memory.query(sql, block)

    def _duckdb(self, where: str, text: str, wanted: str) -> str:
        """An expression of either language as DuckDB runs it over these inputs."""
        return in_duckdb(self.inputs, where, text, wanted)


def in_duckdb(inputs: Columns, where: str, text: str, wanted: str = "") -> str:
    """Return an expression as DuckDB runs it. One of DuckDB's language is taken as it is: `Selection` has made it so.

    Args:
        inputs: names and types of what it takes values from.
        where: for messages.
        text: the expression, of either language.
        wanted: type that its value is to have; empty: any.

    Raises:
        InvalidPipeline: it is none, or does not fit these types.
    """
    if not is_mysql(text):
        return text
    try:
        return to_duckdb(text, of_columns(inputs), wanted)
    except Untranslated as error:
        raise InvalidPipeline(f"{where}: {error.what}", error.hint) from error


def fitted(inputs: Columns, where: str, text: str, kind: Type) -> str:
    """The expression as a value of that type, in its staged form; NULL where its value is none.

    Raises:
        InvalidPipeline: it does not fit these types, or no value of it is one of that type.
    """
    text = in_duckdb(inputs, where, text, str(kind))
    have = Evaluator(inputs, "", ()).bound(where, text)
    known = _column_type(have)
    try:
        if have != '"NULL"' and known != kind and not _alike(known, kind):
            raise NotCoercible(f"a value of type {have} is no {kind}")
        value, bad = coercion(have, kind)
    except NotCoercible as error:
        raise InvalidPipeline(f"{where}: {error}", f"write CAST(... AS {kind})") from error
    place = f"({text}\n)"
    return f"CASE WHEN {bad.format(place)} THEN NULL ELSE {value.format(place)} END" if bad else value.format(place)


def _alike(have: Type | None, want: Type) -> bool:
    """Whether a value of the one type may be one of the other: numbers, times, and text that says either."""
    families = ("TIMESTAMP.*|DATE", r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(.*")
    if VARCHAR in (have, want) and isinstance(have, Scalar) and isinstance(want, Scalar):
        return True
    return any(re.fullmatch(family, str(have)) and re.fullmatch(family, str(want)) for family in families)


def described(table: pa.Table) -> list[tuple[str, Type | None]]:
    """Type of each column, as DuckDB names it, and as kpipe knows it; None: no column can have it."""
    found = in_memory.query("DESCRIBE SELECT * FROM block", table).column("column_type").to_pylist()
    known = {'"NULL"': "VARCHAR", "TIMESTAMP_NS": "TIMESTAMP"}
    return [(str(said), _column_type(known.get(str(said), str(said)))) for said in found]


_ALIASES = {"TIMESTAMP_S": "TIMESTAMP", "TIMESTAMP_MS": "TIMESTAMP", "TIME_NS": "TIME"}


def _column_type(have: str) -> Type | None:
    try:
        return parse_type(_ALIASES.get(have, have))
    except InvalidPipeline:
        return None


def _kind(item: Assigned, have: str) -> Type:
    found = _column_type(have) if have != '"NULL"' else None
    if found is not None:
        return found
    what = "no type of its own" if have == '"NULL"' else f"type {have}, which no column can have"
    raise InvalidPipeline(f"set.{item.name}: the expression has {what}", "write CAST(... AS type), or declare the column's type")


def records(columns: Columns) -> str:
    """Return the block with every column in its type: text stands for what Arrow has no type for."""
    casts = [f"CAST({_quoted(n)} AS {k}) AS {_quoted(n)}" for n, k in columns if str(k) in ("JSON", "UUID", "HUGEINT")]
    return f"(SELECT * REPLACE ({', '.join(casts)}) FROM block) AS records" if casts else "block AS records"  # noqa: S608 - quoted


def empty(columns: Columns) -> pa.Table:
    """Return a block of these columns without rows; a type of None is unknown."""
    arrays = [pa.array([], pa.null() if kind is None else staged_type(kind)) for _, kind in columns]
    names = list(columns.names())
    return pa.table(arrays, names=names) if names else pa.table([pa.array([], pa.bool_())], names=["__kpipe_none"])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _others(rows: dict[int, str], count: int) -> np.ndarray[Any, Any]:
    """The indices below `count` that are not among the rows."""
    left = np.ones(count, bool)
    left[list(rows)] = False
    return np.flatnonzero(left)


def _message(error: duckdb.Error) -> str:
    """The first sentence of what DuckDB says, without its prefix."""
    text = str(error).split("\n", 1)[0].partition("Error: ")[2] or str(error).split("\n", 1)[0]
    text = text.partition("while executing the UDF: Invalid: ")[2] or text  # what document_functions.py says
    return text if len(text) <= 200 else text[:200] + "..."
