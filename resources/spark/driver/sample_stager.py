"""Stage small batches in this process, without Spark, by the code that tasks run: previews and samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kpipe.batch.batch import Batch, Piece, RangeReport
from kpipe.column_growth import Closed
from kpipe.definition.pipeline import Pipeline
from kpipe.schema.columns import Columns
from resources.home import Home
from resources.kafka.client_config import client_config
from resources.kafka.record_block import RecordBlock
from resources.lookups.loader import no_tables
from resources.lookups.table_source import Asking
from resources.sources.open_source import connector_of
from resources.spark.driver.definition_version import ResolvedPipeline
from resources.spark.driver.stager import SparkStager
from resources.spark.task import range_task
from resources.spark.task.range_task import sample_keys
from resources.spark.task.task_spec import JobSpec, ProgramSpec
from resources.spark.task.transform_input import Feed

__all__ = ["LocalStager", "extract"]


_KEYS = 10  # keys of a partition that are looked at


class LocalStager(SparkStager):
    """A stager (kpipe/interfaces.py) for small batches.

    Args:
        pipeline: the definition; its files are read now, unless they have been read.
        home: where files are staged; the caller removes them.
        environ: values for templates and for the program's variables.
        required: returns the table's NOT NULL columns.
        `ask`: sends the queries of lookups to the destination.

    Raises:
        InvalidPipeline: the program cannot be run, or a variable is not set.
    """

    def __init__(
        self,
        pipeline: Pipeline | ResolvedPipeline,
        home: Home,
        environ: Mapping[str, str] | None = None,
        required: Callable[[Pipeline], Collection[str]] = lambda _: (),
        ask: Asking = no_tables,
    ) -> None:
        def no_spark() -> Any:
            raise AssertionError

        resolved = pipeline if isinstance(pipeline, ResolvedPipeline) else ResolvedPipeline.of(pipeline)
        super().__init__(resolved, home, no_spark, environ, required, ask)
        self._stage = str(home.staging)  # always local: the caller reads the staged files

    def stage(self, batch: Batch, tables: Sequence[Columns], closed: Sequence[Closed] = ()) -> Sequence[RangeReport]:
        """See `Stager`."""
        job = self._shaped(batch, tables, self._spec(), closed)
        return self._reported(batch, [range_task.stage(job, Piece.of(step, step.range)) for step in batch.steps])

    def key_names(self, batch: Batch) -> tuple[str, ...]:
        """Return the columns of the first change event's key; empty if no record of the sample has one."""
        from resources.decode.debezium.envelopes import Image
        from resources.decode.debezium.events import Keys

        job, kind = self._job(batch, (), None), self._pipeline.format
        keys = Keys(kind, job.access)
        for step in batch.steps:
            for key in sample_keys(job, Piece.of(step, step.range), _KEYS):
                found = keys.read([key])[0]
                if isinstance(found, Image):
                    return tuple(found.values)
        return ()


class _Aside:
    """Counter of records that cannot be passed to a program."""

    def __init__(self) -> None:
        self.filtered = self.dead_letters = 0

    def tombstones(self, block: RecordBlock) -> None:
        """See `Aside`."""
        self.filtered += len(block.tombstones())

    def spared(self, block: RecordBlock) -> RecordBlock:
        """See `Aside`."""
        return block

    def reject(self, held: RecordBlock, _: str, __: Sequence[str]) -> None:
        """See `Aside`."""
        self.dead_letters += len(held)


def extract(pipeline: Pipeline, piece: Piece, write: Callable[[bytes | memoryview], object]) -> tuple[int, int]:
    """Write the records of a range in the form in which the pipeline's program reads them; without a program, as lines.

    Returns:
        Records written, and records skipped: without a value, or impossible to frame (a newline in a line).

    Raises:
        SourceError: the range cannot be read.
    """
    stdin = pipeline.transform.stdin if pipeline.transform is not None else "lines"
    job = JobSpec(
        batch="extract",
        config=client_config(pipeline.source),
        connector=connector_of(pipeline),
        staging="",
        format=pipeline.format,
        tables=(),
        program=ProgramSpec("", None, "", stdin=stdin, several_topics=pipeline.source.multi_topic),
    )
    aside = _Aside()
    with job.reader(piece) as reader:
        feed = Feed(job, piece, reader, aside, {})
        for block in feed:
            write(block)
        return feed.given, aside.filtered + aside.dead_letters
