"""Store what a pipeline notes between commits: its state, error events, published commits.

No decision about rows depends on it, so it is not in the table's log.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kpipe.batch.batch import Batch
from kpipe.interfaces import Publication
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.ledger_file import Item, folder_of, mark
from resources.destinations.ledger_rows import clean, event_row

__all__ = ["Notes", "marker", "partitions_by_batch", "partitions_of"]


def marker(item: Item) -> str:
    """Return the name of the file that marks a commit as published."""
    return f"published/{item['commit']['seq']:012}-{mark(item['commit']['batch_id'].encode()):016x}"


def partitions_of(item: Item) -> set[str]:
    """Return the partitions in the metadata of a commit."""
    return set(json.loads(item["commit"]["metadata"]))


def partitions_by_batch(publications: Iterable[Publication]) -> dict[str, set[str]]:
    """Return the partitions of each batch; a batch of many tables can have several publications."""
    found: dict[str, set[str]] = {}
    for item in publications:
        found.setdefault(item.batch, set()).update(item.metadata)
    return found


class Notes:
    """The notes of one pipeline.

    Args:
        folder: kpipe's files of the table.
        pipeline: name of the pipeline.
    """

    def __init__(self, folder: Folder, pipeline: str) -> None:
        self._folder, self._pipeline, self._own = folder, pipeline, folder_of(pipeline)

    def registered(self) -> bool:
        """Return whether a commit was ever made here."""
        return self._folder.read(f"{self._own}/registered") is not None

    def register(self) -> None:
        """Record that a commit was made here."""
        if not self.registered():
            self._folder.write(f"{self._own}/registered", b"")

    def state(self) -> Mapping[str, Any]:
        """Read `state`, `last_error` and `updated` (seconds since 1970), as far as recorded."""
        data = self._folder.read(f"{self._own}/state.json")
        known: Mapping[str, Any] = json.loads(data) if data else {}
        return known

    def note(self, state: str, error: str, kind: str, batch: Batch | None, stderr: str, database: str) -> None:
        """Write the state and, if passed, an error event."""
        text = clean(error)
        said = {"state": state, "last_error": text or None, "updated": time.time()}
        self._folder.write(f"{self._own}/state.json", json.dumps(said).encode())
        if error:
            number = time.time_ns() // 1000
            row = event_row(self._pipeline, text, kind, batch, clean(stderr), number, database)
            self._folder.claim(f"{self._own}/events/{number:020}-{uuid.uuid4().hex}.json", json.dumps(row).encode())

    def events(self) -> Sequence[Mapping[str, Any]]:
        """Read error events as rows of `kpipe_errors`, oldest first."""
        found = (self._folder.read(f"{self._own}/events/{name}") for name in self._folder.names(f"{self._own}/events"))
        return [json.loads(data) for data in found if data]

    def clear(self) -> int:
        """Delete the error events and the last error; return the number of events."""
        names = self._folder.names(f"{self._own}/events")
        for name in names:
            self._folder.remove(f"{self._own}/events/{name}")
        if known := self.state():
            self._folder.write(f"{self._own}/state.json", json.dumps({**known, "last_error": None}).encode())
        return len(names)

    def is_published(self, item: Item) -> bool:
        """Return whether the commit is published."""
        return self._folder.read(f"{self._own}/{marker(item)}") is not None

    def publish(self, item: Item) -> bool:
        """Mark a commit as published; exactly one caller gets True."""
        return self._folder.claim(f"{self._own}/{marker(item)}", uuid.uuid4().bytes)

    def published_before(self) -> int:
        """Return the first sequence number that may be unpublished; 0: unknown."""
        data = self._folder.read(f"{self._own}/mirrored")
        return int(data) if data else 0

    def set_published_before(self, at: int) -> None:
        """Record that every commit before that sequence number is published, or has nothing to publish."""
        self._folder.write(f"{self._own}/mirrored", str(at).encode())
