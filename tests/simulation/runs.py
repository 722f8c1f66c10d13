"""What processes do, as plain values that can be printed: runs, statements of an operator, events of a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import Fenced
from kpipe.ingest.loop import Ingest
from kpipe.planning.reconcile import Survey
from kpipe.planning.seek import backfills, set_offsets
from kpipe.run_events import Decisions
from tests.kpipe.conftest import define
from tests.simulation.edges import Edges
from tests.simulation.logs import Log

__all__ = ["Scenario", "Spec", "definition", "process"]

#: ("run", batches), ("contend", batches), ("give_up", batches), ("offsets", partition, to), ("reread", partition, to),
#: ("backfill",), ("produce", partition, number), ("expire", partition, to), ("cut", partition, at)
Spec = tuple[Any, ...]


@dataclass(frozen=True)
class Scenario:
    """A world to begin with, and who acts in it.

    Attributes:
        name: for people.
        log: all that is ever produced.
        ends: by partition, log start and high watermark at the beginning.
        actors: each a list of processes, of which the next begins when the one before has ended, or was killed.
        delivery, keyed, deleting: of the definition.
        most: offsets of a partition in a batch.
        faults: that may happen to a commit: `kill`, `killed` (after it landed), `unknown` (it landed, and the client cannot
            know), `unlanded` (it did not), `late` (it lands at any time, or never), `busy` (it did not, and the client tries
            again). To a request: `kill`, `killed` and `unknown` (it was taken), `busy` (it was not).
        budget: how many of them.
        begun: whether the pipeline is in the ledger at the beginning.
        retries: `batch.max_retries`.
        skips: `errors.batch: skip`.
        records_loss: `on_data_loss: record`.
        sends: whether the destination is a receiver of requests, which can be left with a batch that it has begun.
    """

    name: str
    log: Log
    ends: tuple[tuple[int, int], ...]
    actors: tuple[tuple[Spec, ...], ...]
    delivery: str = "exactly_once"
    keyed: bool = False
    deleting: bool = False
    most: int = 2
    faults: tuple[str, ...] = ()
    budget: int = 0
    begun: bool = True
    retries: int = 0
    skips: bool = False
    records_loss: bool = False
    sends: bool = False

    @property
    def still(self) -> bool:
        """Whether nothing happens to the topic."""
        return not any(spec[0] in ("produce", "expire", "cut") for actor in self.actors for spec in actor)

    @property
    def cuts(self) -> bool:
        """Whether a log is cut, and grows again."""
        return any(spec[0] == "cut" for actor in self.actors for spec in actor)


def definition(scenario: Scenario) -> Pipeline:
    """The pipeline that all runs of a scenario have."""
    into: dict[str, Any] = {"table": "tweets"}
    if scenario.sends:
        into |= {"type": "webhook", "url": "https://hooks.example.com/"}
    elif scenario.keyed:
        into |= {"key": ["k"], "on_conflict": "replace", "on_null": "delete" if scenario.deleting else "skip"}
    return define(
        into=into,
        delivery=scenario.delivery,
        batch={"max_offsets_per_partition": scenario.most, "max_retries": scenario.retries},
        errors={"batch": "skip"} if scenario.skips else {},
        source={"on_data_loss": "record"} if scenario.records_loss else {},
    )


def process(spec: Spec, pipeline: Pipeline, edges: Edges) -> None:
    """Do what the specification says, with these edges."""
    kind, *args = spec
    if kind in ("produce", "expire", "cut"):
        edges.ask("start")
        edges.ask(kind, *args)
    elif kind in ("run", "contend", "give_up", "settle"):
        decisions = Decisions(
            on_data_loss="record" if kind == "settle" else None, on_unfinished_batch="skip" if kind == "give_up" else "finish"
        )
        loop = Ingest(
            pipeline, edges.topics, edges.stager, edges.destination, decisions=decisions, seen=edges.seen(),
            wait=lambda _: None, contend=kind == "contend",
        )  # fmt: skip
        for _ in loop.run(args[0] if args else None):
            pass
    else:
        _decide(spec, pipeline, edges)


def _decide(spec: Spec, pipeline: Pipeline, edges: Edges) -> None:
    """As `kpipe sql` does: a look, the decisions, and once more if a run has committed meanwhile."""
    survey = Survey(pipeline, edges.topics, edges.destination, seen=edges.seen())
    for attempt in (1, 2):
        try:
            snapshot, ledger = survey.look()
            if spec[0] == "backfill":
                found = backfills(ledger, snapshot)[0]
            else:
                source = next(s for s in snapshot.partitions if s.partition == spec[1])
                found = set_offsets(ledger, snapshot, {source: spec[2]}, reread=spec[0] == "reread")
            for decision in found:
                survey.decide(decision.kind, decision.changes, decision.note, decision.steps)
            return
        except Fenced:
            if attempt == 2:
                raise
