"""Delta Lake destination: staged files become the table's files, and one log entry commits them with the ledger."""

from __future__ import annotations

from resources.destinations.delta.table import DeltaLake

__all__ = ["DeltaLake"]
