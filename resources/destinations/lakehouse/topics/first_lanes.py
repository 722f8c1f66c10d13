"""First lanes of topics, decided in one file of the list of topics before any of their tables has a commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kpipe.batch.batch import Commit
from kpipe.errors import Fenced
from kpipe.ledger.ledger import Lane, LaneChange, checksum
from resources.destinations.lakehouse.ledger_file import lane_of, lane_values

__all__ = ["FirstLanes"]

_TEXTS = ("id", "kind", "note", "run_id", "version")


@dataclass(frozen=True)
class FirstLanes:
    """A decision (`begin` or `adopt`) that makes the first lanes of topics.

    Their tables have a commit each, so a run may end after some of them. The lanes apply as soon as they are in the list, and
    the first commit of each table is this decision's.

    Attributes:
        commit: the decision. All of its changes make a lane.
        number: number of the commit among those of the pipeline.
    """

    commit: Commit
    number: int

    def topics(self) -> set[str]:
        """Return the names of the topics."""
        return {lane.source.topic.name for lane in self._made()}

    def lanes(self, topic: str) -> list[Lane]:
        """Return the lanes of a topic."""
        return [lane for lane in self._made() if lane.source.topic.name == topic]

    def part(self, topic: str) -> Commit:
        """Return the first commit of the topic's table."""
        return replace(self.commit, changes=tuple(LaneChange(None, lane) for lane in self.lanes(topic)))

    def encoded(self) -> dict[str, Any]:
        """Return the decision as a value of JSON."""
        texts = {name: getattr(self.commit, name) for name in _TEXTS}
        lanes, seal = [lane_values(lane) for lane in self._made()], checksum(self._made())
        return {**texts, "started_ms": self.commit.started_ms, "number": self.number, "lanes": lanes, "seal": seal}

    @classmethod
    def decoded(cls, pipeline: str, said: Mapping[str, Any]) -> FirstLanes:
        """Parse what `encoded` returns.

        Raises:
            ValueError, KeyError, TypeError: it is something else, or a lane was edited.
        """
        changes = tuple(LaneChange(None, lane_of(values)) for values in said["lanes"])
        if checksum(change.become for change in changes) != said["seal"]:
            raise ValueError("lanes were edited")
        texts: dict[str, Any] = {name: str(said[name]) for name in _TEXTS}
        commit = Commit(pipeline=pipeline, changes=changes, started_ms=int(said["started_ms"]), **texts)
        return cls(commit, int(said["number"]))

    def fenced(self, others: Mapping[str, FirstLanes]) -> Fenced | None:
        """Return the error if another run has decided about one of the topics; None if it has not.

        Args:
            others: the decisions so far, by topic.
        """
        taken = sorted(self.topics() & others.keys())
        if not taken:
            return None
        return Fenced(
            f"pipeline {self.commit.pipeline}: {self.commit.kind}: another run has begun topic{'s' * (len(taken) > 1)}"
            f" {', '.join(taken)} first; nothing of this decision was written",
            "run it again: it continues after the other run's commit",
        )

    def _made(self) -> list[Lane]:
        return [change.become for change in self.commit.changes if change.become is not None]
