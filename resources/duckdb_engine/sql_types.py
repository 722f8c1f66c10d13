"""Write kpipe's column types, and reads of staged files, in DuckDB's SQL."""

from __future__ import annotations

from kpipe.schema.columns import ListOf, MapOf, Struct, Type
from resources.duckdb_engine.sandbox import quote

__all__ = ["READ", "fitted", "sql_type"]

#: Reads only a file's own columns: none is inferred from its path (hive).
READ = "read_parquet({}, hive_partitioning = false, union_by_name = false, filename = false)"


def sql_type(kind: Type) -> str:
    """Return a type in DuckDB's SQL. Field names are always quoted, because `order` is a keyword."""
    if isinstance(kind, ListOf):
        return f"{sql_type(kind.item)}[]"
    if isinstance(kind, MapOf):
        return f"MAP(VARCHAR, {sql_type(kind.item)})"
    if isinstance(kind, Struct):
        return "STRUCT(" + ", ".join(f"{quote(name)} {sql_type(item)}" for name, item in kind.fields) + ")"
    return kind.name


def fitted(name: str, kind: Type, have: Type) -> str:
    """Return SQL that casts a column of a staged file to the type of the table's column."""
    return quote(name) if kind == have else f"CAST({quote(name)} AS {sql_type(have)})"
