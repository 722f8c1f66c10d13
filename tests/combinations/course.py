"""Runs a course of events through kpipe's own planning, tasks and destinations, in this process, and has each step judged."""

from __future__ import annotations

import json
import shutil
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.definition.lakehouse_options import Maintenance
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, KpipeError, NotAvailable
from kpipe.ledger.ledger import LOST, READ, SKIPPED
from kpipe.run_events import Decisions
from kpipe.sql.statements import Alter, Backfill, SetOffsets
from kpipe_assets.runs.dead_letter_retry import retry
from kpipe_assets.runs.maintenance import maintained
from kpipe_assets.runs.proof import prove
from kpipe_assets.runs.runner import Run
from kpipe_assets.statements.seek import alter, backfill
from resources.destinations import open_destination
from resources.home import Home
from resources.spark.workers import warm_up
from tests.combinations import reasons
from tests.combinations.crashes import FAULT, Fault, Killed
from tests.combinations.definition import NAME, Definition
from tests.combinations.example import Event, Example, build, edited, extend, place_of
from tests.combinations.log import stand_in
from tests.combinations.oracle import judge, tables_of
from tests.combinations.progress import unread
from tests.combinations.sites import Site
from tests.combinations.sizes import CORES, lowered
from tests.combinations.truth import Truth, keyed_state
from tests.survival.small import Context, in_worker

__all__ = ["Course", "Refused", "Wrong"]

_pipeline = Home.pipeline


class Refused(Exception):
    """The definition is one that kpipe says it cannot run: no example."""


class Wrong(AssertionError):
    """An example in which the oracle finds something."""


@dataclass
class Course:
    """One example at work.

    Attributes:
        example: what happens.
        folder: an empty folder.
        site: the destination's place.
    """

    example: Example
    folder: Path
    site: Site
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.definition = self.example.definition
        self.cluster = build(self.example)
        self.truth = Truth(self.cluster, [(0, self.definition)])
        self.home = Home.at(self.folder / "home").make()
        self.lossy = self._moved = self._killed = self.bounds = self._unfinished = False
        self._context = Context()
        self._context.defaultParallelism = self.example.small.get(CORES, 2)

    def go(self) -> None:
        """Let everything happen.

        Raises:
            Wrong: a rule is broken; the message is the transcript.
            Refused: the first definition cannot be run.
        """
        with ExitStack() as stack:
            stack.enter_context(stand_in(self.cluster))
            stack.enter_context(lowered(self.example.small))
            stack.enter_context(in_worker())
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(Home, "pipeline", lambda *_: self._read)
            patch.setattr(warm_up, "settle", lambda: None)  # it would freeze this process's objects
            try:
                self._check()
                self.site.prepare(self.definition)
                for at, event in enumerate((*self.example.events, Event("settle"))):
                    problems = self._happen(event)
                    self.log.append(f"event {at}: {event}: {'; '.join(problems) or 'ok'}")
                    if problems:
                        raise Wrong("\n".join([*problems, "", self.transcript()]))
            finally:
                failpoints.arm(None)

    def transcript(self) -> str:
        """The example, its definition and what happened, for people."""
        from kpipe.definition.yaml_codec import to_yaml

        return "\n".join([self.example.transcript(), to_yaml(self.pipeline(self.example.definition)), *self.log])

    def pipeline(self, definition: Definition) -> Pipeline:
        """The definition as kpipe reads it."""
        return Pipeline.model_validate(definition.fields(self.site.into(definition), self.site.program(definition)))

    def _check(self) -> None:
        try:
            self._save()
            self._opened()
        except (NotAvailable, InvalidPipeline, ValueError) as error:
            raise Refused(str(error)) from error

    def _save(self) -> None:
        """Write the definition, and read it once as kpipe does; then it is kept, as reading YAML takes longer than a batch."""
        self.home.save(self.pipeline(self.definition))
        self._read = _pipeline(self.home, NAME)

    def _opened(self, decisions: Decisions | None = None) -> Run:
        context: Any = self._context
        return Run.real(
            self.home.pipeline(NAME), self.home, lambda: context, decisions=decisions or Decisions(), wait=lambda _: None
        )

    def _happen(self, event: Event) -> list[str]:
        acts: dict[str, Callable[[Event], list[str]]] = {
            "run": self._run,
            "settle": self._settle,
            "produce": self._produce,
            "lose": self._lose,
            "hold": self._hold,
            "release": self._release,
            "decide": lambda event: self._run(event, Decisions(on_data_loss="record", who="an operator")),
            "set_offsets": self._set_offsets,
            "backfill": lambda _: self._stated(lambda: backfill(self.home, Backfill(NAME))),
            "retry": self._retry,
            "edit": self._edit,
            "maintain": self._maintain,
            "forget": self._forget,
        }
        return acts[event.kind](event)

    # What happens to the topics

    def _produce(self, event: Event) -> list[str]:
        topic, number, _ = place_of(self.cluster, event.place)
        extend(self.cluster, topic, number, event.items, self.definition)
        return []

    def _lose(self, event: Event) -> list[str]:
        _, _, log = place_of(self.cluster, event.place)
        log.start = max(log.start, round(len(log.records) * event.share))
        self.lossy = True
        return []

    def _hold(self, event: Event) -> list[str]:
        """Records of a transaction that stays open: nothing from there on is stable."""
        topic, number, log = place_of(self.cluster, event.place)
        log.stable = len(log.records) if log.stable is None else log.stable
        extend(self.cluster, topic, number, event.items, self.definition)
        return []

    def _release(self, _: Event) -> list[str]:
        """All open transactions are committed."""
        for _topic, _number, log in self.cluster.places():
            log.stable = None
        return []

    # What an operator does

    def _edit(self, event: Event) -> list[str]:
        for pending in self.home.path.rglob("*.outbox/**/pending/commit.json"):
            self.truth.begun.setdefault(json.loads(pending.read_text(encoding="utf-8"))["id"], self.definition)
        self.definition = edited(self.definition, event.change)
        self.bounds = self.bounds or any(name in ("start", "end") for name, _ in event.change)
        with suppress(KpipeError):
            self.truth.changes.append((len(self._history()), self.definition))
        self._save()
        if any(name == "table" for name, _ in event.change):
            self.site.prepare(self.definition)
        return []

    def _set_offsets(self, event: Event) -> list[str]:
        topic, number, log = place_of(self.cluster, event.place)
        name: Any = f"{topic}:{number}" if self.definition.topics > 1 else number
        to = max(log.start, round(len(log.records) * event.share))
        self._moved = True
        return self._stated(lambda: alter(self.home, Alter(NAME, (SetOffsets({name: to}, reread=event.reread),))))

    def _retry(self, _: Event) -> list[str]:
        problems = self._stated(lambda: list(retry(self.home.pipeline(NAME), self.home)))
        if not problems and not self._said:
            self.truth.retried.append((len(self._history()), self.definition))
        return problems or self._judged()

    def _maintain(self, _: Event) -> list[str]:
        rules = Maintenance(min_input_files=2, delete_ratio=0.1)
        problems = self._stated(lambda: maintained(self.home.pipeline(NAME), self.home, rules, lambda _: None))
        return problems or self._judged()

    def _forget(self, _: Event) -> list[str]:
        """The folder of caches is removed, as its documentation allows."""
        shutil.rmtree(self.home.cache, ignore_errors=True)
        return []

    def _stated(self, act: Callable[[], Any]) -> list[str]:
        """A statement; kpipe may refuse it, by name."""
        self._said = ""
        try:
            act()
        except KpipeError as error:
            self._said = f"{type(error).__name__}: {error}"
            self.log.append(f"  refused: {self._said}")
            if not reasons.refusal(self, error):
                return [f"C7 a statement fails with {self._said}"]
        except Exception as error:
            return [f"C7 a raw {type(error).__name__}: {error}\n{traceback.format_exc()}"]
        return []

    # Runs

    def _run(self, event: Event, decisions: Decisions | None = None) -> list[str]:
        fault = Fault(event.fault, self.site.outlive) if event.fault else None
        waiting = reasons.may_stop(self)
        self.site.answers(event.answers)
        self._unfinished = True
        failpoints.arm(fault)
        problems: list[str] = []
        try:
            for _ in self._opened(decisions).batches(event.batches):
                pass
            self.lossy = self.lossy and decisions is None
            self._unfinished = False
            if fault is not None and fault.reached and fault.outlives:
                problems = ["C7 a batch that outlived its transaction is written again, and no error names the limit"]
        except Killed:
            self._killed = True
        except KpipeError as error:
            self.log.append(f"  {type(error).__name__}: {error}")
            if not reasons.explained(self, error, event, fault, waiting):
                problems = [f"C7 the run stops with {type(error).__name__}: {error}"]
        except Exception as error:
            if fault is None or not fault.reached or FAULT not in str(error):
                problems = [f"C7 a raw {type(error).__name__}: {error}\n{traceback.format_exc()}"]
        finally:
            failpoints.arm(None)
            self.site.answers(())
        return problems or self._judged()

    def _settle(self, _: Event) -> list[str]:
        """Run to the end, without faults: then everything must be read."""
        decisions = Decisions(on_data_loss="record", who="an operator") if self.lossy else None
        before = len(self.log)
        problems = self._run(Event("run"), decisions)
        stopped = any(line.startswith("  ") for line in self.log[before:])
        return problems or ([] if stopped else unread(self._destination().ledger()[1], self.cluster, self.example.definition.end))

    # Judging

    def _destination(self) -> Any:
        return open_destination(self.home.pipeline(NAME), self.home)

    def _history(self) -> Any:
        return self._destination().history()

    def positions(self) -> dict[tuple[str, int], int]:
        """The next offset of each topic and partition, as the ledger has it."""
        try:
            ledger = self._destination().ledger()[1]
        except KpipeError:
            return {}
        return {(source.topic.name, source.partition): at for source, at in ledger.positions().items()}

    def row_keys(self) -> set[str]:
        """The keys that the definition's table has, by what was committed."""
        found = self.site.found(self._tables(), self._destination)
        letters = Counter((letter.topic, letter.partition, letter.offset) for letter in found.letters)
        readings = [one for one in self.truth.readings(self._history()) if one.definition.table == self.definition.table]
        return set(keyed_state(readings, letters).rows)

    def _judged(self) -> list[str]:
        try:
            history = self._history()
            found = self.site.found(self._tables(), self._destination)
            found.ahead = self.definition.destination == "webhook" and self._unfinished
            problems = judge(self.truth, self.definition, history, found)
            return problems[:8] + self._verified(problems) + self._lanes(history)
        except KpipeError as error:
            return [f"C7 what is committed cannot be read: {type(error).__name__}: {error}"]
        except Exception as error:
            return [f"C7 a raw {type(error).__name__} while looking: {error}\n{traceback.format_exc()}"]

    def _tables(self) -> list[str]:
        every = [definition for _, definition in self.truth.changes]
        return sorted({name for d in every for name in tables_of(d)})

    def _verified(self, problems: list[str]) -> list[str]:
        """C10."""
        if not self.positions():
            return []
        answer = prove(self.home.pipeline(NAME), self.home)
        if problems and answer.ok:
            return ["C10 kpipe verify says that it is proven"]
        if not problems and not answer.ok:
            return [f"C10 kpipe verify does not prove what is right: {'; '.join(answer.problems)}"]
        return []

    def _lanes(self, history: Any) -> list[str]:
        """C11: what is left out is recorded, and for a reason."""
        ledger, problems = self._destination().ledger()[1], []
        for lane in ledger.lanes.values():
            where = f"{lane.source} [{lane.start}, {lane.end})"
            if lane.kind == LOST and not (self.lossy or self.has("lose") or (self._crashed and self._at_most_once)):
                problems.append(f"C11 {where} is recorded as lost, without a reason")
            skips = self._moved or self.definition.start is not None or self.definition.batch == "skip"
            if lane.kind == SKIPPED and not (skips or any(d.start is not None for _, d in self.truth.changes)):
                problems.append(f"C11 {where} is recorded as skipped, without a reason")
        for source in ledger.sources():
            lanes = sorted(ledger.of(source), key=lambda lane: lane.start)
            for before, after in pairwise(lanes):
                if before.end != after.start and before.kind == READ:
                    problems.append(f"C11 {source}: nothing is recorded of offsets {before.end} to {after.start}")
        return problems

    @property
    def _crashed(self) -> bool:
        return self._killed or any(event.fault for event in self.example.events)

    @property
    def _at_most_once(self) -> bool:
        return any(definition.delivery == "at_most_once" for _, definition in self.truth.changes)

    def has(self, kind: str) -> bool:
        """Whether an event of that kind is in the example."""
        return any(event.kind == kind for event in self.example.events)
