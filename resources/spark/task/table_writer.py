"""One table's rows of one range: what the block's records are to it, and the file that they are written to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.batch.batch import Mark, Share
from kpipe.schema.columns import Columns
from resources.decode.block import Decoded
from resources.spark.staging.partitioned_writer import Divided
from resources.spark.staging.staged_files import StagingWriter
from resources.spark.task.keyed_rows import with_keys
from resources.spark.task.projection import Coordinate, selector
from resources.spark.task.task_spec import Job
from resources.spark.task.value_limits import storable

__all__ = ["Sink", "agreed", "answered"]

_WIDE = pa.decimal128(38)  # offsets summed up may need more than 64 bits


class Sink:
    """Rows on their way to one table.

    Args:
        job: as if the table were the only one.
        file: where they go.
    """

    def __init__(self, job: Job, file: StagingWriter | Divided) -> None:
        self.job, self.file = job, file
        self._select = selector(job)
        self.new_columns = self._select.new_columns if self._select is not None else Columns()
        self._mark = Mark()
        self._computed = {name.lower() for name in job.shape.selection.targets} if job.shape is not None else ()

    def made(self, decoded: Decoded, coordinate: Coordinate) -> Decoded:
        """Rows of the table, with the reasons of records that can give none."""
        if self._select is not None:
            decoded = self._select.apply(decoded, coordinate)
        if decoded.new_columns:
            self.new_columns = self._reported(self.new_columns.joined(decoded.new_columns, apart=True))
        if self.job.limits is not None:
            decoded = storable(decoded, self.job.columns, self.job.limits, self._computed)
        decoded = with_keys(decoded, self.job.unique) if self.job.unique else decoded
        if not self.job.table:
            return decoded
        return replace(decoded, refused=[(at, f"table {self.job.table}: {reason}") for at, reason in decoded.refused])

    def _reported(self, new: Columns) -> Columns:
        bound = self.job.bound
        return new if bound is None else replace(bound, columns=self.job.columns).report(new)

    def write(self, table: pa.Table, records: int | None) -> None:
        """Rows with their coordinates, and of how many records they are; None: that is not known."""
        self.file.write(table)
        if self.job.several and records is not None:
            self._mark += Mark(records, int(pc.sum(table.column("_kafka_offset").cast(_WIDE)).as_py()))

    def share(self) -> Share:
        """Close the file, and report."""
        if isinstance(self.file, Divided):
            files = self.file.finish()
            return Share(self.file.rows, self._mark, files[0] if files else None, self.new_columns, files[1:])
        return Share(self.file.rows, self._mark, self.file.finish(), self.new_columns)


def agreed(made: Sequence[Decoded], count: int) -> list[Decoded]:
    """What several tables make of one block: a record that one of them refuses gives no row in any, and is told once.

    Args:
        made: of each table.
        count: payloads of the block.
    """
    rejects: dict[int, str] = {}
    refused: dict[int, str] = {}
    for decoded in made:
        for at, reason in decoded.rejects:
            rejects.setdefault(at, reason)
    for decoded in made:
        for at, reason in decoded.refused:
            if at not in rejects:
                refused.setdefault(at, reason)
    bad = [*rejects, *refused]
    result = [_without(decoded, bad, count) for decoded in made]
    return [replace(result[0], rejects=sorted(rejects.items()), refused=sorted(refused.items())), *result[1:]]


def _without(decoded: Decoded, bad: Sequence[int], count: int) -> Decoded:
    if not bad:
        return replace(decoded, rejects=(), refused=())
    kept = np.arange(count) if decoded.kept is None else np.asarray(decoded.kept, np.int64)
    stay = ~np.isin(kept, bad)
    table = decoded.table.filter(pa.array(stay)) if decoded.rows else decoded.table
    return Decoded(table, int(stay.sum()), kept[stay].tolist(), new_columns=decoded.new_columns)


def answered(made: Sequence[Decoded], count: int) -> int:
    """Payloads that gave a row in some table."""
    if any(decoded.kept is None for decoded in made):
        return count
    if len(made) == 1:
        return len(set(made[0].kept or ()))
    return len(set().union(*(decoded.kept or () for decoded in made)))
