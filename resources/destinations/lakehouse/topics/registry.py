"""List the tables of a pipeline with tables by topic: the formats have no list of a pipeline's tables.

Each topic is a file with the next number, which exactly one run can create, so a missing file is noticed. It is written before
the first commit to the topic's table, which has no offsets before, except decided first lanes. After that commit, a file
`committed/NUMBER` is written: the table's ledger may be in its folder, and is deleted with it.

The first lanes of topics (`first_lanes.py`) are in the file of the last one of them, so that one file decides about all topics.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from kpipe.errors import InvalidPipeline, LedgerMismatch
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.ledger_file import folder_of
from resources.destinations.lakehouse.topics.first_lanes import FirstLanes

__all__ = ["TopicRegistry"]


class TopicRegistry:
    """The topics of one pipeline, with their tables.

    Args:
        folder: of the registries, beside the tables.
        pipeline: name of the pipeline.
    """

    def __init__(self, folder: Folder, pipeline: str) -> None:
        self.folder, self._pipeline = folder, pipeline
        self._own, self._uid = folder_of(pipeline), ""
        self._known: list[tuple[str, str]] = []  # files never change, so each is read once, unless the folder was restored
        self._decided: dict[str, FirstLanes] = {}
        self._last: object = None  # identity of the last one
        self._marked: set[str] = set()  # files of topics with a commit, as far as read

    def uid(self) -> str:
        """Return the registration id; empty: no run has begun.

        Raises:
            LedgerMismatch: kpipe did not write it.
        """
        if not self._uid:
            data = self.folder.read(f"{self._own}/registration.json")
            try:
                self._uid = str(json.loads(data)["uid"]) if data is not None else ""
            except (ValueError, KeyError, TypeError) as error:
                raise self._edited("registration.json was not written by kpipe") from error
        return self._uid

    def tables(self) -> Mapping[str, str]:
        """Return the table of each topic.

        Raises:
            LedgerMismatch: a file is missing, or kpipe did not write it.
        """
        names = self.folder.names(f"{self._own}/topics")
        if self._known and self._look() not in (None, self._last):  # a missing file is an error below
            self._known, self._decided, self._uid, self._marked = [], {}, "", set()
        if names != [_name(at) for at in range(1, len(names) + 1)] or len(names) < len(self._known):
            raise self._edited(f"the files of its topics are not numbered from 1 to {max(len(names), len(self._known))}")
        new = names[len(self._known) :]
        for name in new:
            try:
                said = json.loads(self.folder.read(f"{self._own}/topics/{name}") or b"")
                self._note(str(said["topic"]), str(said["table"]), said.get("first_lanes"))
            except (ValueError, KeyError, TypeError) as error:
                raise self._edited(f"{name} was not written by kpipe") from error
        self._last = self._look() if new else self._last
        found: dict[str, str] = {}
        for topic, table in self._known:
            found.setdefault(topic, table)
        return found

    def decided(self) -> Mapping[str, FirstLanes]:
        """Return the decision about each topic's first lanes, as of the last `tables`; earlier versions have stored none."""
        return self._decided

    def add(self, tables: Mapping[str, str], first: FirstLanes | None = None) -> None:
        """Add topics that are not listed yet, each with its table, and a decision about the first lanes of some of them.

        Raises:
            InvalidPipeline: a topic that was read before has the same table.
            Fenced: another run has decided about one of the topics. Nothing is decided.
            DestinationError: a file cannot be written.
        """
        if first is None and tables.keys() <= {topic for topic, _ in self._known}:
            return
        if not self.uid():
            said = {"uid": str(uuid.uuid4()), "pipeline": self._pipeline}
            self.folder.claim(f"{self._own}/registration.json", json.dumps(said).encode())
        self.tables()
        last = max(first.topics()) if first is not None else None
        entries: list[tuple[str, FirstLanes | None]] = [(topic, None) for topic in sorted(tables) if topic != last]
        entries += [(last, first)] if last is not None else []
        for topic, decision in entries:
            while decision is not None or not self._number(topic):
                if first is not None and (fenced := first.fenced(self._decided)) is not None:
                    raise fenced
                if self._append(topic, tables[topic], decision):
                    break

    def _append(self, topic: str, table: str, first: FirstLanes | None = None) -> bool:
        """Write the next file; return False if another run has written it, whose topic is listed then."""
        taken = next((other for other, name in self._known if name.lower() == table.lower() and other != topic), None)
        if taken is not None:
            raise InvalidPipeline(
                f"pipeline {self._pipeline}: topics {taken} and {topic}: both would be written to table {table}",
                "leave one of them out of the source, and load it with another pipeline",
            ).about("into", "table")
        decision = None if first is None else first.encoded()
        said: dict[str, Any] = {"topic": topic, "table": table, "claim": uuid.uuid4().hex}
        if decision is not None:
            said["first_lanes"] = decision
        name = f"{self._own}/topics/{_name(len(self._known) + 1)}"
        if not self.folder.claim(name, json.dumps(said).encode()):
            self.tables()
            return False
        self._note(topic, table, decision)
        self._last = self._look()
        return True

    def _note(self, topic: str, table: str, decision: Mapping[str, Any] | None) -> None:
        if decision is not None:
            first = FirstLanes.decoded(self._pipeline, decision)
            self._decided = {**dict.fromkeys(first.topics(), first), **self._decided}
        self._known.append((topic, table))

    def is_committed(self, topic: str) -> bool:
        """Return whether a commit was ever made to the table of a topic."""
        number = self._number(topic)
        if number and number not in self._marked:
            self._marked |= {*self.folder.names(f"{self._own}/committed")}
        return number in self._marked

    def mark(self, topic: str) -> None:
        """Record that a commit was made to the table of a listed topic. Otherwise the table may have the only trace of it.

        Raises:
            DestinationError: the file cannot be written.
        """
        if not self.is_committed(topic):
            self.folder.write(f"{self._own}/committed/{self._number(topic)}", b"")
            self._marked.add(self._number(topic))

    def _number(self, topic: str) -> str:
        """Return the name of the topic's first file; empty: it is not listed."""
        return next((_name(at) for at, (known, _) in enumerate(self._known, 1) if known == topic), "")

    def _look(self) -> object:
        return self.folder.look(f"{self._own}/topics/{_name(len(self._known))}")

    def _edited(self, problem: str) -> LedgerMismatch:
        where = f"{self.folder.place}/{self._own}"
        return LedgerMismatch(
            f"pipeline {self._pipeline}: the list of its topics in {where} was changed by hand: {problem}",
            "restore a backup of the folder; or use another pipeline name, with source.start at the end of the tables",
        )


def _name(number: int) -> str:
    return f"{number:06}.json"
