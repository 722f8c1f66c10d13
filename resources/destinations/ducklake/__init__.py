"""DuckLake destination: tables, dead letters and ledger in one DuckLake transaction."""

from resources.destinations.ducklake.engine import DuckLakeEngine

__all__ = ["DuckLakeEngine"]
