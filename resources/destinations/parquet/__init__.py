"""A folder of Parquet files as a destination: a manifest says which files are rows, and claims its name as a commit."""

from __future__ import annotations

from resources.destinations.parquet.table import ParquetFolder

__all__ = ["ParquetFolder"]
