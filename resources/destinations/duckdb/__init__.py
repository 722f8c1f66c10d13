"""DuckDB as a destination: the table, its dead letters and its ledger in one file."""

from resources.destinations.duckdb.engine import DuckDBEngine

__all__ = ["DuckDBEngine"]
