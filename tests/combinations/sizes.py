"""Constants of kpipe that an example lowers, so that a few records reach the code that is meant for many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import pytest

from resources.destinations.kafka import rows as kafka_rows
from resources.destinations.lake import history
from resources.destinations.webhook import rows as webhook_rows
from resources.kafka import reader
from resources.spark import files, session, shared, stager, worker

__all__ = ["NAMES", "lowered"]

#: By name: the module, the constant, and the values that are worth a try. Rows of a row group decide which ranges share a file.
NAMES = {
    "group_rows": (files, "_GROUP_ROWS", (2, 5, 20)),
    "block_records": (reader, "BLOCK_RECORDS", (1, 3, 8)),
    "kafka_block": (kafka_rows, "_BLOCK", (1, 3, 10)),
    "webhook_block": (webhook_rows, "_BLOCK", (1, 3, 10)),
    "webhook_partitions": (webhook_rows, "_AT_ONCE", (1, 2)),
    "short_range": (worker, "_SHORT", (1, 10)),
    "shared_bytes": (shared, "_BYTES", (1, 4000)),
    "lake_history": (history, "_TAIL_COMMITS", (1, 2)),
    "lake_fan_out": (history, "_FANOUT", (2,)),
    "sample": (stager, "_SAMPLE_RECORDS", (1, 5)),
}
#: Offsets below which a range is not split among tasks (`SMALLEST_PIECE`), and how many tasks run at once.
PIECE, CORES = "smallest_piece", "cores"


@contextmanager
def lowered(small: Mapping[str, int]) -> Iterator[None]:
    """Inside, these constants are lower."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in small.items():
            if name in NAMES:
                module, constant, _ = NAMES[name]
                patch.setattr(module, constant, value)
        patch.setattr(stager, "share_out", partial(session.share_out, smallest=small.get(PIECE, session.SMALLEST_PIECE)))
        yield
