"""Files that the short ranges of a task share.

A range that fills no row group is not worth a file: each costs three syncs, a footer and a proof on the driver, and a topic
may have thousands of partitions. What a range holds is handed over when it is finished, so one that failed and is read
again leaves nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from kpipe.batch.batch import RangeReport, StagedFile
from resources.spark.staging.staged_files import StagingWriter

__all__ = ["Shared"]

_BYTES = 128 << 20
"""What a file may hold before the next one is begun: enough for any footer, and several files can be read at once."""


class Shared:
    """The shared files of one task.

    Args:
        folder, make: of the batch; see `StagingWriter`.
    """

    def __init__(self, folder: str, *, make: bool = True) -> None:
        self._folder, self._make = folder, make
        self._open: dict[tuple[str, pa.Schema], StagingWriter] = {}
        self._full: list[StagingWriter] = []

    def take(self, kind: str, tables: Sequence[pa.Table]) -> StagedFile:
        """Rows of a range; tables of one kind and schema come into one file.

        Returns:
            The file as far as it is known yet: its path, and how many of its rows these are.

        Raises:
            StagingFailed: the disk is full, or the folder cannot be written.
        """
        key = kind, tables[0].schema
        writer = self._open.setdefault(key, StagingWriter(self._folder, make=self._make))
        before = writer.rows
        for table in tables:
            writer.write(table)
        if writer.size >= _BYTES:
            self._full.append(self._open.pop(key))
        return StagedFile(writer.path, 0, 0, "", writer.rows - before)

    def finish(self, reports: Sequence[RangeReport]) -> list[RangeReport]:
        """Close the files, make them durable, and complete the reports that name them.

        Raises:
            StagingFailed: one cannot be made durable.
        """
        finished = (writer.finish() for writer in (*self._full, *self._open.values()))
        files = {file.path: file for file in finished if file is not None}
        self._full, self._open = [], {}
        return [_completed(report, files) for report in reports]

    def abandon(self) -> None:
        """Close what is open; nothing will be reported."""
        for writer in (*self._full, *self._open.values()):
            writer.abandon()


def _completed(report: RangeReport, files: Mapping[str, StagedFile]) -> RangeReport:
    def whole(file: StagedFile) -> StagedFile:
        return file if file.path not in files else replace(files[file.path], share=file.share)

    def known(file: StagedFile | None) -> StagedFile | None:
        return None if file is None else whole(file)

    return replace(
        report,
        rows=known(report.rows),
        dead_letters=known(report.dead_letters),
        deletes=known(report.deletes),
        also=tuple(replace(share, rows=known(share.rows)) for share in report.also),
        parts=tuple(map(whole, report.parts)),
    )
