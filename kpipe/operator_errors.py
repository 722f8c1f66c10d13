"""Errors that block every run until an operator decides. kpipe/errors.py exports them."""

from __future__ import annotations

from kpipe.base_error import KpipeError

__all__ = [
    "LedgerMismatch",
    "LogTruncated",
    "NeedsOperator",
    "OffsetsBeyondEnd",
    "OffsetsLost",
    "SourceIdentityChanged",
    "TopicGone",
]


class NeedsOperator(KpipeError):
    """An operator has to decide; a restart does not clear the error."""

    exit_status = 3


class SourceIdentityChanged(NeedsOperator):
    """The topic was recreated, or the brokers belong to a different cluster."""


class TopicGone(NeedsOperator):
    """A topic that matched the pattern, and was read, no longer exists."""


class OffsetsLost(NeedsOperator):
    """Records between the ledger's next offset and the log start were deleted from Kafka."""


class OffsetsBeyondEnd(NeedsOperator):
    """The ledger's next offset is beyond the end of the log, which was truncated, restored or rebuilt."""


class LogTruncated(NeedsOperator):
    """The log was cut below the ledger's next offset, and has grown again: the records before it are not those that were read.

    Attributes:
        offset: of the first record that differs; `record` is the same with its partition.
        before: hash of the record that was read there; empty: there was none.
        others: the same errors of other partitions of the batch.
    """

    offset: int = 0
    before: str = ""
    others: tuple[LogTruncated, ...] = ()


class LedgerMismatch(NeedsOperator):
    """The ledger is missing, was edited, or is older than the commits that this home has seen."""
