"""Delta Lake as a destination: staged files become the table's own, and one entry of its log says so with the ledger."""

from __future__ import annotations

from resources.destinations.delta.table import DeltaLake

__all__ = ["DeltaLake"]
