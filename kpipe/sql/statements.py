"""Statements as plain values. parser.py returns them, renderer.py prints them; nothing here executes them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

from kpipe.definition.pipeline import Pipeline, Timestamp
from kpipe.offsets import Range
from kpipe.sql.source_positions import Places
from kpipe.topics import Part

__all__ = [
    "Alter", "Backfill", "Change", "ClearErrors", "Create", "Detach", "Drop", "DropOrphans", "DropPartition", "Extract",
    "Infer", "Moment", "Placed", "Query", "ReloadLookups", "ReloadTransform", "Replay", "Reset", "SetField", "SetOffsets",
    "ShowCreate", "ShowPipelines", "Start", "StartMany", "Statement", "Stop", "StopAll", "Test", "Truncate", "changes",
]  # fmt: skip

#: A position: `earliest`, `latest`, a time, or next offsets by partition.
Moment = Literal["earliest", "latest"] | Timestamp | dict[Part, int]


@dataclass(frozen=True)
class Placed:
    """A statement about existing pipelines.

    Attributes:
        places: the position of the statement, for errors about its names.
    """

    places: Places | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Create:
    """CREATE PIPELINE.

    Attributes:
        pipeline: the definition.
        or_replace: an existing pipeline is replaced and keeps its position.
        if_not_exists: an existing pipeline stays unchanged, without an error.
        places: positions of the fields in the statement.
        based_on: the existing definition that `pipeline` was made from, which must not have changed; None: any is replaced.
    """

    pipeline: Pipeline
    or_replace: bool = False
    if_not_exists: bool = False
    places: Places | None = field(default=None, compare=False, repr=False)
    based_on: Pipeline | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class SetField:
    """SET field: a new value of a field of the definition; None: its default.

    Attributes:
        path: names, outermost first, as in YAML.
        value: as in YAML.
    """

    path: tuple[str, ...]
    value: Any


@dataclass(frozen=True)
class SetOffsets:
    """SET OFFSETS: a new position.

    Attributes:
        to: the new position; offsets change only the listed partitions.
        reread: committed offsets are read again, which duplicates rows.
    """

    to: Moment
    reread: bool = False


@dataclass(frozen=True)
class ReloadTransform:
    """RELOAD TRANSFORM: the program is fetched again."""


@dataclass(frozen=True)
class ReloadLookups:
    """RELOAD LOOKUPS: the lookups are read again."""


@dataclass(frozen=True)
class DropPartition:
    """DROP PARTITION: a partition that the topic no longer has; with `reread`, one to read again from its start."""

    partition: Part
    reread: bool = False


@dataclass(frozen=True)
class DropOrphans:
    """DROP ORPHAN PARTITIONS: all partitions that the topic no longer has."""


Change = SetField | SetOffsets | ReloadTransform | ReloadLookups | DropPartition | DropOrphans


@dataclass(frozen=True)
class Alter:
    """ALTER PIPELINE: changes in order, and their positions in the statement."""

    pipeline: str
    changes: tuple[Change, ...]
    places: Places | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Drop(Placed):
    """DROP PIPELINE: the definition is deleted; rows, history and ledger stay."""

    pipeline: str
    if_exists: bool = False


@dataclass(frozen=True)
class Start(Placed):
    """START PIPELINE.

    Attributes:
        foreground: run in this process until caught up.
        limit: with `foreground`, the maximum number of batches.
    """

    pipeline: str
    if_not_running: bool = False
    foreground: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class StartMany:
    """START ALL PIPELINES, or START FAILED PIPELINES."""

    failed: bool = False


@dataclass(frozen=True)
class Stop(Placed):
    """STOP PIPELINE: the current batch is finished, or, with `cancel`, abandoned."""

    pipeline: str
    if_running: bool = False
    cancel: bool = False


@dataclass(frozen=True)
class StopAll:
    """STOP ALL PIPELINES."""

    cancel: bool = False


@dataclass(frozen=True)
class Detach(Placed):
    """DETACH PIPELINE: it is stopped, so that its table can be changed."""

    pipeline: str
    if_exists: bool = False


@dataclass(frozen=True)
class Test(Placed):
    """TEST PIPELINE: rows are shown, and not written.

    Attributes:
        limit: offsets of each partition.
    """

    __test__ = False  # pytest would collect it as a test

    pipeline: str
    limit: int | None = None


@dataclass(frozen=True)
class ShowPipelines:
    """SHOW PIPELINES."""


@dataclass(frozen=True)
class ShowCreate(Placed):
    """SHOW CREATE PIPELINE; extended: with its position."""

    pipeline: str
    extended: bool = False


@dataclass(frozen=True)
class Extract(Placed):
    """EXTRACT PIPELINE ... INTO OUTFILE: records as a program would receive them on stdin.

    Attributes:
        partition: None: the first with unread offsets.
        offsets: None: those of the next batch.
    """

    pipeline: str
    file: str
    partition: Part | None = None
    offsets: Range | None = None


@dataclass(frozen=True)
class Infer:
    """INFER PIPELINE: table and mapping from a sample. Pipeline and table are named after the topic."""

    pipeline: Pipeline
    places: Places | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class ClearErrors(Placed):
    """CLEAR PIPELINE ERRORS; None: of all pipelines."""

    pipeline: str | None = None


@dataclass(frozen=True)
class Backfill(Placed):
    """BACKFILL PIPELINE: skipped offsets are read beside live ingest.

    Attributes:
        partition: None: all.
        offsets: None: all.
    """

    pipeline: str
    partition: Part | None = None
    offsets: Range | None = None


@dataclass(frozen=True)
class Replay(Placed):
    """REPLAY PIPELINE: dead letters are retried with the current definition."""

    pipeline: str


@dataclass(frozen=True)
class Truncate:
    """TRUNCATE TABLE, or DELETE FROM without WHERE: all rows of a table are deleted, and the ledgers record it."""

    table: str


@dataclass(frozen=True)
class Reset(Placed):
    """RESET PIPELINE: its tables are cleared and reloaded from the earliest offsets; it restarts if it was started."""

    pipelines: tuple[str, ...]


@dataclass(frozen=True)
class Query:
    """A statement in DuckDB's SQL, with its position `()`."""

    text: str
    places: Places | None = field(default=None, compare=False, repr=False)


Statement = (
    Create | Alter | Drop | Start | StartMany | Stop | StopAll | Detach | Test | ShowPipelines | ShowCreate | Extract | Infer
    | ClearErrors | Backfill | Replay | Truncate | Reset | Query
)  # fmt: skip


def changes(statement: Statement) -> Collection[str] | None:
    """Return the pipelines whose definition, switch, position or rows a statement changes; None: any of them.

    A type of statement that is missing here is an error of the type checker.
    """
    match statement:
        case Create():
            return (statement.pipeline.name,)
        case Alter() | Drop() | Start() | Stop() | Detach() | Backfill() | Replay():
            return (statement.pipeline,)
        case Reset():
            return statement.pipelines
        case ClearErrors():
            return None if statement.pipeline is None else (statement.pipeline,)
        case StartMany() | StopAll() | Truncate():
            return None
        case Test() | ShowPipelines() | ShowCreate() | Extract() | Infer() | Query():
            return ()
