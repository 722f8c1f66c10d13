"""Insert rows of staged Parquet files: DuckDB writes blocks of SQL literals, no row passes through Python."""

# ruff: noqa: S608 - names in statements are constants or quoted; values become literals here, which is the purpose of this module
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kpipe.errors import SchemaConflict
from kpipe.schema.columns import ListOf, MapOf, Scalar, Struct, Type
from resources.destinations.mysql.session import Session
from resources.destinations.sql import csv_copy
from resources.destinations.sql.column_matching import Match
from resources.destinations.sql.staged_reader import RECORD, first_record
from resources.duckdb_engine.sql_types import READ, fitted

__all__ = ["field", "filled", "insert"]

_BLOCK_ROWS = 8192
# Bytes of a statement: the server needs a fifth less time per row than with a megabyte (docs/adr/0021).
_STATEMENT = 100_000
_BARE = {
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
}  # fmt: skip
_INSTANT = Scalar("TIMESTAMP WITH TIME ZONE")


def field(match: Match) -> str:
    """Return a literal: an expression over a staged file that results in a text."""
    return filled(fitted(*match), match[2])


def filled(value: str, kind: Type) -> str:
    """Return a literal from an expression of that type."""
    if kind == Scalar("BLOB"):
        return f"coalesce('x''' || hex({value}) || '''', 'NULL')"
    if isinstance(kind, Scalar) and (kind.name in _BARE or kind.name.startswith("DECIMAL")):
        return f"coalesce(CAST({value} AS VARCHAR), 'NULL')"
    if kind == Scalar("FLOAT"):  # the server finds the shortest text of the largest FLOAT, 3.4028235e+38, out of range
        value, kind = f"CAST({value} AS DOUBLE)", Scalar("DOUBLE")
    instant = (
        f"CAST(coalesce(make_timestamp(epoch_us({value})), CAST({value} AS TIMESTAMP)) AS VARCHAR)"  # the server rejects infinity
    )
    text = instant if kind == _INSTANT else csv_copy.text(value, kind)
    if isinstance(kind, (ListOf, MapOf, Struct)) or kind.name in ("VARCHAR", "JSON"):
        text = rf"replace(replace({text}, '\', '\\'), '''', '''''')"
    return f"coalesce('''' || {text} || '''', 'NULL')"


def insert(
    session: Session,
    reader: Any,
    into: str,
    columns: Sequence[str],
    fields: Sequence[str],
    paths: Sequence[str],
    where: str,
    source: str = "",
) -> int:
    """Insert the rows of files, and return the number of rows that the server inserted.

    Args:
        session: inside a transaction.
        reader: DuckDB's connection to the staged files.
        into: the table, as SQL.
        columns: its columns, as SQL.
        fields: an expression for each column.
        paths: the files.
        where: the table, for messages.
        source: a relation of DuckDB, instead of files.

    Raises:
        SchemaConflict: the server would change a value, or a row is longer than max_allowed_packet.
    """
    head = f"INSERT INTO {into} ({', '.join(columns)}) VALUES ".encode()
    longest, count = session.packet - len(head) - 1, 0
    between = ", ',', ".join(fields)
    rows_of, parameters = source or READ.format("?"), [] if source else [list(paths)]
    statement = f"SELECT concat(',(', {between}, ')') FROM {rows_of}"
    too_long = 0
    # Close the result before the next query: DuckDB 2 runs one query at a time on a connection.
    with reader.sql(statement, params=parameters).to_arrow_reader(_BLOCK_ROWS) as blocks:
        for rows in (part for block in blocks for part in _cut(block.column(0))):
            if len(rows) > longest:
                too_long = len(rows)
                break
            count += session.insert(head + rows[1:], where)
    if too_long:
        raise _too_long(session, reader, statement, (rows_of, parameters), too_long, where)
    return count


def _cut(array: Any) -> Iterator[bytes]:
    """Yield the rows of a block in parts of about 100 KB; a longer row is a part of its own."""
    if not len(array):
        return
    data = csv_copy.joined(array)
    ends = np.cumsum(csv_copy.sizes(array))
    at = start = 0
    while start < len(ends):
        stop = max(int(np.searchsorted(ends, at + _STATEMENT, side="right")), start + 1)
        yield bytes(data[at : int(ends[stop - 1])])
        at, start = int(ends[stop - 1]), stop


def _too_long(
    session: Session, reader: Any, statement: str, rows: tuple[str, list[Any]], size: int, where: str
) -> SchemaConflict:
    source, parameters = rows
    names = [row[0] for row in reader.execute(f"DESCRIBE SELECT * FROM {source}", parameters).fetchall()]
    line = statement.removeprefix("SELECT ").rsplit(" FROM ", 1)[0]
    at = [name for name in RECORD if name in names]
    found = first_record(reader, at, source, parameters, f"ORDER BY strlen({line}) DESC")
    assert found is not None  # one of the rows was too long
    return SchemaConflict(
        f"{where}: the row of {found[0]} is {size} bytes long: expected at most {session.packet}"
        " (max_allowed_packet); nothing was written",
        "SET GLOBAL max_allowed_packet to a larger value; or remove such records in a transform",
    )
