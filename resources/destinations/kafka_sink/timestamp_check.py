"""Find rows with timestamps outside a topic's limits: brokers reject their whole record batch without naming the record.

Source of the rule: Kafka's topic settings `message.timestamp.type`, `message.timestamp.before.max.ms`, `….after.max.ms`
(KIP-937, from 3.6 on; the default of the second is an hour from 4.0 on) and `….difference.max.ms` (older brokers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kpipe.batch.batch import Commit
from resources.destinations.kafka_sink.rejected_rows import NAMES, RejectedRows
from resources.destinations.staged_file_check import Proven

__all__ = ["Times", "check_times"]

_ANY = 2**63 - 1
_BLOCK = 65_536
_BEFORE, _AFTER, _DIFFERENCE = (f"message.timestamp.{name}.max.ms" for name in ("before", "after", "difference"))


@dataclass(frozen=True)
class Times:
    """Limits of a topic's record timestamps, as distance from the broker's clock in ms.

    Attributes:
        before, after: the limits.
        names: the topic settings of the limits.
    """

    before: int = _ANY
    after: int = _ANY
    names: tuple[str, str] = (_BEFORE, _AFTER)

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Times:
        """Return the limits of a topic with these settings."""
        if settings.get("message.timestamp.type") == "LogAppendTime":  # brokers set the timestamp
            return cls()
        old = int(settings.get(_DIFFERENCE, _ANY))
        limits = [int(settings.get(name, _ANY)) for name in (_BEFORE, _AFTER)]
        names = [_DIFFERENCE if limit == _ANY else name for limit, name in zip(limits, (_BEFORE, _AFTER), strict=True)]
        before, after = (old if limit == _ANY else limit for limit in limits)
        return cls(before, after, (names[0], names[1]))

    def refused(self, moments: pa.Array, now: int) -> dict[int, str]:
        """Return the indexes of timestamps outside the limits, with reasons.

        Args:
            moments: µs since 1970, or NULL. Negative ones are not sent.
            now: ms since 1970.
        """
        times = np.asarray(moments.fill_null(-1)) // 1000
        late = times > min(now + self.after, _ANY)
        early = times < now - self.before
        found = np.flatnonzero((times >= 0) & (late | early))
        return {at: self._reason(int(times[at]), bool(late[at])) for at in found.tolist()}

    def _reason(self, moment: int, late: bool) -> str:
        at = int(late)
        side, limit = ("before", "after")[at], (self.before, self.after)[at]
        return f"the record's timestamp {moment} ms is too far {side} now for the topic: {self.names[at]} is {limit}"


def check_times(commit: Commit, files: Sequence[Proven], topic: str, times: Times, now: int) -> None:
    """Check that the timestamps of all rows are inside the topic's limits.

    Args:
        commit: the commit.
        files: its rows and tombstones.
        topic: the topic to write.
        times: its limits.
        now: ms since 1970.

    Raises:
        SchemaConflict: a timestamp is outside; names the records, so that `errors.constraint` can apply.
    """
    if times == Times():
        return
    rejected = RejectedRows(commit)
    for file in files:
        names = [name for name in ("_kafka_timestamp", *NAMES) if name in file.names]
        if names[:1] != ["_kafka_timestamp"]:
            continue
        with pq.ParquetFile(file.path) as parquet:
            for block in parquet.iter_batches(batch_size=_BLOCK, columns=names):
                micros = block.column("_kafka_timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
                for at, reason in times.refused(micros, now).items():
                    rejected.add(block, at, reason)
    if rejected:
        raise rejected.error(
            topic,
            f"raise the setting (kafka-configs.sh --alter --entity-type topics --entity-name {topic}), or set its"
            " message.timestamp.type to LogAppendTime",
        )
