"""List the tables of a pipeline with tables by topic: the formats have no list of a pipeline's tables.

Each topic is a file with the next number, which exactly one run can create, so a missing file is noticed. It is written before
the first commit to the topic's table; a topic whose table has no commit yet has no offsets. After the first commit, a file
`committed/NUMBER` is written: the table's ledger may be in its folder, and is deleted with it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping

from kpipe.errors import InvalidPipeline, LedgerMismatch
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.ledger_file import folder_of

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
        self._known: list[tuple[str, str]] = []  # files never change, so each is read once
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
        if names != [_name(at) for at in range(1, len(names) + 1)] or len(names) < len(self._known):
            raise self._edited(f"the files of its topics are not numbered from 1 to {max(len(names), len(self._known))}")
        for name in names[len(self._known) :]:
            try:
                said = json.loads(self.folder.read(f"{self._own}/topics/{name}") or b"")
                self._known.append((str(said["topic"]), str(said["table"])))
            except (ValueError, KeyError, TypeError) as error:
                raise self._edited(f"{name} was not written by kpipe") from error
        found: dict[str, str] = {}
        for topic, table in self._known:
            found.setdefault(topic, table)
        return found

    def add(self, tables: Mapping[str, str]) -> None:
        """Add topics that are not listed yet, each with its table.

        Raises:
            InvalidPipeline: a topic that was read before has the same table.
            DestinationError: a file cannot be written.
        """
        if tables.keys() <= {topic for topic, _ in self._known}:
            return
        if not self.uid():
            said = {"uid": str(uuid.uuid4()), "pipeline": self._pipeline}
            self.folder.claim(f"{self._own}/registration.json", json.dumps(said).encode())
        known = dict(self.tables())
        for topic, table in sorted(tables.items()):
            while topic not in known:
                taken = next((other for other, name in known.items() if name.lower() == table.lower()), None)
                if taken is not None:
                    raise InvalidPipeline(
                        f"pipeline {self._pipeline}: topics {taken} and {topic}: both would be written to table {table}",
                        "leave one of them out of the source, and load it with another pipeline",
                    ).about("into", "table")
                said = {"topic": topic, "table": table, "claim": uuid.uuid4().hex}
                name = f"{self._own}/topics/{_name(len(self._known) + 1)}"
                if self.folder.claim(name, json.dumps(said).encode()):
                    self._known.append((topic, table))
                    known[topic] = table
                else:  # another run has added one
                    known = dict(self.tables())

    def is_committed(self, topic: str) -> bool:
        """Return whether a commit was ever made to the table of a listed topic."""
        if self._number(topic) not in self._marked:
            self._marked |= {*self.folder.names(f"{self._own}/committed")}
        return self._number(topic) in self._marked

    def mark(self, topic: str) -> None:
        """Record that a commit was made to the table of a listed topic. Otherwise the table may have the only trace of it.

        Raises:
            DestinationError: the file cannot be written.
        """
        if not self.is_committed(topic):
            self.folder.write(f"{self._own}/committed/{self._number(topic)}", b"")
            self._marked.add(self._number(topic))

    def _number(self, topic: str) -> str:
        """Return the name of the topic's file."""
        return next(_name(at) for at, (known, _) in enumerate(self._known, 1) if known == topic)

    def _edited(self, problem: str) -> LedgerMismatch:
        where = f"{self.folder.place}/{self._own}"
        return LedgerMismatch(
            f"pipeline {self._pipeline}: the list of its topics in {where} was changed by hand: {problem}",
            "restore a backup of the folder; or use another pipeline name, with source.start at the end of the tables",
        )


def _name(number: int) -> str:
    return f"{number:06}.json"
