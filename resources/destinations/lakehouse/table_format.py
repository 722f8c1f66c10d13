"""What a table format must do to be a destination: load a state, bring files in, land a commit or say that another was first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.ledger_file import Pointer, Record
from resources.destinations.staged_file_check import Proven

__all__ = ["Overtaken", "State", "Table"]


class Overtaken(Exception):
    """Another commit took the table's next version. Nothing was changed; look again, and then decide."""


class State(Protocol):
    """The table at one moment, which never changes."""

    @property
    def version(self) -> int:
        """Counts up with each commit, whoever made it."""

    @property
    def columns(self) -> Columns:
        """All columns, coordinates too.

        Raises:
            SchemaConflict: a column's type is none that kpipe can write.
        """

    def pointer(self, pipeline: str) -> Pointer | None:
        """What the table says of the pipeline; None when it has never committed here."""

    def check(self, record: Record) -> None:
        """Proof that the rows are still those that the record speaks of, as far as the table's own history tells.

        Raises:
            LedgerMismatch: the table was restored to a state before it.
        """


class Table(Protocol):
    """A table in a lake. What `load`, `prepare` and `bring` give is the format's own, and handed back to it."""

    @property
    def kind(self) -> str:
        """What people call the format."""

    @property
    def kept(self) -> int:
        """For how many commits a superseded file of the ledger stays: whoever is at an older state may still come for it."""

    @property
    def place(self) -> str:
        """Where the table lies; no secret."""

    @property
    def ledger(self) -> Folder:
        """Where kpipe's own files lie: beside the data, and out of the format's way."""

    def load(self) -> State | None:
        """The newest state, through a fresh look; None where there is no table.

        Raises:
            DestinationError: it cannot be read, or has properties with which kpipe cannot keep what it guarantees.
        """

    def prepare(self, state: Any, wanted: Columns) -> Any:
        """The table's schema with these columns; changes nothing yet.

        Raises:
            SchemaConflict: it cannot have them.
        """

    def bring(self, schema: Any, commit: Commit, staged: Sequence[Proven]) -> Sequence[Any]:
        """Make staged files the table's own, durable; nothing refers to them yet.

        Raises:
            StagingFailed, SchemaConflict, DestinationError.
        """

    def land(self, state: Any, schema: Any, brought: Any, record: Record, pointer: Pointer) -> None:
        """Commit everything upon that very state.

        Raises:
            Overtaken: the table has a later state.
        """

    def rows(self, state: Any, names: Sequence[str]) -> Any:
        """The rows as Arrow, for counting: something with these columns that DuckDB can scan."""

    def upkeep(self, state: Any) -> None:
        """What keeps the table fast, after a commit; best effort."""
