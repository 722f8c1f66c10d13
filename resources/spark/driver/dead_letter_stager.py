"""Dead letters staged anew in this process, without Spark and without Kafka: the same code as in a task."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from kpipe.batch.batch import Batch
from kpipe.batch.dead_letters import DeadLetter
from kpipe.definition.pipeline import Pipeline
from kpipe.ledger.ledger import Lane, Step
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId
from resources.home import Home
from resources.kafka.record_block import Held
from resources.lookups.loader import no_tables
from resources.lookups.table_source import Asking
from resources.spark.driver.sample_stager import LocalStager
from resources.spark.task.task_spec import Job, ProgramSpec

__all__ = ["LettersStager", "batch_of"]


def batch_of(id: str, pipeline: str, letters: Sequence[DeadLetter]) -> Batch:
    """A batch of the ranges in which these lie; it is staged, and never committed as such."""
    offsets: dict[PartitionId, list[int]] = {}
    for letter in letters:
        offsets.setdefault(letter.source, []).append(letter.offset)
    steps = (Step(Lane(source, min(found), min(found)), max(found) + 1) for source, found in sorted(offsets.items()))
    return Batch(id, pipeline, tuple(steps))


class LettersStager(LocalStager):
    """A stager (kpipe/interfaces.py) whose records are these.

    Args:
        pipeline: the definition.
        home: where files are staged.
        letters: the records; no two of one partition have the same offset.
        environ: where templates and the program's variables are taken from.
        required: gives the table's columns that take no NULL.
        ask: asks the destination for lookups.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        home: Home,
        letters: Sequence[DeadLetter],
        environ: Mapping[str, str] | None = None,
        required: Callable[[Pipeline], Collection[str]] = lambda _: (),
        ask: Asking = no_tables,
    ) -> None:
        super().__init__(pipeline, home, environ, required, ask)
        found: dict[PartitionId, list[DeadLetter]] = {}
        for letter in sorted(letters, key=lambda letter: letter.offset):
            found.setdefault(letter.source, []).append(letter)
        self._held = {source: _held(mine) for source, mine in found.items()}

    def part(self, letters: Sequence[DeadLetter]) -> Batch:
        """Return a batch of some of the records. Columns are inferred from these alone.

        Args:
            letters: all that the stager has of each partition between the first and the last of them.
        """
        self._seen = None
        return batch_of(uuid.uuid4().hex, self._pipeline.name, letters)

    def _job(self, batch: Batch, columns: Columns, program: ProgramSpec | None) -> Job:
        killers, refused = self._killers, self._refused
        job = super()._job(batch, columns, program)
        self._killers, self._refused = killers, refused  # of the records of other parts, too
        return replace(job, held=self._held)


def _held(letters: Sequence[DeadLetter]) -> Held:
    return Held.of(
        [letter.offset for letter in letters],
        [letter.timestamp for letter in letters],
        [letter.value for letter in letters],
        [letter.key for letter in letters],
        [letter.headers for letter in letters],
    )
