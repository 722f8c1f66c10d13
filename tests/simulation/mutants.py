"""The protocol with one thing broken: what the simulation has to find."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import kpipe.batch.coverage
import kpipe.ingest.at_least_once
import kpipe.ingest.at_most_once
import kpipe.ingest.batch_bisection
import kpipe.ingest.loop
import kpipe.ledger.transitions
import kpipe.planning.seek
import kpipe.verification.verify
from kpipe.ledger.ledger import LaneChange, Ledger
from kpipe.ledger.tail import Tail
from tests.simulation import world

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """A text that is replaced in the source of one function or method.

    Attributes:
        what: is broken.
        owner: module or class that the function is looked up in.
        function: its name.
        old, new: the texts.
        near: the scenario of `SMALL` in which it shows.
    """

    what: str
    owner: Any
    function: str
    old: str
    new: str
    near: str

    def __str__(self) -> str:
        return self.what

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The function as it would be with the other text."""
        real = inspect.getattr_static(self.owner, self.function)
        plain = real.fget if isinstance(real, property) else real
        source = textwrap.dedent(inspect.getsource(plain))
        assert source.count(self.old) == 1, f"{self.what}: the text is {source.count(self.old)} times in {self.function}"
        names: dict[str, Any] = {}
        exec(
            compile("from __future__ import annotations\n" + source.replace(self.old, self.new), "mutant", "exec"),
            _names(plain),
            names,
        )
        setattr(self.owner, self.function, names[self.function])
        try:
            yield
        finally:
            setattr(self.owner, self.function, real)


def _names(function: Callable[..., Any]) -> dict[str, Any]:
    """What the function sees: its module's own names, stand-ins for ids and clocks among them, and what mutants need."""
    module = inspect.getmodule(function)
    assert isinstance(module, ModuleType)
    return {"LaneChange": LaneChange, "replace": replace, **vars(module)}


_AHEAD, _ANY = "SET OFFSETS ahead, and BACKFILL", "two runs, two faults"
_STALE = "current != change.expect and not (current and change.expect and current.next >= change.expect.next)"

MUTANTS = (
    Mutant("a commit compares nothing", Ledger, "apply", "current != change.expect", "False", _ANY),
    Mutant("a commit compares with >=", Ledger, "apply", "current != change.expect", _STALE, _ANY),
    Mutant(
        "rows with a key are committed before the ledger", kpipe.ingest.loop.Ingest, "_delivery",
        "rows_first(self.pipeline)", 'self.pipeline.delivery == "at_least_once"',
        "at_least_once, a key, records that come",
    ),
    Mutant(
        "the ledger advances beyond the rows", kpipe.ingest.at_least_once.AtLeastOnce, "landed",
        "[step.change for step in batch.steps]", "[replace(s, end=s.end + 1).change for s in batch.steps]",
        "at_least_once",
    ),
    Mutant(
        "a claim says that the offsets were read", kpipe.ingest.at_most_once, "claim",
        "taken = Lane(lane.source, start, start, end, LOST)", "taken = Lane(lane.source, start, end, end)",
        "at_most_once",
    ),
    Mutant(
        "claimed rows land behind those of later offsets", kpipe.ingest.at_most_once, "claim",
        "if rest is not None and in_order:", "if False:",
        "at_most_once, deletes",
    ),
    Mutant(
        "a claim is not given back", kpipe.ingest.at_most_once.AtMostOnce, "give_back",
        "if open is None:", "if True:",
        "at_most_once, a destination that is busy",
    ),
    Mutant(
        "a jump forgets what it leaves out", kpipe.ledger.transitions, "_leave_behind",
        "*_split(lane, to, kind)", "LaneChange(lane, replace(lane, end=lane.next))",
        _AHEAD,
    ),
    Mutant(
        "what is to be read again is not in the history", kpipe.ledger.transitions, "reread",
        "again = tuple(Range(max(to, item.start), item.end) for item in done if item.end > to)", "again = ()",
        "SET OFFSETS REREAD",
    ),
    Mutant("a backfill counts as newer", Ledger, "overtaken", "return any(", "return False and any(", _AHEAD),
    Mutant(
        "a batch that fails is skipped as a whole", kpipe.ingest.batch_bisection.BadRecordIsolation, "failed",
        "len(parts) > 1 or batch.span > self._smallest", "False",
        "a record that no batch gets past",
    ),
    Mutant(
        "a batch that was begun is planned anew", kpipe.ingest.loop.Ingest, "_resumed",
        "if commit is None:", "if True:",
        "a receiver of requests",
    ),
    Mutant("a batch is sent before it is kept", world.World, "pin", "self.pending = commit", "pass", "a receiver of requests"),
    Mutant(
        "verify forgets what is lost", Ledger, "unread",
        "if x.kind == kind and", "if x.kind == kind and kind != LOST and",
        "at_most_once",
    ),
    Mutant(
        "verify forgets what comes twice", kpipe.verification.verify, "_repeated",
        "if not loose and not demanded:", "if True:",
        "at_least_once",
    ),
    Mutant(
        "the records before a batch are not compared", Tail, "difference", "known.get(offset) != now", "False",
        "a log that is cut and grows again",
    ),
    Mutant(
        "a batch does not say what it read last", kpipe.batch.coverage, "_tail", "report.tail is not None", "False",
        "a log that is cut and grows again",
    ),
    Mutant(
        "claimed rows land without a fingerprint", kpipe.ingest.at_most_once, "_with_tail",
        "become is None or (become.source, become.next) not in tails", "True",
        "a log that is cut, at_most_once",
    ),
    Mutant(
        "verify forgets a log that was cut", kpipe.verification.verify, "_cut", "lane.tail.state == CUT", "False",
        "a log that is cut and grows again",
    ),
)  # fmt: skip
