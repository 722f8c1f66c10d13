"""Keyed rows in a task: reject payloads whose key is NULL, and remove rows of rejected payloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kpipe.schema.columns import Columns
from resources.decode.block import Decoded
from resources.decode.key_decoder import nulls

__all__ = ["set_aside", "with_keys"]


def with_keys(decoded: Decoded, key: Columns) -> Decoded:
    """Reject payloads with a row whose key is NULL, and remove all their rows."""
    return set_aside(decoded, nulls(decoded.table, key)) if decoded.rows else decoded


def set_aside(decoded: Decoded, bad: Mapping[int, str], refused: Mapping[int, str] | None = None) -> Decoded:
    """Remove all rows of payloads that have a bad row.

    Args:
        decoded: the rows.
        bad: reasons by row; their payloads become rejects.
        refused: reasons by row; their payloads become refused, unless they are rejects.
    """
    if not bad and not refused:
        return decoded
    kept = decoded.owners
    rejects: dict[int, str] = {}
    for row in sorted(bad):
        rejects.setdefault(int(kept[row]), bad[row])
    others: dict[int, str] = {}
    for row in sorted(refused or {}):
        if int(kept[row]) not in rejects:
            others.setdefault(int(kept[row]), (refused or {})[row])
    return replace(
        decoded.where(~np.isin(kept, [*rejects, *others])),
        rejects=sorted([*decoded.rejects, *rejects.items()]),
        refused=sorted([*decoded.refused, *others.items()]),
    )
