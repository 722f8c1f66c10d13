"""Errors that kpipe raises on purpose.

    KpipeError                      exit 1   a run or command failed; the next attempt may succeed.
    ├── InvalidPipeline             exit 2   the definition is invalid; the message names file, line and field.
    ├── InvalidStatement            exit 2   a statement is invalid; the message names line and column.
    │   └── DefinitionChanged       exit 2   another statement changed the definition meanwhile; nothing was written.
    ├── NotAvailable                exit 2   a valid request that this version or machine does not support.
    ├── SourceError                          reading from Kafka failed.
    │   ├── BrokerUnreachable                no broker answered before the deadline (retriable).
    │   ├── TopicUnknown                     the topic does not exist in the cluster.
    │   ├── CredentialsRefused               authentication, authorization or TLS failed.
    │   ├── RegistryFailed                   the schema registry was unreachable or failed (retriable).
    │   ├── LookupFailed                     the server of a lookup returned no complete answer (retriable).
    │   ├── ReadStalled                      a read made no progress before its deadline (retriable).
    │   └── ReadFailed                       the broker or the client rejected a read.
    │       └── RecordsUnreadable            a record batch is damaged or too large.
    ├── RecordRejected                       a record cannot become a row, and the policy is `fail`.
    ├── TransformFailed                      the user's program failed: status, signal, timeout or protocol.
    ├── StagingFailed                        a task could not write, or a staged file does not match its report.
    │   └── StoreUnreachable                 the object store of the staged files did not answer (retriable).
    ├── CredentialUnavailable                a command that returns a credential failed (retriable).
    ├── WorkerLost                           a process that ran tasks died (retriable).
    ├── FormatTooNew                         a newer kpipe wrote the destination or the home.
    ├── DestinationError                     the destination failed.
    │   ├── DestinationBusy                  another process uses the destination, or it does not answer (retriable).
    │   ├── SchemaConflict                   the table cannot accept these columns or rows.
    │   ├── AuditFailed                      rows of the batch fail `into.audit`; the batch was not published.
    │   ├── MaintenanceFailed                rows would differ after maintenance; nothing was committed.
    │   ├── Fenced                           the ledger changed since the plan; nothing was written.
    │   └── OutcomeUnknown                   a commit was sent and could not be read back.
    ├── DeadLettersExceeded                  more dead letters than the pipeline allows.
    └── NeedsOperator               exit 3   blocks every run until an operator decides.
        ├── SourceIdentityChanged            the topic was recreated, or the brokers belong to a different cluster.
        ├── TopicGone                        a topic that the pattern matched before no longer exists.
        ├── OffsetsLost                      the next offset is below the log start.
        ├── OffsetsBeyondEnd                 the next offset is beyond the end of the log.
        ├── LogTruncated                     the log was cut below the next offset, and has grown again.
        └── LedgerMismatch                   the ledger is missing, was edited, or is older than this home has seen.

Every message names the subject and the problem; `hint` names the command or the field to change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.base_error import KpipeError
from kpipe.operator_errors import (
    LedgerMismatch,
    LogTruncated,
    NeedsOperator,
    OffsetsBeyondEnd,
    OffsetsLost,
    SourceIdentityChanged,
    TopicGone,
)

if TYPE_CHECKING:
    from kpipe.topics import PartitionId

__all__ = [
    "AuditFailed",
    "BrokerUnreachable",
    "CredentialUnavailable",
    "CredentialsRefused",
    "DeadLettersExceeded",
    "DefinitionChanged",
    "DestinationBusy",
    "DestinationError",
    "Fenced",
    "FormatTooNew",
    "InvalidPipeline",
    "InvalidStatement",
    "KpipeError",
    "LedgerMismatch",
    "LogTruncated",
    "LookupFailed",
    "MaintenanceFailed",
    "NeedsOperator",
    "NotAvailable",
    "OffsetsBeyondEnd",
    "OffsetsLost",
    "OutcomeUnknown",
    "ReadFailed",
    "ReadStalled",
    "RecordRejected",
    "RecordsUnreadable",
    "RegistryFailed",
    "SchemaConflict",
    "SourceError",
    "SourceIdentityChanged",
    "StagingFailed",
    "StoreUnreachable",
    "TopicGone",
    "TopicUnknown",
    "TransformFailed",
    "WorkerLost",
    "by_name",
]


class InvalidPipeline(KpipeError):
    """The definition is invalid; the message names file, line and field, as far as possible."""

    exit_status = 2


class InvalidStatement(KpipeError):
    """A statement is invalid; the message names line and column.

    Attributes:
        excerpt: the line, and below it a caret under the error; contains no secret.
    """

    exit_status = 2

    def __init__(self, what: str, hint: str = "", excerpt: str = "") -> None:
        super().__init__(what, hint)
        self.excerpt = excerpt


class DefinitionChanged(InvalidStatement):
    """Another statement, or an exchange of tables, changed the definition that this one was made from; nothing was written."""


class NotAvailable(KpipeError):
    """A valid request that this version, installation or machine does not support."""

    exit_status = 2


class SourceError(KpipeError):
    """Reading from Kafka failed."""


class BrokerUnreachable(SourceError):
    """No broker answered before the deadline.

    Attributes:
        reached: whether a broker has answered this run before. If not, the address is probably wrong, and the run fails at once.
    """

    retriable = True
    reached: bool = True


class TopicUnknown(SourceError):
    """The topic does not exist in the cluster."""


class CredentialsRefused(SourceError):
    """Authentication, authorization or TLS failed."""


class ReadStalled(SourceError):
    """A bounded read made no progress before its deadline. A timeout never counts as the end of a range."""

    retriable = True


class RegistryFailed(SourceError):
    """The schema registry was unreachable or failed. A missing schema id is an error of the record, except in plans."""

    retriable = True


class LookupFailed(SourceError):
    """The server of a lookup returned no complete answer in time."""

    retriable = True


class ReadFailed(SourceError):
    """The broker or the client rejected a read (corrupt batch, record too large, offset out of range ...)."""


class RecordsUnreadable(ReadFailed):
    """The bytes of a range exist but cannot be read: the record batch is damaged, or larger than the limit."""

    may_quote = True


class RecordRejected(KpipeError):
    """A record cannot become a row, and the pipeline's policy for that stage is `fail`."""

    may_quote = True


class TransformFailed(KpipeError):
    """The transform program broke its protocol; its output was discarded.

    Attributes:
        phase: `work`: the program exited or hung while it processed records, so a record may be the cause; `count`: the number
            of answers does not fit the mode, so the unanswered record cannot be determined; `chance`: a second try over the same
            records did not fail; empty: no record is the cause (for example, the program did not start).
        unanswered: offset of the first record without an answer; None if it cannot be determined.
    """

    may_quote = True

    def __init__(self, what: str, hint: str = "", phase: str = "") -> None:
        super().__init__(what, hint)
        self.phase = phase
        self.unanswered: int | None = None


class StagingFailed(KpipeError):
    """A task could not write its file, or the file does not match the task's report."""


class StoreUnreachable(StagingFailed):
    """The object store of the staged files did not answer, or reported that it is temporarily unavailable."""

    retriable = True


class CredentialUnavailable(KpipeError):
    """A command that returns a credential failed, or did not end in time."""

    retriable = True


class WorkerLost(KpipeError):
    """A process that ran tasks died: killed, out of memory, or crashed. Nothing of the batch is visible."""

    retriable = True


class FormatTooNew(KpipeError):
    """A newer kpipe wrote the destination or the home, in a format that this kpipe cannot read."""


class DestinationError(KpipeError):
    """The destination rejected a request or failed."""

    may_quote = True


class DestinationBusy(DestinationError):
    """Another process uses the destination (named if the destination reports it), or its server does not answer."""

    may_quote = False
    retriable = True


class AuditFailed(DestinationError):
    """Rows of a batch fail `into.audit`. The batch was not published; the table and the ledger are unchanged."""


class MaintenanceFailed(DestinationError):
    """The rows before and after maintenance differ. Nothing was committed."""


class SchemaConflict(DestinationError):
    """The table cannot accept the columns of this batch under the pipeline's schema policy, or it rejects rows.

    Attributes:
        refused: records whose rows the table rejects, with the reasons, by partition and offset; empty if unknown.
        by_rows: whether single records can be the cause; False for missing privileges, for example.
        reason: the database's message, stored with a dead letter.
    """

    def __init__(self, what: str, hint: str = "", reason: str = "", by_rows: bool = True) -> None:
        super().__init__(what, hint)
        self.refused: dict[PartitionId, dict[int, str]] = {}
        self.reason, self.by_rows = reason or what, by_rows

    def name(self, refused: dict[PartitionId, dict[int, str]]) -> None:
        """Name the records whose rows the table rejects; the message starts with the first one."""
        self.refused = {source: dict(sorted(refused[source].items())) for source in sorted(refused) if refused[source]}
        for source, found in self.refused.items():
            offset, why = next(iter(found.items()))
            more = sum(map(len, self.refused.values())) - 1
            others = f", and {more:,} more record{'s' if more > 1 else ''}" if more else ""
            self.what, self.record = f"{source} offset {offset}: {why}{others}: {self.what}", (source, offset)
            self.hint = f"{self.hint}; errors.constraint: dead_letter stores such records as dead letters"
            return


class Fenced(DestinationError):
    """The ledger changed since the plan: another run committed first. This commit changed nothing."""

    may_quote = False


class OutcomeUnknown(DestinationError):
    """A commit was sent, and its batch id could not be read back. Nothing is deleted; the next run reads it back."""

    may_quote = False


class DeadLettersExceeded(KpipeError):
    """The pipeline has more dead letters than `errors.max_dead_letters`."""

    may_quote = True


def by_name(name: str) -> type[KpipeError]:
    """Return the error class of that name, `KpipeError` if unknown: the driver raises a task's failure as its own class."""
    found = globals().get(name)
    if isinstance(found, type) and issubclass(found, KpipeError):
        return found
    return KpipeError
