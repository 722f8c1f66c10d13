"""Count the committed records between two positions of a partition."""

from __future__ import annotations

import numpy as np

from kpipe.audit.outcomes import State
from kpipe.audit.windows import Window, windows
from kpipe.definition.pipeline import Source
from kpipe.offsets import Range
from kpipe.topics import PartitionId
from resources.audit.topic_log import TopicLog

__all__ = ["records_between"]

_WINDOW = 100_000
"""Offsets that are read at once. Counting ends with the first window that has a record: one is enough to decide."""


def records_between(source: Source, partition: PartitionId, between: Range) -> tuple[int, bool]:
    """Return the number of committed records in a range of the log, and whether all of them were counted.

    Args:
        source: brokers, settings and credentials.
        partition: the partition.
        between: offsets at or above the log start, and below the last stable offset.

    Raises:
        SourceError: the topic cannot be read.
    """
    one = source.model_copy(update={"topic": partition.topic.name, "topics": None, "topic_pattern": None})
    with TopicLog(one) as log:
        for window in windows({partition.partition: (between.start, between.end)}, _WINDOW):
            count = _records(log, window)
            if count:
                return count, window.end == between.end
    return 0, True


def _records(log: TopicLog, window: Window) -> int:
    states = log.states(window)
    return int(np.isin(states, (State.VALUE, State.TOMBSTONE, State.EXPIRED)).sum())
