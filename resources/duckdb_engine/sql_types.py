"""Write kpipe's column types, and reads of staged files, as DuckDB's SQL."""

from __future__ import annotations

from kpipe.schema.columns import ListOf, MapOf, Struct, Type
from resources.duckdb_engine.sandbox import quote

__all__ = ["READ", "fitted", "sql_type"]

#: A file's own columns are all there is: none is guessed from a path (hive).
READ = "read_parquet({}, hive_partitioning = false, union_by_name = false, filename = false)"


def sql_type(kind: Type) -> str:
    """A type as DuckDB takes it. Field names are always quoted: `order` is a word of SQL."""
    if isinstance(kind, ListOf):
        return f"{sql_type(kind.item)}[]"
    if isinstance(kind, MapOf):
        return f"MAP(VARCHAR, {sql_type(kind.item)})"
    if isinstance(kind, Struct):
        return "STRUCT(" + ", ".join(f"{quote(name)} {sql_type(item)}" for name, item in kind.fields) + ")"
    return kind.name


def fitted(name: str, kind: Type, have: Type) -> str:
    """A column of a staged file as the type that the table has: an expression of DuckDB's."""
    return quote(name) if kind == have else f"CAST({quote(name)} AS {sql_type(have)})"
