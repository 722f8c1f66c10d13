"""Read the position in a checkpoint of Spark Structured Streaming.

The files are those of Spark's `OffsetSeqLog`, `CommitLog` and `HDFSMetadataLog`, up to 4.3: `offsets/N` is written before
batch N and contains the exclusive ends of its sources; `commits/N` is written when the sink has committed the batch. A batch
with offsets and without a commit may be in the table or not: only the sink can decide that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kpipe.adoption.positions import Key, Positions
from kpipe.errors import InvalidPipeline
from resources.adoption.json_document import json_document
from resources.destinations.lakehouse.folder import Folder

__all__ = ["Batches", "Checkpoint"]

_VERSIONS = ("v1", "v2")
_VOID = "-"
_MOST_BYTES = 32 << 20  # of one file; Spark writes about 10 bytes for each partition


@dataclass(frozen=True)
class Batches:
    """Ends of a query's batches.

    Attributes:
        query: id of the query.
        committed: number of the last committed batch; -1: none.
        ends: exclusive ends of that batch, or the query's first offsets if there is none.
        planned: number of the last batch, if it is not committed; else None.
        planned_ends: its exclusive ends.
    """

    query: str
    committed: int
    ends: Mapping[Key, int]
    planned: int | None = None
    planned_ends: Mapping[Key, int] = field(default_factory=dict)

    def between(self) -> str:
        """Return the offsets of batches that are planned and not committed, for messages."""
        words = (
            f"{topic}/{number} [{self.ends.get((topic, number), 0)}, {end})"
            for (topic, number), end in sorted(self.planned_ends.items())
            if end != self.ends.get((topic, number))
        )
        return ", ".join(words) or "no offsets"


class Checkpoint:
    """A checkpoint folder.

    Args:
        folder: its files; a `Folder` of resources/destinations/lakehouse/folder.py.
        topics: topics of the pipeline: other sources of the query are left out.
    """

    def __init__(self, folder: Folder, topics: Sequence[str]) -> None:
        self._folder, self._topics = folder, frozenset(topics)

    def batches(self) -> Batches:
        """Read the last committed batch, and the last planned one.

        Raises:
            InvalidPipeline: the folder is not a checkpoint, a file is incomplete, or the format is unknown.
        """
        planned, committed = self._numbers("offsets"), self._numbers("commits")
        if not planned:
            hint = "name the folder of the option checkpointLocation; it contains offsets and commits"
            raise InvalidPipeline(f"{self._folder.place}: not a checkpoint of Structured Streaming: no file in offsets/", hint)
        last = committed[-1] if committed else -1
        if last >= 0:
            self._lines(f"commits/{last}")
            ends = self._ends(last)
        else:
            ends = self._first_offsets()
        if planned[-1] < last:
            raise InvalidPipeline(
                f"{self._folder.place}: offsets/{last} is missing: the last committed batch is {last}, the last planned one is"
                f" {planned[-1]}", "restore the checkpoint",
            )  # fmt: skip
        beyond = planned[-1] > last
        return Batches(self._query(), last, ends, planned[-1] if beyond else None, self._ends(planned[-1]) if beyond else {})

    def positions(self, batches: Batches, included: bool | None) -> Positions:
        """Return the positions after the committed batches.

        Args:
            batches: of this checkpoint.
            included: whether the table contains batches that are planned and not committed; None: unknown, a problem.
        """
        origin = f"checkpoint {self._folder.place}"
        if batches.planned is None:
            return Positions(f"{origin}, batch {batches.committed}", batches.ends)
        first = batches.committed + 1
        which = f"batch {first}" if first == batches.planned else f"batches {first} to {batches.planned}"
        what = f"{which} ({batches.between()}): planned, not committed in the checkpoint"
        if included is None:
            problem = (
                f"{what}: start the query once more with trigger(availableNow=True), which ends it in order; or compare with the"
                " table: --check table; or name what the table contains: --planned-batch included or excluded"
            )
            return Positions(f"{origin}, batch {batches.committed}", batches.ends, problems=[problem])
        if included:
            return Positions(f"{origin}, batch {batches.planned}", batches.planned_ends, notes=[f"{what}: counted as loaded"])
        return Positions(f"{origin}, batch {batches.committed}", batches.ends, notes=[f"{what}: will be read again"])

    def _numbers(self, folder: str) -> list[int]:
        return sorted(int(name) for name in self._folder.names(folder) if name.isascii() and name.isdigit())

    def _query(self) -> str:
        try:
            return str(json_document(self._read("metadata") or b"{}").get("id", ""))
        except (ValueError, AttributeError):
            return ""

    def _read(self, name: str) -> bytes | None:
        if self._folder.look(name) is None:
            return None
        with self._folder.opened(name) as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise InvalidPipeline(
                f"{self._folder.place}: {name} is larger than {_MOST_BYTES:,} bytes", "name the folder of the checkpoint"
            )
        return data

    def _lines(self, name: str) -> list[str]:
        data = self._read(name)
        text = (data or b"").decode("utf-8", "replace").lstrip("\0")  # `sources/` begin with a zero byte
        lines = text.splitlines()
        version = lines[0].strip() if lines else ""
        if not version:
            raise InvalidPipeline(
                f"{self._folder.place}: {name} is empty or missing", "restore it, or remove it if the query does"
            )
        if name.startswith("commits/"):
            if not version.removeprefix("v").isdigit():
                raise InvalidPipeline(f"{self._folder.place}: {name}: expected a version, found {version[:20]!r}")
        elif version not in _VERSIONS:
            raise InvalidPipeline(
                f"{self._folder.place}: {name}: unknown format: expected {' or '.join(_VERSIONS)}, found {version[:20]!r}",
                "use the offsets of the table: --from table",
            )
        return lines

    def _ends(self, number: int) -> dict[Key, int]:
        name = f"offsets/{number}"
        version, *lines = self._lines(name)
        texts = lines[1:]  # the first one is metadata
        if version.strip() == "v2":  # since Spark 4.2, with named sources: SOURCE:OFFSET
            texts = [text.partition(":")[2] for text in texts]
        found: dict[Key, int] = {}
        for text in texts:
            for key, at in self._offsets(text, name):
                if found.setdefault(key, at) != at:
                    raise InvalidPipeline(
                        f"{self._folder.place}: {name}: two sources of the query read {key[0]}/{key[1]} to different offsets:"
                        f" {found[key]} and {at}",
                        "adopt the offsets of the table: --from table",
                    )
        return found

    def _first_offsets(self) -> dict[Key, int]:
        """Return the offsets at which a query began that has committed no batch."""
        found: dict[Key, int] = {}
        for number in self._numbers("sources"):
            name = f"sources/{number}/0"
            if self._folder.look(name) is not None:
                found.update(item for text in self._lines(name)[1:] for item in self._offsets(text, name))
        return found

    def _offsets(self, text: str, name: str) -> Iterator[tuple[Key, int]]:
        """Yield the topics' offsets from the JSON of Kafka's source, `{"topic": {"0": 5}}`; other sources are left out."""
        if text.strip() == _VOID:
            return
        try:
            document = json_document(text)
        except ValueError as error:
            raise InvalidPipeline(
                f"{self._folder.place}: {name}: invalid JSON: {text[:60]!r}: {str(error)[:60]}", "restore the checkpoint"
            ) from None
        if not isinstance(document, dict):
            return
        for topic, partitions in document.items():
            if topic not in self._topics:
                continue
            if not isinstance(partitions, dict) or not all(
                number.isascii() and number.isdigit() and type(at) is int and at >= 0 for number, at in partitions.items()
            ):
                raise InvalidPipeline(
                    f"{self._folder.place}: {name}: {topic}: expected offsets by partition, found {json.dumps(partitions)[:60]}"
                )
            yield from (((topic, int(number)), at) for number, at in partitions.items())
