"""Interface of a table format: load a state, add files, and commit or report that another commit was first."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kpipe.batch.batch import Commit
from kpipe.provenance.facts import Query, Snapshot
from kpipe.schema.columns import Columns
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.ledger_file import Pointer, Record
from resources.destinations.lakehouse.row_search import Condition
from resources.destinations.staged_file_check import Proven

__all__ = ["Overtaken", "State", "Table", "Written", "is_keyed"]


class Overtaken(Exception):
    """Another commit created the table's next version. Nothing was changed; load the state again and validate."""


@dataclass(frozen=True)
class Written:
    """Files of a batch in the table's folder, before its commit.

    Attributes:
        commit: with the outcome of its rows.
        brought: results of `bring`.
        letters: further files of dead letters.
        balance: of the pipeline's record after the commit; None: the table has no key.
        baseline: likewise.
    """

    commit: Commit
    brought: Sequence[Any] = ()
    letters: Sequence[Proven] = ()
    balance: tuple[tuple[str, int, int, int], ...] | None = None
    baseline: int = 0


class State(Protocol):
    """The table at one version; immutable."""

    @property
    def version(self) -> int:
        """The version; each commit of any writer increases it."""

    @property
    def columns(self) -> Columns:
        """All columns, including coordinates.

        Raises:
            SchemaConflict: kpipe cannot write a column's type.
        """

    def pointer(self, pipeline: str) -> Pointer | None:
        """Return the table's reference to the pipeline's ledger; None: the pipeline never committed here."""

    def check(self, record: Record) -> None:
        """Check that the rows belong to the ledger, as far as the table's history shows.

        Raises:
            LedgerMismatch: the table was restored to an earlier state.
        """


def is_keyed(state: State) -> bool:
    """Return whether some pipeline has written the table with a key: then each commit records a balance.

    Formats without keys, such as those of other packages, have no attribute `is_keyed`.
    """
    return bool(getattr(state, "is_keyed", False))


class Table(Protocol):
    """A table in a table format. Results of `load`, `prepare` and `bring` are the format's own, and passed back to it."""

    @property
    def kind(self) -> str:
        """Display name of the format."""

    @property
    def kept(self) -> int:
        """Number of commits for which a superseded ledger file is kept: readers of older states may need it."""

    @property
    def place(self) -> str:
        """Location of the table, without secrets."""

    @property
    def ledger(self) -> Folder:
        """Folder of kpipe's files: beside the data, ignored by the format."""

    def load(self) -> State | None:
        """Load the newest state from storage; None: the table does not exist.

        Raises:
            DestinationError: it cannot be read, or has properties that kpipe does not support.
        """

    def prepare(self, state: Any, wanted: Columns) -> Any:
        """Return the table's schema with these columns; changes nothing yet.

        Raises:
            SchemaConflict: the columns do not fit.
        """

    def bring(self, schema: Any, commit: Commit, staged: Sequence[Proven]) -> Sequence[Any]:
        """Write staged files into the table's folder, durably; no commit references them yet.

        Raises:
            StagingFailed, SchemaConflict, DestinationError.
        """

    def land(self, state: Any, schema: Any, brought: Any, record: Record, pointer: Pointer) -> None:
        """Commit on top of exactly that state.

        Raises:
            Overtaken: the table has a later state.
        """

    def rows(self, state: Any, names: Sequence[str]) -> Any:
        """Return these columns of all rows for counting, as Arrow that DuckDB can scan."""

    def matching(self, state: Any, names: Sequence[str], where: Sequence[Condition], limit: int | None) -> Any:
        """Return these columns of the rows that match all conditions, as an Arrow table; at most `limit` rows."""

    def landed(self, state: Any, pipeline: str, seqs: Collection[int]) -> Mapping[int, Snapshot]:
        """Return the snapshots that these commits of the pipeline made, as far as they can still be queried."""

    def queries(self, state: Any, snapshot: Snapshot, condition: str) -> Sequence[Query]:
        """Return queries of a snapshot, one for each engine; see `Versioned`. Empty: the format has no snapshots."""

    def upkeep(self, state: Any) -> None:
        """Run maintenance that keeps the table fast, after a commit; best effort."""
