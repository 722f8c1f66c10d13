"""Records whose rows the table has refused, in a task: no row of theirs is staged, they are set aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from resources.decode.block import Decoded

__all__ = ["without"]


def without(decoded: Decoded, offsets: Sequence[int], refused: Mapping[int, str]) -> Decoded:
    """Decoded rows less those of these records, which are refused.

    Args:
        decoded: what became of a block.
        offsets: of its records.
        refused: reasons by offset.
    """
    known = {at for at, _ in (*decoded.rejects, *decoded.refused)}
    bad = {at: refused[offset] for at, offset in enumerate(offsets) if offset in refused and at not in known}
    if not bad:
        return decoded
    kept = np.arange(decoded.rows) if decoded.kept is None else np.asarray(decoded.kept, np.int64)
    stay = ~np.isin(kept, list(bad))
    return replace(
        decoded,
        table=decoded.table.filter(pa.array(stay)),
        rows=int(stay.sum()),
        kept=kept[stay].tolist(),
        refused=sorted([*decoded.refused, *bad.items()]),
    )
