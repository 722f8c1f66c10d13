"""Write a table divided by column values: one file for each division, so that readers can skip divisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from kpipe.batch.batch import StagedFile
from kpipe.definition.lakehouse_options import Part
from kpipe.errors import StagingFailed
from resources.spark.staging.staged_files import StagingWriter
from resources.table_partitions import Values, apart

__all__ = ["Divided"]

# Each division is a file of the table: more of them in one range mean that the table is divided too finely.
_MOST = 1000


class Divided:
    """Writer with the methods of a `StagingWriter` that stages one file for each division.

    Args:
        parts: what the table is divided by.
        made: creates the writer of a division, given a unique text. The rows in memory are bounded by its `WaitingRows`.
    """

    def __init__(self, parts: Sequence[Part], made: Callable[[str], StagingWriter]) -> None:
        self._parts, self._made = tuple(parts), made
        self._files: dict[Values, StagingWriter] = {}

    @property
    def rows(self) -> int:
        """Rows so far."""
        return sum(file.rows for file in self._files.values())

    def write(self, table: pa.Table) -> None:
        """Append a table; all tables have the same schema.

        Raises:
            StagingFailed: there are too many divisions, the disk is full, or the folder cannot be written.
            SchemaConflict: a table cannot be divided by a column of that type.
        """
        for values, rows in apart(table, self._parts):
            if values not in self._files:
                if len(self._files) == _MOST:
                    parts = ", ".join(map(str, self._parts))
                    raise StagingFailed(
                        f"into.partition_by: rows of one range fall into more than {_MOST:,} divisions by {parts}",
                        "divide by something coarser, as day(created) or a country; nothing was committed",
                    )
                self._files[values] = self._made(repr(values))
            self._files[values].write(rows)

    def finish(self) -> tuple[StagedFile, ...]:
        """Close the files, make them durable, and return them.

        Raises:
            StagingFailed: a file cannot be made durable.
        """
        finished = [file.finish() for file in self._files.values()]
        return tuple(file for file in finished if file is not None)

    def abandon(self) -> None:
        """Close without finishing."""
        for file in self._files.values():
            file.abandon()
