"""Name the records whose rows cannot be written, so that `errors.constraint` applies to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kpipe.batch.batch import Commit
from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId
from resources.destinations.kafka_sink.ordered_rows import blocks
from resources.destinations.sql.row_rejections import by_steps
from resources.destinations.staged_file_check import Proven

__all__ = ["NAMES", "Misfits", "RejectedRows", "misfits"]

#: Columns of a staged file that name a row's record.
NAMES = ("_kafka_partition", "_kafka_offset", "_kafka_topic")


class Misfits(Exception):
    """Rows that the schema of the topic's values cannot represent.

    Attributes:
        reasons: by the row's number in its block.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(next(iter(reasons.values())))
        self.reasons = dict(reasons)


def misfits(commit: Commit, files: Sequence[Proven], encode: Callable[[pa.Table, Columns], Any], topic: str) -> SchemaConflict:
    """Return the error of a commit with rows that cannot be encoded, which names all of their records.

    Args:
        commit: the commit.
        files: its rows.
        encode: raises Misfits.
        topic: the topic that was to be written.
    """
    rejected = RejectedRows(commit)
    for file in files:
        for block in blocks(file):
            try:
                encode(block, Columns())
            except Misfits as error:
                for at, reason in error.reasons.items():
                    rejected.add(block, at, reason)
    return rejected.error(topic, "change the values or types in select or columns")


class RejectedRows:
    """Rows of a commit that cannot be written, with the reasons.

    Args:
        commit: the commit.
    """

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._source = by_steps(commit)
        self._found: dict[PartitionId, dict[int, str]] = {}
        self._first = ""

    def __bool__(self) -> bool:
        return bool(self._first)

    def add(self, block: pa.RecordBatch | pa.Table, at: int, reason: str) -> None:
        """Add a row of a block."""
        self._first = self._first or reason
        row: dict[str, Any] = {name: block.column(name)[at].as_py() for name in NAMES if name in block.schema.names}
        number, offset = row["_kafka_partition"], row["_kafka_offset"]
        if offset is None:
            return
        if (where := self._source(row.get("_kafka_topic"), number, offset)) is not None:
            self._found.setdefault(where, {})[offset] = reason

    def error(self, topic: str, hint: str) -> SchemaConflict:
        """Return the error of the commit, which names the records.

        Args:
            topic: the topic that was to be written.
            hint: what to do.
        """
        said = self._first if not self._found else "nothing was written"
        error = SchemaConflict(f"topic {topic}: batch {self._commit.id}: {said}", hint, self._first)
        error.name(self._found)
        return error
