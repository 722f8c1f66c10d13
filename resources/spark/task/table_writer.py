"""Write one table's rows of one range, and combine the results of several tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.batch.batch import Counts, Mark, TableReport
from kpipe.schema.columns import Columns
from resources.decode.block import Decoded
from resources.decode.debezium.decoder import ChangeKeys
from resources.decode.key_decoder import KeyReader
from resources.spark.staging.partitioned_writer import Divided
from resources.spark.staging.staged_files import StagingWriter
from resources.spark.task.keyed_rows import with_keys
from resources.spark.task.nul_check import nul_reasons
from resources.spark.task.projection import Coordinate, selector
from resources.spark.task.task_spec import JobSpec, TableSpec
from resources.spark.task.value_limits import storable, unstorable

__all__ = ["Agreed", "Sink", "agreed", "answered"]

_WIDE = pa.decimal128(38)  # of a sum of offsets


class Sink:
    """Writer of one table's rows and deletes.

    Args:
        job: what the batch's tasks share.
        table: the table.
        file: writer of the rows.
        deleted: writer of the deleted keys.
    """

    def __init__(self, job: JobSpec, table: TableSpec, file: StagingWriter | Divided, deleted: StagingWriter) -> None:
        self.table, self._file, self._deleted = table, file, deleted
        self._limits = job.limits
        self._select = selector(table, job.lookups)
        self.new_columns = self._select.new_columns if self._select is not None else Columns()
        #: Kafka's coordinates that the table's expressions read.
        self.coordinates = self._select.coordinates if self._select is not None else ()
        self._mark = Mark()
        self._computed = {name.lower() for name in table.shape.selection.targets} if table.shape is not None else ()
        #: Reads the keys that tombstones delete; None: tombstones delete nothing.
        self.keys = _keys(job, table) if table.deletes else None

    def made(self, decoded: Decoded, coordinate: Coordinate) -> Decoded:
        """Return rows of the table, with the reasons of records that give none.

        Raises:
            TooManyRows: see `Selector.apply`.
        """
        if self._select is not None:
            decoded = self._select.apply(decoded, coordinate)
        if decoded.new_columns:
            self.new_columns = self._reported(self.new_columns.joined(decoded.new_columns, apart=True))
        if self._limits is not None:
            decoded = storable(decoded, self.table.columns, self._limits, self._computed)
        decoded = with_keys(decoded, self.table.unique) if self.table.unique else decoded
        decoded = self._deletable(decoded) if decoded.keys is not None else decoded
        if not self.table.name:
            return decoded
        return replace(decoded, refused=[(index, f"table {self.table.name}: {reason}") for index, reason in decoded.refused])

    def unstorable(self, keys: pa.Table) -> tuple[dict[int, str], dict[int, str]]:
        """Return by position why keys of deletes cannot be in the table, as for rows: reasons of rejects, and of refused."""
        unique, shape = self.table.unique, self.table.shape
        bad = unstorable(keys, unique, self._limits) if self._limits is not None else {}
        refused = nul_reasons(keys, unique, shape.no_nul) if shape is not None and shape.no_nul else {}
        return bad, {at: why for at, why in refused.items() if at not in bad}

    def _deletable(self, decoded: Decoded) -> Decoded:
        bad, refused = self.unstorable(decoded.keys)
        if not bad and not refused:
            return decoded
        good = [index for index in range(len(decoded.deleted)) if index not in bad and index not in refused]
        return replace(
            decoded,
            deleted=[decoded.deleted[index] for index in good],
            keys=None if decoded.keys is None else decoded.keys.take(pa.array(good, pa.int64())),
            rejects=sorted([*decoded.rejects, *((decoded.deleted[index], why) for index, why in bad.items())]),
            refused=sorted([*decoded.refused, *((decoded.deleted[index], why) for index, why in refused.items())]),
        )

    def _reported(self, new: Columns) -> Columns:
        bound = self.table.bound
        return new if bound is None else replace(bound, columns=self.table.columns).report(new)

    def write(self, table: pa.Table, records: int | None) -> None:
        """Write rows with their coordinates; `records` is the number of records behind them, None: rows have no offset."""
        self._file.write(table)
        if records is not None:
            self._mark += Mark(records, _summed(table.column("_kafka_offset")))

    def delete(self, keys: pa.Table) -> None:
        """Write keys of rows to delete, with the coordinates of their tombstones."""
        self._deleted.write(keys)

    def report(self) -> TableReport:
        """Close the files, and report."""
        counts = Counts(rows=self._file.rows, deletes=self._deleted.rows)
        finished = self._file.finish()
        files = finished if isinstance(finished, tuple) else () if finished is None else (finished,)
        return TableReport(counts, files, self._deleted.finish(), self._mark, self.new_columns)

    def abandon(self) -> None:
        """Close open files; nothing is reported."""
        self._file.abandon()
        self._deleted.abandon()


def _summed(offsets: pa.ChunkedArray) -> int:
    """Return the sum of offsets, which may exceed 64 bits. Decimals take a hundred times as long."""
    fits = (pc.max(offsets).as_py() or 0) * len(offsets) < 2**63
    return int(pc.sum(offsets if fits else offsets.cast(_WIDE)).as_py() or 0)


def _keys(job: JobSpec, table: TableSpec) -> KeyReader | ChangeKeys:
    changes = job.format.type == "debezium"
    return (
        ChangeKeys(job.format, table.unique, table.keeps, job.access) if changes else KeyReader(table.unique, job.key, job.access)
    )


@dataclass(frozen=True)
class Agreed:
    """Combined result of all tables for one block of payloads.

    Attributes:
        tables: rows of each.
        rejects: payloads that cannot be decoded, with the reasons.
        refused: payloads whose row a table rejects, with the reasons.
    """

    tables: Sequence[Decoded]
    rejects: Sequence[tuple[int, str]]
    refused: Sequence[tuple[int, str]]


def agreed(made: Sequence[Decoded]) -> Agreed:
    """Combine the results of all tables for one block: a record that one table rejects gives no row in any.

    Args:
        made: of each table.
    """
    if len(made) == 1:  # no other table could have a row of a rejected record
        return Agreed(made, made[0].rejects, made[0].refused)
    rejects: dict[int, str] = {}
    refused: dict[int, str] = {}
    for decoded in made:
        for index, reason in decoded.rejects:
            rejects.setdefault(index, reason)
    for decoded in made:
        for index, reason in decoded.refused:
            if index not in rejects:
                refused.setdefault(index, reason)
    bad = [*rejects, *refused]
    tables = [_without(decoded, bad) for decoded in made]
    return Agreed(tables, sorted(rejects.items()), sorted(refused.items()))


def _without(decoded: Decoded, bad: Sequence[int]) -> Decoded:
    """Return a table's block without the rows of these payloads; several tables delete nothing."""
    rest = decoded.where(~np.isin(decoded.owners, bad)) if bad else decoded
    return replace(rest, rejects=(), refused=())


def answered(made: Sequence[Decoded], count: int) -> int:
    """Count payloads that gave a row in at least one table."""
    if any(decoded.kept is None for decoded in made):
        return count
    return len(set().union(*(decoded.kept or () for decoded in made)))
