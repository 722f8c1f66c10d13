"""Constants of kpipe that an example lowers, so that a few records reach the code that is meant for many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import pytest

from resources.destinations.kafka_sink import ordered_rows as kafka_rows
from resources.destinations.lakehouse import commit_log
from resources.destinations.webhook import ordered_rows as webhook_rows
from resources.kafka import range_reader
from resources.spark.driver import context_runner, scheduling, stager
from resources.spark.staging import shared_writer, staged_files
from resources.spark.task import range_task

__all__ = ["NAMES", "lowered"]

#: By name: the module, the constant, and the values that are worth a try. Rows of a row group decide which ranges share a file.
NAMES = {
    "group_rows": (staged_files, "_GROUP_ROWS", (2, 5, 20)),
    "block_records": (range_reader, "BLOCK_RECORDS", (1, 3, 8)),
    "kafka_block": (kafka_rows, "_ROWS", (1, 3, 10)),
    "kafka_bytes": (kafka_rows, "_BYTES", (1, 200, 2000)),
    "webhook_block": (webhook_rows, "_BLOCK", (1, 3, 10)),
    "webhook_partitions": (webhook_rows, "_AT_ONCE", (1, 2)),
    "short_range": (range_task, "_SHORT", (1, 10)),
    "shared_bytes": (shared_writer, "_BYTES", (1, 4000)),
    "lake_history": (commit_log, "_TAIL_COMMITS", (1, 2)),
    "lake_fan_out": (commit_log, "_FANOUT", (2,)),
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
        smallest = small.get(PIECE, scheduling.SMALLEST_PIECE)
        patch.setattr(context_runner, "share_out", partial(scheduling.share_out, smallest=smallest))
        yield
