"""Parquet destination: a folder of files, with manifests that list its rows; claiming the next manifest's name is a commit."""

from __future__ import annotations

from resources.destinations.parquet.table import ParquetFolder

__all__ = ["ParquetFolder"]
