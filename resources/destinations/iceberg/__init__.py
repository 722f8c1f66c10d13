"""Iceberg as a destination: staged files become the table's own, and the summary of their snapshot names the ledger."""

from __future__ import annotations

from resources.destinations.iceberg.table import IcebergLake

__all__ = ["IcebergLake"]
