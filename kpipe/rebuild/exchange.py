"""The exchange of a rebuilt table with the live one: names, conditions, and the interface of a destination that can do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from kpipe.errors import Fenced, InvalidStatement
from kpipe.ledger.ledger import ADOPTED, READ, LaneChange, Ledger
from kpipe.ledger.tail import Tail
from kpipe.offsets import Range, RangeSet, union

__all__ = ["Coordinates", "Exchange", "Exchanging", "TableNames", "check", "marks", "missing"]

_END = 2**63 - 1


@dataclass(frozen=True)
class TableNames:
    """Names of a table.

    Attributes:
        live: of the table that is replaced, and of the new one afterwards.
        rebuilt: of the new table until the exchange.
        replaced: of the old table afterwards.
    """

    live: str
    rebuilt: str
    replaced: str


@dataclass(frozen=True)
class Exchange:
    """Everything that changes in one commit.

    Attributes:
        id: of the commit.
        pipelines: names of the pipeline, as of its tables.
        tables: names of each table.
        accept_missing: whether offsets may be missing that the live table has.
        note: the decision and its author.
        run_id, version: stored with the commit.
        config: the new definition, for display, without secrets.
    """

    id: str
    pipelines: TableNames
    tables: tuple[TableNames, ...]
    accept_missing: bool = False
    note: str = ""
    run_id: str = ""
    version: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of rows that only one of two tables has.

    Attributes:
        live: topic (empty: rows do not name it), partition and offset of some rows of the live table only.
        rebuilt: the same of the rebuilt table.
    """

    live: Sequence[tuple[str, int, int]] = ()
    rebuilt: Sequence[tuple[str, int, int]] = ()


@runtime_checkable
class Exchanging(Protocol):
    """Optional interface of a live pipeline's destination: exchange its tables with rebuilt ones."""

    def check_exchange(self) -> None:
        """Check that the database can exchange tables and ledgers in one commit.

        Raises:
            NotAvailable: it cannot.
        """
        ...

    def check_rebuild(self, pipelines: TableNames, tables: Sequence[TableNames]) -> None:
        """Check that a rebuild can begin.

        Raises:
            NotAvailable: as `check_exchange`.
            InvalidStatement: a table or ledger has a name that the rebuild needs, or another pipeline has rows in a live table.
        """
        ...

    def exchange(self, work: Exchange) -> int:
        """Exchange tables, dead letters and ledgers in one commit or not at all, and return its number.

        Afterwards the pipeline has the rebuilt tables with their ledger and registration id. The old ones have the names of
        `replaced`. No commit that was planned before lands: every unfinished lane changes (`marks`), and the registration differs
        (`Commit.registered`). Read back as any commit.

        Raises:
            NotAvailable: the database cannot do this in one commit.
            Fenced: the live pipeline has read offsets that the rebuilt one has still to read. Nothing was changed.
            InvalidStatement: something that the live table has would be missing. Nothing was changed.
            KpipeError: as `Destination.commit`.
        """
        ...

    def exchanged(self, id: str) -> bool:
        """Return whether the exchange with this id has been committed."""
        ...

    def discard(self, pipeline: str, tables: Sequence[str]) -> None:
        """Drop the tables of a pipeline, and delete its ledger, history and dead letters, in one commit.

        Raises:
            InvalidStatement: one of the tables was written by another pipeline, or not by this one, or has rows that no pipeline
                has written. Nothing was dropped.
        """
        ...

    def differences(self, names: TableNames, limit: int) -> Coordinates:
        """Return coordinates that only one of the two tables has, at most `limit` of each, in order."""
        ...


def missing(live: Ledger, rebuilt: Ledger) -> tuple[list[str], list[str]]:
    """Return the offsets that the live table has and the rebuilt one has not: to be read yet, and missing permanently.

    Offsets that the live pipeline has adopted count: the rows of the loader before it may be in the live table.
    """
    later: list[str] = []
    never: list[str] = []
    for source in live.sources():
        done = rebuilt.committed(source)
        ahead = [x for x in rebuilt.of(source) if x.kind == READ and not x.finished]
        waiting = union(Range(x.next, max(x.next, _END if x.end is None else x.end)) for x in ahead)
        held = (*live.committed(source), *live.unread(source, ADOPTED))
        for gap in (gap for found in held for gap in done.missing(found)):
            gone = RangeSet.of(waiting.missing(gap))
            later += [f"{source} {part}" for part in gone.missing(gap)]
            never += [f"{source} {part}" for part in gone]
    return later, never


def check(work: Exchange, live: Ledger, rebuilt: Ledger) -> None:
    """Check that the rebuilt pipeline has read what the live one has read.

    Raises:
        Fenced: it will read the rest.
        InvalidStatement: offsets are missing permanently, and that was not accepted.
    """
    later, never = missing(live, rebuilt)
    if never and not work.accept_missing:
        raise InvalidStatement(
            f"pipeline {work.pipelines.live}: the rebuilt table lacks offsets that the live one has: {', '.join(never)}",
            "the topic may not have them any more; --accept-missing exchanges the tables without their rows",
        )
    if later:
        raise Fenced(
            f"pipeline {work.pipelines.rebuilt}: {work.pipelines.live} has read more in the meantime: {', '.join(later)}",
            "run it again; or stop the pipeline for the exchange",
        )


def marks(work: Exchange, rebuilt: Ledger) -> tuple[LaneChange, ...]:
    """Return changes that leave every unfinished lane where it is, but equal to no lane that any plan has read.

    The mark is in the lane's fingerprint, and contains the id of the exchange. The next batch replaces it.
    """
    lanes = [lane for lane in rebuilt.lanes.values() if not lane.finished]
    tails = [(lane.tail or Tail.made(lane.next)).marked(f"rebuilt:{work.id[:8]}") for lane in lanes]
    return tuple(LaneChange(lane, replace(lane, tail=tail)) for lane, tail in zip(lanes, tails, strict=True))
