"""Commits for tests of destinations: one table, with counts as the ledger stores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kpipe.batch.batch import Commit, TableWrite
from kpipe.batch.counts import Counts
from kpipe.batch.table_write import ByLane

__all__ = ["commit_to"]


def commit_to(write: TableWrite, counts: Mapping[ByLane, Counts], **fields: Any) -> Commit:
    """Make a commit that writes one table.

    Args:
        write: the write to the table; its counts are set.
        counts: counts of the ranges, with their rows.
        fields: other fields of `Commit`.
    """
    return Commit(tables=(write,), **fields).stored(counts)
