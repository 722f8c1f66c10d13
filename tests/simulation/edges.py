"""The ports of one run, each of whose effects can be suspended: a run is its code and the answers it was given.

A process is a plain function over these edges. It is run with the answers of its earlier effects; at the first effect without an
answer it is left (`Suspended`), and that effect is what it does next. So a run that stands anywhere costs nothing, can be
continued in many worlds, and needs no thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import kpipe.ingest.loop
import kpipe.ingest.prefetch
import kpipe.run_events
import kpipe.testing.memory
from kpipe.batch.batch import Batch, Commit, Committed, RangeReport
from kpipe.column_growth import Closed
from kpipe.errors import KpipeError
from kpipe.ledger.ledger import Ledger
from kpipe.run_events import Seen
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicSnapshot

__all__ = ["COLUMNS", "Edges", "Effect", "Outcome", "Process", "advanced", "stand_ins"]

COLUMNS = Columns.of({"id": "BIGINT", "k": "BIGINT"})


@dataclass(frozen=True)
class Effect:
    """What a process does next: the name of the effect and its arguments."""

    name: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a process ended: `done`, or the class of its error."""

    word: str
    text: str = ""


class Suspended(BaseException):
    """The process has come to an effect that has no answer yet; nothing may happen on the way out."""


class Edges:
    """Topics, stager and destination of one process, and the memory of its home.

    Args:
        name: of the process; ids of its commits begin with it.
        answers: of its effects so far. An exception is raised in place of an answer.
        resuming: whether the destination can be left with a batch that it has begun.
    """

    def __init__(self, name: str, answers: Sequence[Any], resuming: bool = False) -> None:
        self.name, self._answers, self._at, self.asked = name, answers, 0, None
        self._ids = 0
        self.topics, self.stager = _Topics(self), _Stager(self)
        self.destination = _Resuming(self) if resuming else _Destination(self)

    def ask(self, name: str, *args: Any) -> Any:
        """The answer of an effect.

        Raises:
            Suspended: it has none yet, or the process was left before.
        """
        if self.asked is not None:
            raise Suspended
        if self._at == len(self._answers):
            self.asked = Effect(name, args)
            raise Suspended
        answer = self._answers[self._at]
        self._at += 1
        if isinstance(answer, Exception):
            raise answer.with_traceback(None)
        return answer

    def seen(self) -> Seen:
        """What the home remembers when the process starts."""
        uid, seq = self.ask("start")
        return Seen(uid, seq, lambda seen: self.ask("remember", seen.uid, seen.seq))

    def new_id(self) -> str:
        self._ids += 1
        return f"{self.name}.{self._ids}"


Process = Callable[[Edges], None]


def advanced(process: Process, name: str, answers: Sequence[Any], resuming: bool = False) -> Effect | Outcome:
    """Run a process with these answers up to its next effect, or to its end."""
    edges = Edges(name, answers, resuming)
    _current.append(edges)
    try:
        process(edges)
    except Suspended:
        assert edges.asked is not None
        return edges.asked
    except KpipeError as error:
        return edges.asked or Outcome(type(error).__name__, str(error))
    except Exception as error:  # a defect: the oracle says so, with the schedule
        return edges.asked or Outcome(type(error).__name__, str(error))
    finally:
        _current.pop()
    return edges.asked or Outcome("done")


class _Topics:
    def __init__(self, edges: Edges) -> None:
        self._ask = edges.ask

    def snapshot(self) -> TopicSnapshot:
        return self._ask("snapshot")

    def present(self) -> Collection[PartitionId]:
        return self._ask("present")

    def offsets_at(self, moment: Any, snapshot: TopicSnapshot) -> Mapping[PartitionId, int]:
        raise NotImplementedError


class _Stager:
    def __init__(self, edges: Edges) -> None:
        self._ask = edges.ask

    def columns(self, batch: Batch, table: int) -> Columns:
        return COLUMNS

    def stage(self, batch: Batch, tables: Sequence[Columns], closed: Sequence[Closed] = ()) -> Sequence[RangeReport]:
        return self._ask("stage", batch, tables)

    def give_up(self) -> None:
        """What it does ends by itself."""


class _Destination:
    def __init__(self, edges: Edges) -> None:
        self._ask = edges.ask

    def describe(self) -> str:
        return "memory"

    def columns(self) -> Columns | None:
        return self._ask("columns")

    def ledger(self) -> tuple[str, Ledger]:
        return self._ask("ledger")

    def commit(self, commit: Commit) -> Committed:
        return self._ask("commit", commit)

    def record_state(self, *state: Any) -> None:
        """For people only."""


class _Resuming(_Destination):
    """A destination that sends a batch request by request before it can commit it, as a webhook does."""

    def unfinished(self) -> Commit | None:
        return self._ask("unfinished")

    def commit(self, commit: Commit) -> Committed:
        if commit.kind != "batch":
            return self._ask("decide", commit)
        begun = self._ask("hold")
        try:
            if begun is not None and begun.id != commit.id:
                self._finished(begun, True)
                begun = None
            return self._finished(commit, begun is not None)
        finally:
            self._ask("release")

    def _finished(self, commit: Commit, found: bool) -> Committed:
        self._ask("pin", commit, found)
        for number in range(commit.totals.rows):
            self._ask("send", commit, number)
        done = self._ask("commit", commit)
        self._ask("clear", commit)
        return done


_current: list[Edges] = []


class _Inline:
    """A thread that does its work when it is started: what is extracted ahead is then as old as it can be."""

    def __init__(self, target: Callable[[], None], **_: Any) -> None:
        self.start = target

    def join(self, timeout: float | None = None) -> None:
        """It has ended."""

    def is_alive(self) -> bool:
        return False


@contextmanager
def stand_ins() -> Iterator[None]:
    """Ids, clocks and threads of the core that depend on nothing but the answers that a process was given."""

    def new_id(_: int = 16) -> str:
        return _current[-1].new_id() if _current else "registered"

    ids = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=new_id()))
    clock = SimpleNamespace(monotonic=lambda: 0.0, time=lambda: 0.0, sleep=lambda _: None)
    places = [
        (kpipe.ingest.loop, "secrets"), (kpipe.run_events, "uuid"), (kpipe.testing.memory, "uuid"), (kpipe.ingest.loop, "time"),
        (kpipe.run_events, "time"), (kpipe.ingest.prefetch, "time"), (kpipe.ingest.prefetch, "threading"),
    ]  # fmt: skip
    old = [(module, name, getattr(module, name)) for module, name in places]
    new = {"uuid": ids, "secrets": SimpleNamespace(token_hex=new_id), "time": clock, "threading": SimpleNamespace(Thread=_Inline)}
    for module, name, _ in old:
        setattr(module, name, new[name])
    try:
        yield
    finally:
        for module, name, real in old:
            setattr(module, name, real)
