"""DuckDB as a destination: the table, its dead letters and its ledger in one file."""

from resources.destinations.duckdb.destination import DuckDBDestination

__all__ = ["DuckDBDestination"]
