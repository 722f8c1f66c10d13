"""What differs from one SQL database to the next: the methods that a destination of its own needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from kpipe.batch.batch import Commit
from kpipe.errors import NotAvailable
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.sql.sql_dialect import Dialect
from resources.destinations.staged_file_check import Proven, Writes

__all__ = ["Hooks", "Verdict"]

_T = TypeVar("_T", bound="Hooks")


@dataclass(frozen=True)
class Verdict:
    """What an error of the database's client means.

    Attributes:
        conflict: another transaction was merely in the way: it can be tried again.
        refused: the table refuses the columns or the rows.
        damage: kpipe's own tables are not what they were.
        busy: it could not be had in time.
        taken: a key of the table at hand is taken.
        rights: refused because rights are missing, whatever the rows are.
    """

    conflict: bool = False
    refused: bool = False
    damage: bool = False
    busy: str = ""
    taken: bool = False
    rights: bool = False


class Hooks(ABC):
    """What a database must be able to do, in the order in which a commit asks for it.

    Args:
        table: name of the table.
        pipeline: name of the pipeline.
        config_json: the pipeline's definition for people, without secrets.
        staging: folders that staged files lie in.
        rule: what happens to rows by their key; None: they have none.
        also: the further tables at the same place, in the order of the definition; asked, and never committed to by themselves.
    """

    dialect: Dialect
    #: What the database's client raises.
    failures: ClassVar[tuple[type[Exception], ...]]
    #: What a person can do when kpipe's tables are damaged.
    rescue: ClassVar[str]

    def __init__(
        self,
        table: str,
        pipeline: str,
        config_json: Mapping[str, Any] | None,
        staging: Sequence[Path],
        rule: KeyRule | None = None,
        also: Sequence[Hooks] = (),
    ) -> None:
        self.staging, self.tables = tuple(staging), (self, *also)
        self.is_first = True
        for place in also:
            place.is_first = False
        self.table, self.pipeline, self.config, self.rule = table, pipeline, dict(config_json or {}), rule

    def renamed(self: _T, table: str) -> _T:
        """Return this destination with another table, to be counted: one that the definition no longer names."""
        place = copy(self)
        place.table, place.rule = table, None
        return place

    def _keyed(self) -> bool:
        """Whether rows of some table are told apart by a key."""
        return any(place.rule is not None for place in self.tables)

    @abstractmethod
    def describe(self) -> str:
        """Kind, place and table; holds no secret."""

    def hurry(self, seconds: float) -> None:  # noqa: B027
        """Wait no longer than this for a server that does not answer; see `Hurried` of kpipe_assets/validation/case.py."""

    @abstractmethod
    def _there(self) -> bool:
        """Whether there is a database at all."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Any]:
        """A fresh connection for reading."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Any]:
        """A fresh connection; what it has not committed when it closes is rolled back."""

    def _ready(self, connection: Any, commit: Commit, parts: Sequence[Commit], staged: Sequence[Writes]) -> None:  # noqa: B027
        """Make what no transaction can make. Here nothing: most databases make tables in that of the commit."""

    @abstractmethod
    def _begin(self, connection: Any) -> tuple[bool, list[bool]]:
        """Begin the transaction of a commit; whether the ledger's tables are there, and which of `tables` are."""

    @abstractmethod
    def _snapshot(self, connection: Any) -> None:
        """Begin a transaction that reads, and sees one state of everything."""

    @abstractmethod
    def _present(self, connection: Any) -> bool:
        """Whether the ledger's tables are there. Not inside of a transaction."""

    @abstractmethod
    def _exists(self, connection: Any, name: str) -> bool:
        """Whether there is a table of that name. Not inside of a transaction."""

    @abstractmethod
    def _create(self, connection: Any) -> None:
        """Make the ledger's tables, inside the transaction at hand."""

    @abstractmethod
    def _all_columns(self, connection: Any) -> Columns:
        """All columns of the table, which exists; coordinates, too."""

    @abstractmethod
    def _prepare(self, connection: Any, exists: bool, commit: Commit, staged: Sequence[Proven]) -> Columns:
        """Create the table, or widen it; all columns that it has then."""

    @abstractmethod
    def _insert(self, connection: Any, commit: Commit, staged: Sequence[Proven], known: Columns) -> None:
        """Insert the staged rows, and count them."""

    def _primary_key(self, connection: Any) -> tuple[str, ...]:
        """Columns of the table's primary key; none where it has none, or is not there."""
        raise self._keyless()

    def _upsert(
        self, connection: Any, commit: Commit, ledger: Ledger, staged: Writes, key: tuple[str, ...], known: Columns
    ) -> tuple[Commit, dict[Part, Holding]]:
        """Apply the batch's writes by the rule; the commit with what became of them, and what the table gained by partition."""
        raise self._keyless()

    def _set_duplicates_aside(self, connection: Any, commit: Commit, events: int) -> None:
        """Insert the records that `_upsert` has found to be duplicates as dead letters, behind `events` error events."""
        raise self._keyless()

    def _keyless(self) -> NotAvailable:
        return NotAvailable(f"{self.describe()} knows no keys", "leave out into.key and into.on_conflict")

    def _violations(self, connection: Any, commit: Commit, staged: Sequence[Proven]) -> Sequence[tuple[int, int | None, str]]:
        """Partition and offset of each staged row that a constraint of the table refuses, with the reason.

        In a transaction of its own, which is rolled back; the table is there.
        """
        return ()

    @abstractmethod
    def _set_aside(self, connection: Any, commit: Commit, staged: Sequence[Proven], events: int) -> int:
        """Insert the staged dead letters; how many there were."""

    @abstractmethod
    def _commit(self, connection: Any) -> None:
        """Send COMMIT."""

    @abstractmethod
    def _settle(self, connection: Any) -> None:
        """Wait until no commit of this pipeline is on its way any more, one whose answer was lost among them."""

    @abstractmethod
    def _described(self, connection: Any, view: str) -> list[tuple[str, bool]]:
        """Columns of a view, and which are instants."""

    @abstractmethod
    def _judge(self, error: Exception, step: str) -> Verdict:
        """What an error means. `step` is the step of a commit, or empty."""
