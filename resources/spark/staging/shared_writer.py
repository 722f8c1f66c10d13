"""Staged files shared by the short ranges of a task.

A range that fills no row group does not get a file of its own: a file costs three syncs, a footer and a check on the
driver, and a topic may have thousands of partitions. A range's rows are added when the range is complete, so a range
that failed and is read again leaves nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from kpipe.batch.batch import RangeReport, StagedFile
from resources.spark.staging.staged_files import StagingWriter
from resources.spark.staging.waiting_rows import WaitingRows

__all__ = ["Shared"]

_BYTES = 128 << 20
"""Size at which the next file is started: the footer's cost is small, and several files can be read in parallel."""


class Shared:
    """Shared files of one task.

    Args:
        folder, make: of the batch; see `StagingWriter`.

    Attributes:
        waiting: rows in memory, of these files and of the ranges' own.
    """

    def __init__(self, folder: str, *, make: bool = True) -> None:
        self._folder, self._make = folder, make
        self.waiting = WaitingRows()
        self._open: dict[tuple[str, pa.Schema], StagingWriter] = {}
        self._full: list[StagingWriter] = []

    def take(self, kind: str, tables: Sequence[pa.Table]) -> StagedFile:
        """Write a range's rows; tables of the same kind and schema share a file.

        Returns:
            The file's path and the number of these rows; size and hash follow in `finish`.

        Raises:
            StagingFailed: the disk is full, or the folder cannot be written.
        """
        key = kind, tables[0].schema
        writer = self._open.get(key)
        if writer is None:
            writer = self._open[key] = StagingWriter(self._folder, waiting=self.waiting, make=self._make)
        before = writer.rows
        for table in tables:
            writer.write(table)
        if writer.size >= _BYTES:
            self._full.append(self._open.pop(key))
        return StagedFile(writer.path, 0, 0, "", writer.rows - before)

    def finish(self, reports: Sequence[RangeReport]) -> list[RangeReport]:
        """Close the files, make them durable, and complete the reports that name them.

        Raises:
            StagingFailed: a file cannot be made durable.
        """
        finished = (writer.finish() for writer in (*self._full, *self._open.values()))
        files = {file.path: file for file in finished if file is not None}
        self._full, self._open = [], {}
        return [_completed(report, files) for report in reports]

    def abandon(self) -> None:
        """Close open files; nothing is reported."""
        for writer in (*self._full, *self._open.values()):
            writer.abandon()


def _completed(report: RangeReport, files: Mapping[str, StagedFile]) -> RangeReport:
    def complete(file: StagedFile) -> StagedFile:
        return file if file.path not in files else replace(files[file.path], share=file.share)

    def optional(file: StagedFile | None) -> StagedFile | None:
        return None if file is None else complete(file)

    tables = tuple(
        replace(table, files=tuple(map(complete, table.files)), deletes=optional(table.deletes)) for table in report.tables
    )
    return replace(report, tables=tables, dead_letters=optional(report.dead_letters))
