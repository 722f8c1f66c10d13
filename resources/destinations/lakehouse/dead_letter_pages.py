"""Read dead letters of a lake in pages, in the order of their commits: from the files that the history names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from kpipe.batch.dead_letter_page import LetterMark, StoredLetter, of_other_ledger
from kpipe.errors import DestinationError
from resources.destinations.lakehouse import commit_log
from resources.destinations.lakehouse.current_reads import at_one_version
from resources.destinations.lakehouse.ledger_file import Item, Record
from resources.destinations.lakehouse.table_format import State, Table

__all__ = ["PagedLetters"]

_BLOCK = 64  # dead letters that are read at once


class PagedLetters:
    """The part of a destination that reads its dead letters in pages; see `LetterPages`."""

    lake: Table
    pipeline: str

    def describe(self) -> str:
        """Describe format, location and table."""
        raise NotImplementedError

    def _look(self) -> tuple[State | None, Record | None]:
        raise NotImplementedError

    @at_one_version
    def letter_page(self, after: LetterMark | None, limit: int, max_bytes: int) -> Sequence[StoredLetter]:
        """Return dead letters behind a position; see `LetterPages`."""
        found, total = list[StoredLetter](), 0
        for item, passed in self._behind(after):
            with self.lake.ledger.here([file["name"] for file in item["dead"]]) as (_, files):
                for letter in self._letters(item, files, passed):
                    total += len(letter.value or b"") + len(letter.key or b"")
                    if found and (total > max_bytes or len(found) == limit):
                        return found
                    found.append(letter)
        return found

    @at_one_version
    def letters_behind(self, after: LetterMark | None) -> int:
        """Count the dead letters behind a position; see `LetterPages`."""
        return sum(_rows(item) - passed for item, passed in self._behind(after))

    def _behind(self, after: LetterMark | None) -> Iterator[tuple[Item, int]]:
        """Yield the commits with dead letters behind a position, each with the number of those before it.

        Raises:
            DestinationError: the ledger does not contain the commit of the position.
        """
        _, record = self._look()
        if record is None:
            return
        first = after.at if after is not None else 0
        items = commit_log.items(self.lake.ledger, record, after=max(first - 1, 0))
        if after is not None:
            item = next(items, None)
            if item is None or item["commit"]["batch_id"] != after.batch:
                raise of_other_ledger(self.pipeline, self.describe(), after)
            if _rows(item) > after.within:
                yield item, after.within
        yield from ((item, 0) for item in items if item["dead"])

    def _letters(self, item: Item, files: Mapping[str, Path], passed: int) -> Iterator[StoredLetter]:
        """Read the dead letters of a commit without the first `passed`; whole row groups of these are not read."""
        batch, seq, before = item["commit"]["batch_id"], item["commit"]["seq"], 0
        for name in (file["name"] for file in item["dead"]):
            if name not in files:
                raise DestinationError(
                    f"pipeline {self.pipeline}: {self.describe()}: a file of dead letters is missing: {name}",
                    "restore a backup of the folder",
                )
            with parquet.ParquetFile(files[name]) as file:
                for group in range(file.num_row_groups):
                    size = file.metadata.row_group(group).num_rows
                    if before + size <= passed:
                        before += size
                        continue
                    for block in file.iter_batches(batch_size=_BLOCK, row_groups=[group]):
                        for row in _read(block):
                            before += 1
                            if before > passed:
                                yield StoredLetter(LetterMark(batch, seq, before), **row)


def _rows(item: Item) -> int:
    return sum(file["rows"] for file in item["dead"])


def _read(block: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the fields of stored letters; Python's dates end with the year 9999, Kafka's timestamps do not."""
    moments = block.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    for row, moment in zip(block.drop_columns(["timestamp"]).to_pylist(), moments, strict=True):
        headers = tuple((header["name"], header["value"]) for header in row.pop("headers") or ())
        yield {**row, "headers": headers, "timestamp_us": moment}
