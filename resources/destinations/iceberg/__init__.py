"""Iceberg destination: one snapshot commits staged files as the table's files, and its summary names the ledger."""

from __future__ import annotations

from resources.destinations.iceberg.audit import Audit
from resources.destinations.iceberg.audited import AuditedDestination
from resources.destinations.iceberg.catalogue import Postgres, Rest, Shared, SQLite
from resources.destinations.iceberg.table import NAMESPACE, IcebergLake

__all__ = ["NAMESPACE", "Audit", "AuditedDestination", "IcebergLake", "Postgres", "Rest", "SQLite", "Shared"]
