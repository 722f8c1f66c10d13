"""Values that the driver sends to a task, and the failure that a task returns. They can be pickled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kpipe.batch.batch import Piece
from kpipe.batch.routes import Routes
from kpipe.definition.formats import Format
from kpipe.definition.lakehouse_options import Part
from kpipe.definition.pipeline import Policy
from kpipe.errors import KpipeError, LogTruncated, StagingFailed, TransformFailed, by_name
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId
from resources.decode.arrow.decoder import ArrowDecoder
from resources.decode.block import Decoder
from resources.decode.factory import decoder
from resources.decode.growth_guard import Bound
from resources.decode.resource_limits import Deadlined
from resources.destinations.value_limits import Limits
from resources.kafka.range_reader import RangeReader
from resources.kafka.record_block import RecordBlock
from resources.kafka.replay_reader import ReplayReader
from resources.lookups import reference_table as lookups
from resources.object_store.config import StoreAccess
from resources.schema_registry.config import Access
from resources.sources.connector import Connector
from resources.sources.splits import SplitReader
from resources.spark.task.projection_plan import Shape

__all__ = ["Failure", "JobSpec", "ProgramSpec", "TableSpec"]


@dataclass(frozen=True)
class ProgramSpec:
    """The pipeline's program, as a worker runs it.

    Attributes:
        file: the program or its archive: a name under which Spark shipped it, or an absolute path.
        member: the program's path inside the archive; None for a single file.
        sha256: of the file, as checked on the driver.
        args: arguments.
        stdin: framing.
        mode: `map`, `filter` or `flatmap`.
        idle_timeout_s: see `transforms.program.Program`.
        trial_timeout_s: idle timeout during a search for poison records; None: `idle_timeout_s`.
        memory_bytes: memory limit of the program and its processes together; None: no limit.
        max_output_bytes: limit on the output for one range, of a `flatmap` program and of any with `stdin: arrow`.
        several_topics: whether records name their topic, with `stdin: arrow`.
        deletes: whether tombstones delete rows, and so do not reach the program; also in a sample, which has no tables.
        env: variables that the pipeline names, with their values; not shown by repr.
        secrets: further values to mask in the tail of stderr, after those of the job; not shown by repr.
    """

    file: str
    member: str | None
    sha256: str
    args: tuple[str, ...] = ()
    stdin: str = "lines"
    mode: str = "map"
    idle_timeout_s: float = 60
    trial_timeout_s: float | None = None
    memory_bytes: int | None = None
    max_output_bytes: int | None = None
    several_topics: bool = False
    deletes: bool = False
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def arrow(self) -> bool:
        """True if records and rows are Arrow streams."""
        return self.stdin == "arrow"

    @property
    def traced(self) -> bool:
        """True if each row has the offset of its record."""
        return self.arrow or self.mode == "map"


@dataclass(frozen=True)
class TableSpec:
    """One table's part of a job.

    Attributes:
        columns: payload columns of the table.
        name: for messages about one of several tables; empty if there is only one.
        shape: plan of decoding and projection; None: the columns, unchanged.
        unique: columns of the table's key with their types; empty without a key.
        deletes: whether tombstones delete the row of their key.
        originals: whether the whole record is staged with each row.
        position: among the tables of the batch.
        divided: what the table is divided by: each file of rows belongs to one division.
        bound: limits on new columns of a record; None: no limits.
        keeps: whether the commit keeps values that an update left out (kpipe/tables/changes.py).
    """

    columns: Columns
    name: str = ""
    shape: Shape | None = None
    unique: Columns = field(default_factory=Columns)
    deletes: bool = False
    originals: bool = False
    position: int = 0
    divided: tuple[Part, ...] = ()
    bound: Bound | None = None
    keeps: bool = True


@dataclass(frozen=True)
class JobSpec:
    """Data that all tasks of a batch share.

    Attributes:
        batch: id of the batch.
        config: settings of the Kafka client; not shown by repr.
        staging: folder of staged files, shared by all workers; or a prefix of object names.
        format: how payloads become columns.
        tables: each table of the batch (kpipe/tables/topic_tables.py).
        topics: position of each topic's table; None: each table takes the records of all topics.
        parse: policy for payloads that cannot become a row.
        transform: policy for records that cannot be passed to the program, or make it fail.
        constraint: policy for records for which an expression fails, or whose row a table rejects.
        programs: folder of checked copies of programs, on the disk of the machine that runs the task.
        extras: further coordinate columns: any of topic, key, headers.
        program: the pipeline's program, if it has one.
        key: how keys become columns; None: they do not.
        access: to the schema registry; not shown by repr.
        poison_records: known poison records with the reasons, by partition and offset.
        refused: records whose rows a table rejects, with the reasons, by partition and offset.
        held: records to stage instead of reading Kafka; not shown by repr.
        lookups: lookups that expressions call, by name; not shown by repr.
        fan_out: whether a record may give several rows, in one table or over several (kpipe/tables/multi_table.py).
        limits: of the destination's values; None: it stores any value that a task can stage.
        remote: whether tasks run on other machines than the driver.
        store: access to the object store of the staging location; None: tasks need none. Not shown by repr.
        connector: the source, if it is not Kafka; not shown by repr.
        ordered: whether rows must keep their order on the way to the destination's readers.
        moves: whether Spark retries a task that could not reach something on another worker.
        pipeline: the pipeline's name, for logs.
        routes: tables by a field; None: the table of a record does not depend on it.
        bounds: of the columns of a new table, as `resources.decode.factory.sampled` takes them; only with routes.
        cancelled: returns whether another thread has given up the samples that this process takes; None in tasks.
    """

    batch: str
    config: Mapping[str, Any] = field(repr=False)
    staging: str
    format: Format
    tables: tuple[TableSpec, ...]
    parse: Policy = "dead_letter"
    transform: Policy = "fail"
    constraint: Policy = "fail"
    programs: str = ""
    extras: tuple[str, ...] = ()
    program: ProgramSpec | None = None
    key: Format | None = None
    access: Access | None = field(default=None, repr=False)
    poison_records: Mapping[PartitionId, Mapping[int, str]] = field(default_factory=dict)
    refused: Mapping[PartitionId, Mapping[int, str]] = field(default_factory=dict)
    held: Mapping[PartitionId, RecordBlock] | None = field(default=None, repr=False)
    lookups: Mapping[str, lookups.LookupRows] = field(default_factory=dict, repr=False)
    fan_out: bool = False
    limits: Limits | None = None
    remote: bool = False
    store: StoreAccess | None = field(default=None, repr=False)
    connector: Connector | None = field(default=None, repr=False)
    ordered: bool = False
    moves: bool = False
    pipeline: str = ""
    cancelled: Callable[[], bool] | None = field(default=None, repr=False, compare=False)
    topics: Mapping[str, int] | None = None
    routes: Routes | None = None
    bounds: tuple[Any, ...] = ()

    def reader(self, piece: Piece) -> RangeReader:
        """Return a reader of a piece's records."""
        topic, number = piece.source.topic.name, piece.source.partition
        if self.held is not None:
            return ReplayReader(self.held.get(piece.source, RecordBlock()), topic, number, piece.range)
        if self.connector is not None:
            return SplitReader(self.connector, piece.source.topic, piece.range, piece.after)
        return RangeReader(self.config, topic, number, piece.range, after=piece.after, epoch=piece.epoch)

    def of_piece(self, piece: Piece) -> JobSpec:
        """Return the job with the tables of the piece's topic, and the fields that its split declares, as in a file's first line.

        Raises:
            ReadFailed: the split cannot be read.
        """
        if self.topics is not None and len(self.tables) > 1:
            return replace(self, tables=(self.tables[self.topics[piece.source.topic.name]],), topics=None).of_piece(piece)
        names = self.connector.header(piece.source.topic.name) if self.connector is not None else None
        if names is None:
            return self
        kind = self.format.model_copy(update={"fields": list(names)})
        tables = (
            table if table.shape is None else replace(table, shape=replace(table.shape, format=kind)) for table in self.tables
        )
        return replace(self, format=kind, tables=tuple(tables))

    @property
    def decoders(self) -> list[Decoder]:
        """A new decoder of payloads for each table; a decoder is not thread-safe."""
        return [self.decoder(at) for at in range(len(self.tables))]

    def decoder(self, at: int) -> Decoder:
        """Return a new decoder for a table."""
        table = self.tables[at]
        kind = self.format if table.shape is None else table.shape.format
        columns, bound = _reads(table)
        return Deadlined(decoder(kind, columns, self.key, self.access, bound, table.unique, table.keeps))

    def arrow_decoders(self, where: str) -> list[ArrowDecoder]:
        """Return a new decoder for each table, of the rows of a program with `stdin: arrow`."""
        return [ArrowDecoder(*_reads(table), where) for table in self.tables]


def _reads(table: TableSpec) -> tuple[Columns, Bound | None]:
    """Return the columns that a table's decoder returns, and its limits."""
    columns = table.columns if table.shape is None else table.shape.reads
    return columns, None if table.bound is None else replace(table.bound, columns=columns)


@dataclass(frozen=True)
class Failure:
    """A task's error, returned as a result: Spark would retry an exception and reduce it to text.

    Attributes:
        kind: name of the class in kpipe/errors.py.
        what, hint: of the error.
        trace: traceback, for `--debug`.
        phase: of a `TransformFailed`.
        record: partition and offset, if the error concerns one record.
        before, others: of a `LogTruncated`.
    """

    kind: str
    what: str
    hint: str = ""
    trace: str = ""
    phase: str = ""
    record: tuple[PartitionId, int] | None = None
    before: str = ""
    others: tuple[Failure, ...] = ()

    @classmethod
    def of(cls, error: KpipeError, trace: str, host: str = "") -> Failure:
        """Convert an error to a result, with the host where it happened."""
        what = f"{error.what} (on {host})" if host else error.what
        phase, before = getattr(error, "phase", ""), getattr(error, "before", "")
        others = tuple(cls.of(other, "") for other in getattr(error, "others", ()))
        return cls(type(error).__name__, what, error.hint, trace, phase, error.record, before, others)

    @property
    def worth_retrying_elsewhere(self) -> bool:
        """True if another worker may succeed: this one could not reach brokers, registry, store or staging folder."""
        error_class = by_name(self.kind)
        return error_class.retriable or issubclass(error_class, StagingFailed)

    def error(self) -> KpipeError:
        """Return the error as it was raised in the task."""
        error = by_name(self.kind)(self.what, self.hint)
        error.trace = self.trace  # type: ignore[attr-defined]
        error.record = self.record
        error.may_quote = error.may_quote or self.kind == KpipeError.__name__  # a defect, with the text of another exception
        if isinstance(error, TransformFailed):
            error.phase = self.phase
        if isinstance(error, LogTruncated):
            error.before = self.before
            error.others = tuple(found for other in self.others if isinstance(found := other.error(), LogTruncated))
        return error
