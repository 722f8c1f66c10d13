"""Remove a schema registry's prefix before another decoder reads the payload: JSON that was written with a JSON Schema.

The schema is not fetched: a JSON Schema restricts objects, but is not needed to read their bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from resources.decode import confluent_wire
from resources.decode.block import Decoded, Decoder, Payloads

__all__ = ["FramedDecoder"]


class FramedDecoder:
    """Removes the prefix; a payload without one is a reject.

    Args:
        inner: decoder of the bytes after the prefix.
    """

    takes_nulls = False

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`."""
        _, good = confluent_wire.framed(payloads)
        if good.all():
            return self._inner.decode(confluent_wire.stripped(payloads), keys)
        chosen = np.flatnonzero(good)
        lines = [payloads[int(at)] for at in chosen]
        part = self._inner.decode(
            confluent_wire.stripped(Payloads.of(lines)), None if keys is None else keys.take(pa.array(chosen))
        )
        kept = chosen if part.kept is None else chosen[np.asarray(part.kept, np.int64)]
        rejects = [(int(chosen[at]), why) for at, why in part.rejects]
        rejects += [(int(at), confluent_wire.unframed(payloads[int(at)])) for at in np.flatnonzero(~good)]
        return replace(part, kept=kept.tolist(), rejects=sorted(rejects))
