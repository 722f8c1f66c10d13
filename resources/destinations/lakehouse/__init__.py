"""Shared parts of table formats without transactions over several tables: ledger files, the newest named by a commit."""

from __future__ import annotations

from resources.destinations.lakehouse.destination import LakeDestination

__all__ = ["LakeDestination"]
