"""What can happen next, and what happens then: the steps of all processes in all worlds of a scenario.

A state is a world and, for each actor, where its process stands (its answers so far). Both are values. The step of a process at a
given place in a given world is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from kpipe.errors import DestinationBusy, KpipeError, OutcomeUnknown
from kpipe.testing.memory import MemoryStore
from tests.simulation.edges import COLUMNS, Effect, Outcome, advanced
from tests.simulation.oracle import Books, Oracle
from tests.simulation.runs import Scenario, definition, process
from tests.simulation.world import MemoryStager, World, cut, expire, produce, words

__all__ = ["Choice", "Model", "State"]

#: Kinds of errors with which processes may end, whatever happens.
EXPLAINED = {"Fenced", "OutcomeUnknown", "DestinationBusy", "InvalidStatement", "NotAvailable"}
_MOST_KEPT = 150_000
_OF_COMMITS = {"kill", "killed", "unknown", "unlanded", "late", "busy"}
#: Which faults an effect can meet. A kill elsewhere is one before the next of these: nothing that others see lies between.
_ABLE = {"commit": _OF_COMMITS, "send": {"kill", "killed", "unknown", "busy"}, "pin": {"kill"}}
Choice = str  #: `1:go`, `0:late`, `net:0`; `end` when flying commits never land


_SENDING = {"unfinished", "hold", "release", "pin", "send", "clear", "decide"}


class Node:
    """Where a process stands."""

    __slots__ = ("actor", "answers", "children", "id", "pending", "process")

    def __init__(self, id: int, actor: int, process: int, answers: tuple[Any, ...], pending: Effect | Outcome | None) -> None:
        self.id, self.actor, self.process, self.answers, self.pending = id, actor, process, answers, pending
        self.children: dict[Any, Node] = {}


@dataclass(frozen=True)
class State:
    """A moment: the world, where each actor stands, how many faults may still happen, whether one has."""

    world: World
    nodes: tuple[Node, ...]
    budget: int

    @property
    def key(self) -> tuple[Any, ...]:
        return self.world.id, tuple(node.id for node in self.nodes), self.budget


def _name(node: Node) -> str:
    return f"{'ABCDEFYZ'[node.actor]}{node.process}"


class Model:
    """All that can happen in a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.pipeline = scenario, definition(scenario)
        self.oracle = Oracle(scenario.log, scenario.delivery, scenario.keyed, scenario.deleting, scenario.sends)
        self._instant = {
            "columns",
            "remember",
            "release",
            "clear",
            *(("snapshot", "present", "stage") if scenario.still else ("present",)),
        }
        self.stager = MemoryStager(scenario.log, scenario.deleting)
        self._forget()

    def _forget(self) -> None:
        self._worlds: dict[Any, World] = {}
        self._steps: dict[Any, tuple[World, Node, tuple[str, ...]]] = {}
        self._settled: dict[tuple[int, bool], tuple[str, ...]] = {}
        self._numbers = 0
        self._roots: dict[tuple[int, int], Node] = {}
        self.first = self._begin()

    def trim(self) -> None:
        """Forget what was computed when it is much; states from before must not be used any more."""
        if len(self._steps) > _MOST_KEPT:
            self._forget()

    # Places of processes

    def _node(self, actor: int, number: int, answers: tuple[Any, ...]) -> Node:
        self._numbers += 1
        specs = self.scenario.actors[actor] if actor >= 0 else (("settle", None),)
        if number == len(specs):
            return Node(self._numbers, actor, number, (), None)
        name = f"{'ABCDEFYZ'[actor]}{number}"  # ids of commits begin with it
        run = partial(process, specs[number], self.pipeline)
        return Node(self._numbers, actor, number, answers, advanced(run, name, answers, self.scenario.sends))

    def _root(self, actor: int, number: int) -> Node:
        if (actor, number) not in self._roots:
            self._roots[actor, number] = self._node(actor, number, ())
        return self._roots[actor, number]

    def _answered(self, node: Node, answer: Any, key: Any) -> Node:
        child = node.children.get(key)
        if child is None:
            child = node.children[key] = self._node(node.actor, node.process, (*node.answers, answer))
        return child

    # Worlds

    def _known(self, world: World) -> World:
        found = self._worlds.setdefault(world.key, world)
        if found.id < 0:
            found.id = len(self._worlds)
        return found

    def _begin(self) -> State:
        s = self.scenario
        uncut = tuple(() for _ in s.ends)
        world = World(self.stager, s.log, s.keyed, s.ends, uncut, MemoryStore(), books=Books.empty())
        if s.begun:
            begin = self._begun(world)
            world = begin
        nodes = tuple(self._root(actor, 0) for actor in range(len(s.actors)))
        return State(self._known(world), nodes, s.budget)

    def _begun(self, world: World) -> World:
        """The world in which a look has put the partitions into the ledger."""
        node: Node = self._node(-2, 0, ())
        world = self._known(world)
        while isinstance(node.pending, Effect):
            done = node.pending.name in ("commit", "decide")
            world, node, found = self._step(world, node, "go")
            assert not found, found
            if done:
                return world
        raise AssertionError("the pipeline has not begun")

    # Steps

    def options(self, state: State) -> list[Choice]:
        """What can happen next; none at the end."""
        found: list[Choice] = []
        for node in state.nodes:
            if isinstance(node.pending, Effect):
                found.append(f"{node.actor}:go")
                if state.budget and (able := _ABLE.get(node.pending.name)):
                    found += [f"{node.actor}:{fault}" for fault in self.scenario.faults if fault in able]
        running = bool(found)
        found += [f"net:{at}" for at in range(len(state.world.flying))]
        return found if running or not found else [*found, "end"]

    def take(self, state: State, choice: Choice) -> tuple[State, tuple[str, ...]]:
        """The state behind a choice, and what is wrong there."""
        who, _, action = choice.partition(":")
        if who == "end":
            world = state.world.copy()
            world.flying = ()
            return State(self._known(world), state.nodes, state.budget), ()
        if who == "net":
            world, found = self._fly(state.world, int(action))
            return State(world, state.nodes, state.budget), found
        actor = int(who)
        world, node, found = self._step(state.world, state.nodes[actor], action)
        nodes = (*state.nodes[:actor], node, *state.nodes[actor + 1 :])
        return State(world, nodes, state.budget - (action != "go")), found

    def _fly(self, world: World, at: int) -> tuple[World, tuple[str, ...]]:
        commit = world.flying[at]
        after = world.copy()
        after.flying = (*world.flying[:at], *world.flying[at + 1 :])
        found = self._land(world, after, commit)[1]
        return self._known(after), found

    def _step(self, world: World, node: Node, action: str) -> tuple[World, Node, tuple[str, ...]]:
        key = (world.id, node.id, action)
        known = self._steps.get(key)
        if known is None:
            who, found = _name(node), ()
            world, node, found = self._acted(world, node, action)
            while isinstance(node.pending, Effect) and node.pending.name in self._instant:
                world, node, _ = self._acted(world, node, "go")
            if world.holder and (action in ("kill", "killed") or isinstance(node.pending, Outcome)):
                world = self._released(world, who)
            if isinstance(node.pending, Outcome):
                outcome = node.pending.word
                allowed = EXPLAINED | ({"OffsetsLost", "ReadFailed"} if not self.scenario.still else set())
                allowed |= {"LogTruncated"} if self.scenario.cuts else set()
                allowed |= {"done"} | ({"RecordRejected"} if self.scenario.log.poison else set())
                refused = self.scenario.sends and "is not finished" in node.pending.text  # a decision over a batch on its way
                if not refused and outcome not in allowed and node.actor >= 0:
                    found = (*found, f"ended: {outcome}: {node.pending.text}")
                if node.actor >= 0:
                    node = self._root(node.actor, node.process + 1)
            known = self._steps[key] = (world, node, found)
        return known

    def _released(self, world: World, who: str) -> World:
        """The process has ended, and with it its lock."""
        after = world.copy()
        after.release(who)
        return self._known(after)

    def _acted(self, world: World, node: Node, action: str) -> tuple[World, Node, tuple[str, ...]]:
        assert isinstance(node.pending, Effect)
        name, args = node.pending.name, node.pending.args
        if action == "kill":
            return world, self._root(node.actor, node.process + 1), ()
        if name == "commit":
            return self._committed(world, node, args[0], action)
        after = world
        answer: Any = None
        key: Any = name
        found: tuple[str, ...] = ()
        try:
            if name == "ledger":
                answer = world.place.ledger()
                key = (name, answer[0], answer[1].seq, world.lanes(), world.tails())
            elif name == "start":
                answer = key = world.home
            elif name in ("snapshot", "present"):
                answer = world.snapshot()
                key = (name, world.ends, world.cuts)
                answer = answer if name == "snapshot" else answer.partitions
            elif name == "columns":
                answer = COLUMNS if world.store.tables else None
                key = (name, answer is None)
            elif name == "stage":
                answer = world.stage(*args)
                key = (name, world.cuts)
            elif name in _SENDING:
                after = world.copy()
                if action != "busy":
                    answer = getattr(after, name)(_name(node), *args)
                count, landed = len(world.journal), args[0] if name == "decide" else None
                if landed is not None and len(after.journal) > count:
                    ranges = [(step.source.partition, step.range.start, step.range.end) for step in landed.steps]
                    found = tuple(self.oracle.landed(world, after, landed.kind, ranges))
                after = self._known(after)
                if action in ("busy", "unknown"):
                    raise DestinationBusy("no answer")
                key = (name, None if answer is None else getattr(answer, "seq", None) or words(answer))
                if action == "killed":
                    return after, self._root(node.actor, node.process + 1), found
            else:
                after = world.copy()
                if name == "remember":
                    after.home = (args[0], max(args[1], world.home[1]))
                else:
                    {"produce": produce, "expire": expire, "cut": cut}[name](after, *args)
                after = self._known(after)
        except KpipeError as error:
            answer, key = error, (name, type(error), str(error))
            after = after if after.id >= 0 else world  # an error changes nothing
        return after, self._answered(node, answer, key), found

    def _land(self, before: World, after: World, commit: Any) -> tuple[Any, tuple[str, ...]]:
        """Commit it in that world: the answer, and what is wrong then."""
        count = len(after.journal)
        try:
            answer = after.land(commit)
        except KpipeError as error:
            return error, ()
        if len(after.journal) == count:
            return answer, ()
        ranges = [(step.source.partition, step.range.start, step.range.end) for step in commit.steps]
        return answer, tuple(self.oracle.landed(before, after, commit.kind, ranges))

    def _committed(self, world: World, node: Node, commit: Any, action: str) -> tuple[World, Node, tuple[str, ...]]:
        after, found, answer = world.copy(), (), None
        if action in ("go", "killed", "unknown"):
            answer, found = self._land(world, after, commit)
        if action == "late":
            after.flying = (*after.flying, commit)
        after = self._known(after)
        if action == "killed":
            return after, self._root(node.actor, node.process + 1), found
        if action == "busy":
            answer = DestinationBusy("another process holds it")
        elif action in ("unknown", "unlanded", "late"):
            answer = OutcomeUnknown("the answer was lost")
        key = (type(answer).__name__, str(answer) if isinstance(answer, Exception) else answer.seq)
        return after, self._answered(node, answer, key), found

    def ended(self, state: State) -> tuple[str, ...]:
        """Judge a state in which nothing can happen any more: after one more run."""
        s = self.scenario
        runs = sum(any(spec[0] in ("run", "contend", "give_up") for spec in actor) for actor in s.actors)
        used = s.budget - state.budget
        lossy = runs > 1 or not s.still or used > 1 or (used > 0 and s.faults != ("busy",))
        key = (state.world.id, lossy)
        if key not in self._settled:
            world, node = state.world, self._root(-1, 0)
            texts: list[str] = []
            while isinstance(node.pending, Effect):
                world, node, found = self._step(world, node, "go")
                texts += found
            assert isinstance(node.pending, Outcome)
            texts += self.oracle.ended(world, node.pending.word, lossy)
            if texts and node.pending.word != "done":
                texts.append(node.pending.text)
            self._settled[key] = tuple(texts)
        return self._settled[key]
