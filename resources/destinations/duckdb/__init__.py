"""DuckDB destination: tables, dead letters and ledger in one file."""

from resources.destinations.duckdb.engine import DuckDBEngine

__all__ = ["DuckDBEngine"]
