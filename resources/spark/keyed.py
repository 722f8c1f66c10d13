"""Rows with a key, in a task: what has no key is set aside, what a tombstone deletes is staged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from kpipe.schema import Columns
from resources.decode.block import Decoded
from resources.decode.keys import nulls

__all__ = ["with_keys"]


def with_keys(decoded: Decoded, key: Columns) -> Decoded:
    """Decoded rows less those of payloads with a row whose key is NULL; these payloads are rejects."""
    if not decoded.rows:
        return decoded
    bad = nulls(decoded.table, key)
    if not bad:
        return decoded
    kept = np.arange(decoded.rows) if decoded.kept is None else np.asarray(decoded.kept)
    reasons: dict[int, str] = {}
    for row, reason in bad.items():
        reasons.setdefault(int(kept[row]), reason)
    stay = ~np.isin(kept, list(reasons))
    return replace(
        decoded,
        table=decoded.table.filter(pa.array(stay)),
        rows=int(stay.sum()),
        kept=kept[stay].tolist(),
        rejects=sorted([*decoded.rejects, *reasons.items()]),
    )
