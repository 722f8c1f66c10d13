"""What table formats share that have no tables beside their own: the ledger as files, of which a commit names the newest."""

from __future__ import annotations

from resources.destinations.lakehouse.destination import LakeDestination

__all__ = ["LakeDestination"]
