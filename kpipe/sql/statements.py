"""Statements as plain values. parser.py returns them, renderer.py takes them; nothing here executes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from kpipe.definition.pipeline import Pipeline, Timestamp
from kpipe.offsets import Range
from kpipe.sql.source_positions import Places
from kpipe.topics import Part

__all__ = [
    "Alter", "Backfill", "Change", "ClearErrors", "Create", "Detach", "Drop", "DropOrphans", "DropPartition", "Extract",
    "Infer", "Moment", "Placed", "Query", "ReloadLookups", "ReloadTransform", "Replay", "Reset", "SetField", "SetOffsets",
    "ShowCreate", "ShowPipelines", "Start", "StartMany", "Statement", "Stop", "StopAll", "Test", "Truncate",
]  # fmt: skip

#: Where to read: `earliest`, `latest`, a time, or next offsets by partition.
Moment = Literal["earliest", "latest"] | Timestamp | dict[Part, int]


@dataclass(frozen=True)
class Placed:
    """A statement about pipelines that are there.

    Attributes:
        places: where the statement stands, for errors about the names in it.
    """

    places: Places | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Create:
    """CREATE PIPELINE.

    Attributes:
        pipeline: the definition.
        or_replace: an existing one is replaced; where it reads stays.
        if_not_exists: an existing one stays, and that is no error.
        places: where the statement says what.
    """

    pipeline: Pipeline
    or_replace: bool = False
    if_not_exists: bool = False
    places: Places | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class SetField:
    """A field of the definition gets another value; None: its default.

    Attributes:
        path: names from the outside in, as in YAML.
        value: as in YAML.
    """

    path: tuple[str, ...]
    value: Any


@dataclass(frozen=True)
class SetOffsets:
    """Reading goes on elsewhere.

    Attributes:
        to: where; offsets change only the partitions that they name.
        reread: offsets that have been read are read again, into duplicates.
    """

    to: Moment
    reread: bool = False


@dataclass(frozen=True)
class ReloadTransform:
    """The program is fetched again."""


@dataclass(frozen=True)
class ReloadLookups:
    """The lookups are read again."""


@dataclass(frozen=True)
class DropPartition:
    """A partition is forgotten: one that the topic has no more, or, with `reread`, one that is read again from its start."""

    partition: Part
    reread: bool = False


@dataclass(frozen=True)
class DropOrphans:
    """All partitions that the topic has no more are forgotten."""


Change = SetField | SetOffsets | ReloadTransform | ReloadLookups | DropPartition | DropOrphans


@dataclass(frozen=True)
class Alter:
    """ALTER PIPELINE: changes in order, and where the statement says them."""

    pipeline: str
    changes: tuple[Change, ...]
    places: Places | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Drop(Placed):
    """DROP PIPELINE: the definition goes; rows, history and ledger stay."""

    pipeline: str
    if_exists: bool = False


@dataclass(frozen=True)
class Start(Placed):
    """START PIPELINE.

    Attributes:
        foreground: here and now, until caught up.
        limit: with `foreground`, most batches.
    """

    pipeline: str
    if_not_running: bool = False
    foreground: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class StartMany:
    """START ALL PIPELINES, or those that an error stopped."""

    failed: bool = False


@dataclass(frozen=True)
class Stop(Placed):
    """STOP PIPELINE: the batch at hand is finished, or, with `cancel`, given up."""

    pipeline: str
    if_running: bool = False
    cancel: bool = False


@dataclass(frozen=True)
class StopAll:
    """STOP ALL PIPELINES."""

    cancel: bool = False


@dataclass(frozen=True)
class Detach(Placed):
    """DETACH PIPELINE: stopped, so that its table can be changed."""

    pipeline: str
    if_exists: bool = False


@dataclass(frozen=True)
class Test(Placed):
    """TEST PIPELINE: rows shown, nothing written.

    Attributes:
        limit: offsets of each partition.
    """

    __test__ = False  # pytest would take it for a test

    pipeline: str
    limit: int | None = None


@dataclass(frozen=True)
class ShowPipelines:
    """SHOW PIPELINES."""


@dataclass(frozen=True)
class ShowCreate(Placed):
    """SHOW CREATE PIPELINE; extended: also where it stands."""

    pipeline: str
    extended: bool = False


@dataclass(frozen=True)
class Extract(Placed):
    """EXTRACT PIPELINE ... INTO OUTFILE: records as a program would get them on stdin.

    Attributes:
        partition: None: the first that has something unread.
        offsets: None: what a batch would read.
    """

    pipeline: str
    file: str
    partition: Part | None = None
    offsets: Range | None = None


@dataclass(frozen=True)
class Infer:
    """INFER PIPELINE: table and mapping from a sample. The pipeline's name and table are those of the topic."""

    pipeline: Pipeline
    places: Places | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class ClearErrors(Placed):
    """CLEAR PIPELINE ERRORS; None: of all pipelines."""

    pipeline: str | None = None


@dataclass(frozen=True)
class Backfill(Placed):
    """BACKFILL PIPELINE: what was skipped is read beside what is new.

    Attributes:
        partition: None: all.
        offsets: None: all.
    """

    pipeline: str
    partition: Part | None = None
    offsets: Range | None = None


@dataclass(frozen=True)
class Replay(Placed):
    """REPLAY PIPELINE: dead letters are tried again with the definition as it is now."""

    pipeline: str


@dataclass(frozen=True)
class Truncate:
    """TRUNCATE TABLE, or DELETE FROM without WHERE: all rows of a table go, and the ledgers say so."""

    table: str


@dataclass(frozen=True)
class Reset(Placed):
    """RESET PIPELINE: stopped, its tables cleared, read from the earliest offsets again, started if it was on."""

    pipelines: tuple[str, ...]


@dataclass(frozen=True)
class Query:
    """Any other statement, in DuckDB's SQL, and where it begins: `()`."""

    text: str
    places: Places | None = field(default=None, compare=False, repr=False)


Statement = (
    Create | Alter | Drop | Start | StartMany | Stop | StopAll | Detach | Test | ShowPipelines | ShowCreate | Extract | Infer
    | ClearErrors | Backfill | Replay | Truncate | Reset | Query
)  # fmt: skip
