"""Runs of a pipeline of files in this process, without Spark, that end where a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kpipe import failpoints
from kpipe.definition.pipeline import Pipeline
from kpipe.ingest.loop import Ingest
from kpipe.interfaces import Destination
from kpipe.run_events import Decisions
from kpipe.verification.verify import Audit, audit
from resources.destinations import open_destination
from resources.home import Home
from resources.sources.open_source import topics_of
from resources.spark.driver.sample_stager import LocalStager


class Killed(BaseException):
    """Ends a run as SIGKILL would: nothing in the product handles it."""


class Bench:
    """A folder of files, a pipeline that reads it, and its destination.

    Args:
        folder: for files and home.
        fields: of the pipeline, in addition to name and path; a DuckDB table is the default destination. `files=None`: another
            source.
    """

    def __init__(self, folder: Path, **fields: Any) -> None:
        self.files, self.home = folder / "in", Home(folder / "home").make()
        self.files.mkdir()
        files = fields.pop("files", {})
        own = {} if files is None else {"files": {"path": f"{self.files}/*", **files}}
        source = {**own, **fields.pop("source", {})}
        batch = {"max_retries": 0, "interval_ms": 1, **fields.pop("batch", {})}
        given = {"name": "p", "source": source, "into": {"table": "t"}, "batch": batch, **fields}
        self.pipeline = Pipeline.model_validate(given)

    def write(self, name: str, *records: Any, append: bool = True, raw: bytes = b"") -> None:
        """Append records to a file, or replace it."""
        text = b"".join(json.dumps(item).encode() + b"\n" for item in records) + raw
        with (self.files / name).open("ab" if append else "wb") as out:
            out.write(text)

    def destination(self) -> Destination:
        """The destination, as a new run opens it."""
        return open_destination(self.pipeline, self.home)

    def ingest(self, **options: Any) -> Ingest:
        """A new run."""
        stager = LocalStager(self.pipeline, self.home)
        return Ingest(self.pipeline, topics_of(self.pipeline), stager, self.destination(), **options)

    def run(self, **decisions: str) -> int:
        """Run until caught up, and return the number of batches."""
        return len(list(self.ingest(decisions=Decisions(**decisions)).run()))

    def run_until(self, point: str, do: Callable[[], object], number: int = 1) -> bool:
        """Run, and call `do` when the run reaches the point for the n-th time. Return whether it was killed."""
        left = [number]

        def reached(name: str) -> None:
            if name == point:
                left[0] -= 1
                if left[0] == 0:
                    failpoints.arm(None)
                    do()

        failpoints.arm(reached)
        try:
            self.run()
        except Killed:
            return True
        finally:
            failpoints.arm(None)
        return False

    def audit(self) -> Audit:
        """What `kpipe verify` finds."""
        destination = self.destination()
        return audit(destination.ledger()[1], destination.history(), destination.recount(), multi_topic=True)


def kill() -> None:
    """Raise `Killed`."""
    raise Killed
