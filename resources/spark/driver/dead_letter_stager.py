"""Stage dead letters again in this process, without Spark and Kafka, by the code that tasks run."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from kpipe.batch.batch import Batch, RangeReport
from kpipe.batch.dead_letter_replay import DeadLetter
from kpipe.definition.pipeline import Pipeline
from kpipe.ledger.ledger import Lane, Step
from kpipe.topics import PartitionId
from resources.home import Home
from resources.kafka.record_block import RecordBlock
from resources.lookups.loader import no_tables
from resources.lookups.table_source import Asking
from resources.spark.driver.definition_version import ResolvedPipeline
from resources.spark.driver.sample_stager import LocalStager
from resources.spark.driver.set_aside import SetAside
from resources.spark.task.task_spec import JobSpec, ProgramSpec, TableSpec

__all__ = ["LettersStager", "batch_of"]


def batch_of(id: str, pipeline: str, letters: Sequence[DeadLetter]) -> Batch:
    """Return a batch of the ranges that contain these dead letters; it is staged but never committed as such."""
    offsets: dict[PartitionId, list[int]] = {}
    for letter in letters:
        offsets.setdefault(letter.source, []).append(letter.offset)
    steps = (Step(Lane(source, min(each), min(each)), max(each) + 1) for source, each in sorted(offsets.items()))
    return Batch(id, pipeline, tuple(steps))


class LettersStager(LocalStager):
    """A stager (kpipe/interfaces.py) that reads these dead letters instead of a topic.

    Args:
        pipeline: the definition; see `LocalStager`.
        home: where files are staged.
        letters: the records; no two of one partition have the same offset.
        environ: values for templates and for the program's variables.
        required: returns the table's NOT NULL columns.
        `ask`: sends the queries of lookups to the destination.
    """

    def __init__(
        self,
        pipeline: Pipeline | ResolvedPipeline,
        home: Home,
        letters: Sequence[DeadLetter],
        environ: Mapping[str, str] | None = None,
        required: Callable[[Pipeline], Collection[str]] = lambda _: (),
        ask: Asking = no_tables,
    ) -> None:
        super().__init__(pipeline, home, environ, required, ask)
        self._aside = SetAside(batches=None)  # all parts are committed together, and may be staged again then
        by_source: dict[PartitionId, list[DeadLetter]] = {}
        for letter in sorted(letters, key=lambda letter: letter.offset):
            by_source.setdefault(letter.source, []).append(letter)
        self._held = {source: _held(letters) for source, letters in by_source.items()}

    def part(self, letters: Sequence[DeadLetter]) -> Batch:
        """Return a batch of some of the records. Columns are inferred from these alone.

        Args:
            letters: every dead letter of each partition between the first and the last offset of the batch.
        """
        self._seen = {}
        return batch_of(uuid.uuid4().hex, self._pipeline.name, letters)

    def _job(self, batch: Batch, tables: Sequence[TableSpec], program: ProgramSpec | None) -> JobSpec:
        return replace(super()._job(batch, tables, program), held=self._held)

    def _reported(self, batch: Batch, reports: Sequence[RangeReport]) -> Sequence[RangeReport]:
        return reports  # the source may have removed what it was read from, and its types


def _held(letters: Sequence[DeadLetter]) -> RecordBlock:
    return RecordBlock.of(
        [letter.offset for letter in letters],
        [letter.timestamp for letter in letters],
        [letter.value for letter in letters],
        [letter.key for letter in letters],
        [letter.headers for letter in letters],
    )
