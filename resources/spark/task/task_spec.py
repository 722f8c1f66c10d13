"""What the driver sends to a task, and what comes back when it fails. Plain values that pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kpipe.batch.batch import Piece
from kpipe.definition.formats import Format
from kpipe.definition.lakehouse_options import Part
from kpipe.definition.pipeline import Policy
from kpipe.errors import KpipeError, StagingFailed, TransformFailed, by_name
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId
from resources.decode.block import Decoder
from resources.decode.factory import decoder
from resources.decode.growth_guard import Bound
from resources.decode.resource_limits import Deadlined
from resources.destinations.value_limits import Limits
from resources.kafka.range_reader import RangeReader
from resources.kafka.record_block import Held
from resources.kafka.replay_reader import HeldReader
from resources.lookups import reference_table as lookups
from resources.object_store.config import StoreAccess
from resources.schema_registry.config import Access
from resources.spark.task.projection_plan import Shape

__all__ = ["Failure", "Job", "ProgramSpec"]


@dataclass(frozen=True)
class ProgramSpec:
    """The pipeline's program as a worker finds it.

    Attributes:
        file: the program, or the archive that holds it: a name under which Spark shipped it, or an absolute path.
        member: the program's path inside the archive; None for a single file.
        sha256: of the file, as it was checked on the driver.
        args: arguments.
        stdin: framing.
        mode: `map`, `filter` or `flatmap`.
        idle_timeout_s: see `transforms.program.Program`.
        trial_timeout_s: the same while the record is searched that makes it fail; None: no other.
        memory_bytes: memory that the program and its processes may hold together; None: no limit.
        max_output_bytes: what a `flatmap` program may write for one range.
        env: variables that the pipeline names, with their values; not shown by repr.
        secrets: values to keep out of stderr's tail; not shown by repr.
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
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Job:
    """Everything that all tasks of a batch share.

    Attributes:
        batch: id of the batch.
        config: settings of the Kafka client; not shown by repr.
        staging: folder of staged files, which every worker sees; or the beginning of objects' names.
        format: how payloads become columns.
        columns: payload columns of the table.
        parse: what happens to a payload that cannot become a row.
        transform: what happens to a record that cannot be given to the program, or makes it fail.
        constraint: what happens to a record for which an expression fails, or whose row the table cannot take.
        shape: what is decoded, and what becomes of it; None: the columns, as they are.
        programs: folder that holds copies of programs as they were checked, on the disks of whoever runs them.
        extras: further coordinate columns: any of topic, key, headers.
        program: the pipeline's program, if it has one.
        key: how keys become columns; None: they do not.
        access: to the schema registry; not shown by repr.
        unique: columns of the table's key with their types; empty: rows have none.
        deletes: whether tombstones delete the row of their key.
        originals: whether the whole record is staged beside each row.
        killers: records that are known to make it fail, with the reasons, by partition and offset.
        refused: records whose rows the table does not take, with the reasons, by partition and offset.
        held: the records, where they are not to be read from Kafka; not shown by repr.
        lookups: what expressions ask, by name; not shown by repr.
        several: whether a record may give several rows, in one table or over several (kpipe/tables/multi_table.py).
        table: name of the table, for messages about one of several; else empty.
        limits: of the destination; None: it holds whatever a task can stage.
        divided: what the table is divided by: files of rows hold one division each.
        also: for each further table, the job as it would be if that were the only one.
        remote: whether tasks run on other machines than the driver.
        store: how tasks reach the object store that they stage in, where they do not find out by themselves; not shown by repr.
        ordered: whether rows must keep their order on the way to the destination's readers.
        bound: which new columns a record may hold; None: any.
        moves: whether a task that could not reach something is run once more on another worker.
    """

    batch: str
    config: Mapping[str, Any] = field(repr=False)
    staging: str
    format: Format
    columns: Columns
    parse: Policy = "dead_letter"
    transform: Policy = "fail"
    constraint: Policy = "fail"
    shape: Shape | None = None
    programs: str = ""
    extras: tuple[str, ...] = ()
    program: ProgramSpec | None = None
    key: Format | None = None
    access: Access | None = field(default=None, repr=False)
    unique: Columns = field(default_factory=Columns)
    deletes: bool = False
    originals: bool = False
    killers: Mapping[PartitionId, Mapping[int, str]] = field(default_factory=dict)
    refused: Mapping[PartitionId, Mapping[int, str]] = field(default_factory=dict)
    held: Mapping[PartitionId, Held] | None = field(default=None, repr=False)
    lookups: Mapping[str, lookups.Held] = field(default_factory=dict, repr=False)
    several: bool = False
    table: str = ""
    limits: Limits | None = None
    divided: tuple[Part, ...] = ()
    also: tuple[Job, ...] = ()
    remote: bool = False
    store: StoreAccess | None = field(default=None, repr=False)
    ordered: bool = False
    bound: Bound | None = None
    moves: bool = False

    def reader(self, piece: Piece) -> RangeReader:
        """Reads the records of a piece."""
        topic, number = piece.source.topic.name, piece.source.partition
        if self.held is not None:
            return HeldReader(self.held.get(piece.source, Held()), topic, number, piece.range)
        return RangeReader(self.config, topic, number, piece.range)

    @property
    def decoder(self) -> Decoder:
        """Makes records of payloads. Not for two threads at once."""
        kind, columns = (self.format, self.columns) if self.shape is None else (self.shape.format, self.shape.reads)
        bound = None if self.bound is None else replace(self.bound, columns=columns)
        return Deadlined(decoder(kind, columns, self.key, self.access, bound))

    @property
    def decoders(self) -> list[Decoder]:
        """One for each table."""
        return [part.decoder for part in (self, *self.also)]


@dataclass(frozen=True)
class Failure:
    """An error inside a task, as a result: Spark retries exceptions by itself and turns them into text.

    Attributes:
        kind: name of the class in kpipe/errors.py.
        what, hint: of the error.
        trace: traceback, for `--debug`.
        phase: of a `TransformFailed`.
        record: that the error is about, where it is about one.
    """

    kind: str
    what: str
    hint: str = ""
    trace: str = ""
    phase: str = ""
    record: tuple[PartitionId, int] | None = None

    @classmethod
    def of(cls, error: KpipeError, trace: str, host: str = "") -> Failure:
        """An error as a result, with the machine where it happened."""
        what = f"{error.what} (on {host})" if host else error.what
        return cls(type(error).__name__, what, error.hint, trace, getattr(error, "phase", ""), error.record)

    @property
    def may_be_of_the_place(self) -> bool:
        """Whether another worker may fare better: brokers, registry, store or staging folder were not reached from this one."""
        kind = by_name(self.kind)
        return kind.retriable or issubclass(kind, StagingFailed)

    def error(self) -> KpipeError:
        """The error as it was raised in the task."""
        made = by_name(self.kind)(self.what, self.hint)
        made.trace = self.trace  # type: ignore[attr-defined]
        made.record = self.record
        if isinstance(made, TransformFailed):
            made.phase = self.phase
        return made
