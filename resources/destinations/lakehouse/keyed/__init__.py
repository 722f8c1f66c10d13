"""Rows with a key in table formats: resolve keys to positions in files, and commit deleted positions with the new rows."""

from __future__ import annotations

from resources.destinations.lakehouse.keyed.destination import KeyedLakes, keyed

__all__ = ["KeyedLakes", "keyed"]
