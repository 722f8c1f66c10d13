"""Everything that kpipe raises on purpose.

    KpipeError                      exit 1   something failed; running again may succeed
    ├── InvalidPipeline             exit 2   what the user wrote is wrong: file, line and field are named
    ├── InvalidStatement            exit 2   a statement is wrong: line and column are named
    ├── NotAvailable                exit 2   valid, but this version or this machine cannot do it
    ├── SourceError                          Kafka
    │   ├── BrokerUnreachable                no broker answered before the deadline (retriable)
    │   ├── TopicUnknown                     the cluster has no such topic
    │   ├── CredentialsRefused               authentication, authorization or TLS
    │   ├── RegistryFailed                   the schema registry gave no answer that says anything (retriable)
    │   ├── LookupFailed                     the server of a lookup gave no whole answer (retriable)
    │   ├── ReadStalled                      a read made no progress before its deadline (retriable)
    │   └── ReadFailed                       the broker or the client refused a read
    │       └── RecordsUnreadable            the bytes are there, and cannot be read: damaged, or too large
    ├── RecordRejected                       a record could not become a row and the policy says fail
    ├── TransformFailed                      the user's program: status, signal, hang, protocol
    ├── StagingFailed                        a task could not write, or a staged file is not what was reported
    │   └── StoreUnreachable                 the object store that files are staged in gave no answer (retriable)
    ├── WorkerLost                           a process that ran tasks died (retriable)
    ├── DestinationError                     the table's side
    │   ├── DestinationBusy                  another process holds it, or it gives no answer now (retriable)
    │   ├── SchemaConflict                   the table cannot take these columns
    │   ├── AuditFailed                      rows of the batch do not pass its audit; it was not published
    │   ├── Fenced                           the ledger moved since the plan; nothing was changed
    │   └── OutcomeUnknown                   a commit was sent and could not be read back
    ├── DeadLettersExceeded                  more dead letters than the pipeline allows
    └── NeedsOperator               exit 3   sticky: stays until an operator decides
        ├── SourceIdentityChanged            recreated topic, or another cluster behind the same address
        ├── TopicGone                        a topic that the pattern had found is not there any more
        ├── OffsetsLost                      the next offset lies below the log start
        ├── OffsetsBeyondEnd                 the next offset lies beyond the end of the log
        └── LedgerMismatch                   the ledger is missing, changed by hand, or older than what this home has seen

Every message says what happened and where; `hint` says what to type or change next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kpipe.terminal import plain_lines

if TYPE_CHECKING:
    from kpipe.topics import PartitionId

__all__ = [
    "AuditFailed",
    "BrokerUnreachable",
    "CredentialsRefused",
    "DeadLettersExceeded",
    "DestinationBusy",
    "DestinationError",
    "Fenced",
    "InvalidPipeline",
    "InvalidStatement",
    "KpipeError",
    "LedgerMismatch",
    "LookupFailed",
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


_Raised = TypeVar("_Raised", bound="KpipeError")


class KpipeError(Exception):
    """Base of all of them.

    Args:
        what: what happened and where (topic, partition, offsets), in one sentence.
        hint: what to type or change next; empty when there is nothing to do but run again.

    Attributes:
        exit_status: exit status of the command line.
        retriable: whether the same run may try again by itself, with back-off.
        record: partition and offset of the record that it is about, where it is about one.
        field: path of the field of the definition that it is about, as in YAML; empty: of none, or not known.
        word: the part of that field's text that is wrong; empty: all of it.
    """

    exit_status: int = 1
    retriable: bool = False
    record: tuple[PartitionId, int] | None = None
    field: tuple[str, ...] = ()
    word: str = ""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what, hint)
        self.what = what
        self.hint = hint

    def about(self: _Raised, *field: str, word: str = "") -> _Raised:
        """Name the field of the definition that is wrong, unless that is known already."""
        if not self.field:
            self.field, self.word = field, word
        return self

    def __str__(self) -> str:
        """Safe to print, as `what` may hold parts of a record."""
        return plain_lines(f"{self.what} -> {self.hint}" if self.hint else self.what)


class InvalidPipeline(KpipeError):
    """The definition is wrong; the message names file, line and field where they are known."""

    exit_status = 2


class InvalidStatement(KpipeError):
    """A statement is wrong; the message names line and column.

    Attributes:
        excerpt: the line, and below it a caret under the place; holds no secret.
    """

    exit_status = 2

    def __init__(self, what: str, hint: str = "", excerpt: str = "") -> None:
        super().__init__(what, hint)
        self.excerpt = excerpt


class NotAvailable(KpipeError):
    """A valid request that this version, installation or machine cannot serve."""

    exit_status = 2


class SourceError(KpipeError):
    """Reading from Kafka failed."""


class BrokerUnreachable(SourceError):
    """No broker answered before the deadline."""

    retriable = True


class TopicUnknown(SourceError):
    """The cluster has no topic of that name."""


class CredentialsRefused(SourceError):
    """Authentication, authorization or TLS was refused."""


class ReadStalled(SourceError):
    """A bounded read made no progress before its deadline. Silence is never taken for the end of a range."""

    retriable = True


class RegistryFailed(SourceError):
    """The schema registry gave no answer that says anything about a schema. One that it does not know is the record's fault."""

    retriable = True


class LookupFailed(SourceError):
    """The server that a lookup comes from gave no whole answer in time."""

    retriable = True


class ReadFailed(SourceError):
    """The broker or the client refused a read (corrupt batch, record too large, offset out of range ...)."""


class RecordsUnreadable(ReadFailed):
    """The bytes of a range are there and cannot be read: a damaged record batch, or one that is larger than is allowed."""


class RecordRejected(KpipeError):
    """A record could not become a row, and the pipeline's policy for that stage is `fail`."""


class TransformFailed(KpipeError):
    """The transform program broke its contract; its output was discarded.

    Attributes:
        phase: `work`: it ended or hung at its work, so a record may be the reason; `count`: its answers do not fit its
            mode, so nobody knows which record lacks one; empty: no record can be the reason (it never ran, for example).
        unanswered: offset of the first record that it had not answered; None where nobody knows.
    """

    def __init__(self, what: str, hint: str = "", phase: str = "") -> None:
        super().__init__(what, hint)
        self.phase = phase
        self.unanswered: int | None = None


class StagingFailed(KpipeError):
    """A task could not write its file, or the driver found another file than the task reported."""


class StoreUnreachable(StagingFailed):
    """The object store that files are staged in gave no answer, or said that it cannot now."""

    retriable = True


class WorkerLost(KpipeError):
    """A process that ran tasks died: killed, out of memory, or crashed. Nothing of the batch is visible."""

    retriable = True


class DestinationError(KpipeError):
    """The destination refused or failed."""


class DestinationBusy(DestinationError):
    """Another process holds the destination, named where it tells by whom; or its server gives no answer now."""

    retriable = True


class AuditFailed(DestinationError):
    """Rows of a batch are not what `into.audit` says, so it was not published: the table and the ledger are as they were."""


class SchemaConflict(DestinationError):
    """The table cannot take the columns of this batch under the pipeline's schema policy, or refuses rows.

    Attributes:
        refused: records whose rows it refuses, with the reasons, by partition and offset; empty where they are not known.
        by_rows: whether single records can be the cause; False where rights are missing, whatever the rows are.
        reason: the cause in the database's words, for a record that is set aside for it.
    """

    def __init__(self, what: str, hint: str = "", reason: str = "", by_rows: bool = True) -> None:
        super().__init__(what, hint)
        self.refused: dict[PartitionId, dict[int, str]] = {}
        self.reason, self.by_rows = reason or what, by_rows

    def name(self, refused: dict[PartitionId, dict[int, str]]) -> None:
        """Name the records whose rows the table refuses; the message begins with the first of them."""
        self.refused = {source: dict(sorted(refused[source].items())) for source in sorted(refused) if refused[source]}
        for source, found in self.refused.items():
            offset, why = next(iter(found.items()))
            more = sum(map(len, self.refused.values())) - 1
            others = f", and {more:,} more record{'s' if more > 1 else ''}" if more else ""
            self.what, self.record = f"{source} offset {offset}: {why}{others}: {self.what}", (source, offset)
            self.hint = f"{self.hint}; errors.constraint: dead_letter keeps such records aside"
            return


class Fenced(DestinationError):
    """The ledger moved since the plan was made. Nothing was changed by the loser."""


class OutcomeUnknown(DestinationError):
    """A commit was sent, and its batch id could not be read back. Nothing is deleted; the next run finds out."""


class DeadLettersExceeded(KpipeError):
    """The pipeline holds more dead letters than `errors.max_dead_letters`."""


class NeedsOperator(KpipeError):
    """Only a person can decide; restarting does not clear it."""

    exit_status = 3


class SourceIdentityChanged(NeedsOperator):
    """The topic was recreated, or another cluster answers at the same address."""


class TopicGone(NeedsOperator):
    """A topic that was found by its pattern, and read, is not there any more."""


class OffsetsLost(NeedsOperator):
    """Records between the ledger's next offset and the log start are gone."""


class OffsetsBeyondEnd(NeedsOperator):
    """The ledger's next offset lies beyond the end of the log: truncated, restored or rebuilt."""


class LedgerMismatch(NeedsOperator):
    """The ledger is missing, changed by hand, or behind what this home has already seen committed."""


def by_name(name: str) -> type[KpipeError]:
    """Class of that name: how a failure inside a Spark task comes back to the driver as itself.

    Unknown names give `KpipeError`.
    """
    found = globals().get(name)
    if isinstance(found, type) and issubclass(found, KpipeError):
        return found
    return KpipeError
