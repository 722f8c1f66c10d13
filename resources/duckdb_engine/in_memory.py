"""Run DuckDB as the worker's vector engine: one in-memory connection for each thread, without access to files or network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb.func import FunctionNullHandling, PythonUDFType

from kpipe.expressions.json_text import contains
from kpipe.expressions.short_cache import short_cache
from kpipe.schema.columns import FLOAT, Columns, Scalar, Type
from resources.duckdb_engine import exact_numbers
from resources.duckdb_engine.arrow_types import LARGEST_FLOAT, cast_type, needs_cast, staged_type, with_bytes
from resources.duckdb_engine.memory_limit import engine_setting
from resources.duckdb_engine.mysql_functions import register
from resources.duckdb_engine.strict_json import IS_JSON, is_json
from resources.duckdb_engine.timestamp_texts import instants

__all__ = [
    "ask",
    "cast",
    "castable",
    "decimal_sql",
    "evaluated",
    "forget",
    "interrupter",
    "json_valid",
    "lost",
    "parse_sql",
    "parsed",
    "query",
    "text_of",
]


_own = threading.local()


class _Guarded:
    """A connection that its thread forgets after a fatal error: DuckDB would fail every later statement."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._connection, name)

        def guarded(*values: Any) -> Any:
            try:
                return call(*values)
            except (duckdb.FatalException, duckdb.InternalException):
                forget()
                raise

        return guarded


def _connection() -> Any:
    """Return the connection of this thread; a connection runs one call at a time."""
    if not hasattr(_own, "connection"):
        _own.connection = _made()
    return _Guarded(_own.connection)


def _made() -> duckdb.DuckDBPyConnection:
    # One thread: Spark runs a task per core. Settings: reliability rules on replacement scans and extensions.
    settings = {
        "threads": "1",
        "memory_limit": engine_setting(),
        "temp_directory": "",  # blocks fit into memory; the default would be a folder in the current one
        "TimeZone": "UTC",
        "python_enable_replacements": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "enable_external_access": "false",
    }
    connection = duckdb.connect(":memory:")
    connection.create_function("kpipe_fixed", exact_numbers.fixed, ["VARCHAR", "INTEGER"], "VARCHAR")
    connection.create_function("kpipe_at_scale", exact_numbers.at_scale, ["VARCHAR", "INTEGER"], "BOOLEAN")
    connection.create_function("kpipe_real", exact_numbers.real, ["VARCHAR"], "VARCHAR")
    connection.create_function(
        IS_JSON, _is_json, ["VARCHAR"], "BOOLEAN", type=PythonUDFType.ARROW, null_handling=FunctionNullHandling.SPECIAL
    )
    register(connection)
    for name, value in settings.items():
        connection.execute(f"SET {name} = '{value}'")
    connection.execute("SET lock_configuration = true")
    return connection


def _is_json(texts: Any) -> Any:  # DuckDB evaluates the annotations of functions: they must not name Arrow's types
    return is_json(texts)


def interrupter() -> Callable[[], None]:
    """Return a function with which another thread can interrupt this thread's running query, if any."""
    own = vars(_own)  # of this thread, even if another one reads it

    def interrupt() -> None:
        connection = own.get("connection")
        if connection is not None:
            connection.interrupt()

    return interrupt


def forget() -> None:
    """Close this thread's connection; the next call opens a new one."""
    if hasattr(_own, "connection"):
        _own.connection.close()
        del _own.connection


def query(sql: str, table: pa.Table) -> pa.Table:
    """Run a query over a table named `block`.

    Raises:
        duckdb.Error: the query fails.
    """
    connection = _connection()
    connection.register("block", table)
    try:
        return connection.sql(sql).to_arrow_table()
    finally:
        connection.unregister("block")


def ask(sql: str, values: Sequence[object]) -> Any:
    """Return the single value of a query without a table.

    Raises:
        duckdb.Error: the query fails.
    """
    return _connection().execute(sql, values).fetchall()[0][0]  # fetch everything: else the connection stays busy


def json_valid(values: pa.Array) -> pa.Array:
    """Return for each text whether DuckDB reads it as one JSON document, which need not be strict (`is_json`)."""
    table = pa.table({"v": values})
    return query("SELECT json_valid(v) AS ok FROM block", table).column("ok").combine_chunks()


def cast(table: pa.Table, columns: Columns) -> pa.Table:
    """Cast every column of the table to its staged type.

    Raises:
        duckdb.Error: a value cannot be cast.
    """
    casts = {at: kind for at, (_, kind) in enumerate(columns) if needs_cast(kind)}
    arrays: dict[int, pa.Array | pa.ChunkedArray] = dict(enumerate(table.columns))
    left = {}  # columns for DuckDB; the others do not pass through it
    for at, kind in casts.items():
        found = instants(table.column(at), kind)
        if found is None:
            left[at] = kind
        else:
            arrays[at] = found
    return pa.table([*{**arrays, **_cast_all(table, left)}.values()], names=list(columns.names())) if casts else table


def _cast_all(table: pa.Table, columns: Mapping[int, Type]) -> dict[int, pa.ChunkedArray]:
    """Cast these columns, by their positions.

    Raises:
        duckdb.Error: a value cannot be cast.
    """
    if not columns:
        return {}
    renamed = pa.table([_bytes(table.column(at), kind) for at, kind in columns.items()], names=[f"c{at}" for at in columns])
    lossy = [f"({_LOSSY[str(kind)].format(f'c{at}')})" for at, kind in columns.items() if str(kind) in _LOSSY]
    sql = f"SELECT count(*) AS n FROM block WHERE {' OR '.join(lossy)}"  # noqa: S608 - column names are our own
    if lossy and query(sql, renamed).column("n")[0].as_py():
        msg = "a cast would change the value of a text"
        raise duckdb.ConversionException(msg)
    parts = [_cast(f"c{at}", kind) for at, kind in columns.items()]
    result = query(f"SELECT {', '.join(parts)} FROM block", renamed)  # noqa: S608 - column names are our own
    pairs = zip(columns.items(), result.columns, strict=True)
    return {at: array if array.type == staged_type(kind) else array.cast(staged_type(kind)) for (at, kind), array in pairs}


def _bytes(array: pa.ChunkedArray, kind: Type) -> pa.ChunkedArray:
    """Convert the texts of BLOBs inside of a column: DuckDB's cast reads \\x41 as one byte, and refuses letters beyond ASCII."""
    return array if isinstance(kind, Scalar) or not contains(kind, {"BLOB"}) else array.cast(with_bytes(kind))


_DATE = r"\s*(-?[0-9]+[-/\\ ][0-9][0-9]?[-/\\ ][0-9][0-9]?( \(BC\))?|epoch|-?inf(inity)?)\s*"
_TIME = r"\s*[0-9][0-9]?:[0-9][0-9]?(:[0-9][0-9]?([.][0-9]*)?)?\s*"
# Conditions on texts that DuckDB casts with a silent loss (measured on 2.0.0). Rounding a DECIMAL to its scale and times to
# microseconds is intended. A cast to TIME drops the text after the digits (PM, a zone), a cast to DATE a time of day;
# `2026-11-20` is accepted early, for speed.
_LOSSY = {
    "DATE": f"(length({{0}}) <> 10 OR contains({{0}}, ':')) AND NOT regexp_full_match({{0}}, '{_DATE}', 'i')",
    "TIME": f"NOT regexp_full_match({{0}}, '{_TIME}')",
    "HUGEINT": "NOT regexp_full_match({0}, '[+-]?[0-9]+')",
}


def _cast(column: str, kind: Type) -> str:
    if not needs_cast(kind):
        return column
    if str(kind) == "TIMESTAMP":  # cast directly, `10:00+02:00` becomes 10:00; a time without zone is UTC
        return f"CAST(CAST({column} AS TIMESTAMPTZ) AT TIME ZONE 'UTC' AS TIMESTAMP) AS {column}"
    if str(kind) == "BLOB":
        return f"encode({column}) AS {column}"
    if staged_type(kind) == pa.string():  # UUID, HUGEINT: validated, and kept as text
        return f"CAST(CAST({column} AS {kind}) AS VARCHAR) AS {column}"
    if kind == FLOAT:  # a DOUBLE, not a text
        return f"CAST({column} AS FLOAT) AS {column}"
    value = _exact(column, kind.name) if isinstance(kind, Scalar) else column  # inside of nested types, texts are exact already
    return f"CAST({value} AS {cast_type(kind)}) AS {column}"


def _exact(column: str, kind: str) -> str:
    """Return SQL of a text that DuckDB casts to the scalar type exactly or refuses; unchanged for most types."""
    separated = f"contains({column}, '_')"  # DuckDB reads 1_0 as 10; the functions of exact_numbers refuse it
    if kind in ("DOUBLE", "FLOAT"):
        return f"CASE WHEN strlen({column}) > {exact_numbers.LONGEST} OR {separated} THEN kpipe_real({column}) ELSE {column} END"
    if not kind.startswith("DECIMAL("):
        return column
    scale = int(kind.removesuffix(")").rpartition(",")[2])
    other = f"strlen({column}) > {exact_numbers.PLAIN} OR contains(lower({column}), 'e') OR {separated}"
    return f"CASE WHEN {other} THEN kpipe_fixed({column}, {scale}) ELSE {column} END"


def parsed(texts: pa.Table, columns: Columns) -> pa.Table:
    """Convert columns of text to their scalar types, in staged types; NULL for an invalid or inexact value."""
    renamed = texts.rename_columns([f"c{at}" for at in range(texts.num_columns)])
    parts = [f"{parse_sql(f'c{at}', str(kind))} AS c{at}" for at, (_, kind) in enumerate(columns)]
    result = query(f"SELECT {', '.join(parts)} FROM block", renamed)  # noqa: S608 - column names are our own
    arrays = [result.column(at).cast(staged_type(kind)) for at, (_, kind) in enumerate(columns)]
    return pa.table(arrays, names=list(columns.names()))


def lost(texts: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> list[int]:
    """Return the rows whose text is not NULL while its value is: `parsed` could not convert it."""
    if values.null_count == texts.null_count:
        return []
    return [int(row) for row in pc.indices_nonzero(pc.and_(pc.is_valid(texts), pc.is_null(values))).to_pylist()]


def parse_sql(column: str, kind: str) -> str:
    """Return SQL that converts text to a scalar type, in its staged form; NULL for an invalid or inexact value."""
    if kind == "JSON":
        return f"CASE WHEN {IS_JSON}({column}) THEN {column} END"
    if kind.endswith(("INT", "INTEGER")):  # else 1.5 would become 2, and 0x10 16
        value = f"CASE WHEN regexp_full_match({column}, '[+-]?[0-9]+') THEN TRY_CAST({column} AS {kind}) END"
        return f"CAST({value} AS VARCHAR)" if kind == "HUGEINT" else value
    if kind in ("DOUBLE", "FLOAT"):
        wide = f"TRY_CAST({_exact(column, kind)} AS DOUBLE)"
        if kind == "DOUBLE":
            return wide
        # DuckDB casts a value out of range for FLOAT to infinity.
        return f"CASE WHEN abs({wide}) <= {LARGEST_FLOAT} OR NOT isfinite({wide}) THEN CAST({wide} AS FLOAT) END"
    value = f"TRY_CAST({_exact(column, kind)} AS {kind})"
    if kind.startswith("TIMESTAMP"):
        instant = f"TRY_CAST({column} AS TIMESTAMPTZ)"
        return f"CAST({instant} AT TIME ZONE 'UTC' AS TIMESTAMP)" if kind == "TIMESTAMP" else instant
    if kind == "UUID":
        value = f"CAST({value} AS VARCHAR)"
    lossy = _LOSSY.get(kind)
    return f"CASE WHEN NOT ({lossy.format(column)}) THEN {value} END" if lossy else value


def decimal_sql(value: str, have: str, want: str) -> str:
    """Return SQL that rounds a number of a scalar type to a DECIMAL; NULL beyond its precision, and for NaN.

    A DOUBLE and a FLOAT are the number that their shortest text shows, 1.005 and not 1.00499999999999989. DuckDB's cast
    multiplies them by a power of ten, which rounds 1.005 to 1.00, and appends digits that the number does not have.
    """
    return parse_sql(f"CAST({value} AS VARCHAR)", want) if have in ("DOUBLE", "FLOAT") else f"TRY_CAST({value} AS {want})"


@short_cache(maxsize=4096, longest=100)  # dates, numbers and UUIDs are shorter, with the name of their type
def castable(text: str, kind: str) -> str | None:
    """Return the text in a form that casts to the type without loss, or None. Times with a zone are converted to UTC."""
    value = "CAST(TRY_CAST($1 AS TIMESTAMPTZ) AT TIME ZONE 'UTC' AS VARCHAR)" if kind == "TIMESTAMP" else _exact("$1", kind)
    is_lossy = _LOSSY.get(kind, "false").format("$1")
    where = f"TRY_CAST({_exact('$1', kind)} AS {kind}) IS NOT NULL AND NOT ({is_lossy})"
    rows = _connection().execute(f"SELECT {value} WHERE {where}", [text]).fetchall()
    return str(rows[0][0]) if rows and rows[0][0] is not None else None


def text_of(value: pa.Scalar) -> str:
    """Return a value that is not NULL as text, for messages: `as_py` fails on times beyond Python's years 1 to 9999."""
    return str(evaluated(pa.array([value], value.type), "CAST(v AS VARCHAR)")[0].as_py())


def evaluated(values: pa.Array, *expressions: str) -> pa.Array:
    """Evaluate SQL expressions over a column `v`, each over the result of the one before. They must not contain text of a record.

    Raises:
        duckdb.Error: an expression fails.
    """
    source = "block"
    for expression in expressions:
        source = f"(SELECT {expression} AS v FROM {source})"  # noqa: S608 - our own text
    return query(f"SELECT v FROM {source}", pa.table({"v": values})).column("v").combine_chunks()  # noqa: S608 - as above
