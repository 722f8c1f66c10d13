"""Divide the records of a range among tables by a field, and infer the columns of tables that do not exist yet (ADR 69)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.batch.routes import Routes
from kpipe.definition.formats import Format, Mapped
from kpipe.definition.json_path import write_path
from kpipe.schema.columns import Columns
from resources.decode.block import Decoded, Decoder, Payloads, in_parts
from resources.decode.factory import decoder, sampled
from resources.decode.resource_limits import Deadlined
from resources.kafka.range_reader import RangeReader
from resources.kafka.record_block import RecordBlock
from resources.spark.task.range_writer import RangeOutput
from resources.spark.task.table_writer import answered
from resources.spark.task.task_spec import JobSpec

__all__ = ["Divided", "Router", "write_routed"]

_RECORDS = 500  # of a new table from which its columns are inferred, in each range
_BYTES = 8 << 20  # of these records, of all new tables of a range together


@dataclass(frozen=True)
class Divided:
    """Records of a block, by their positions.

    Attributes:
        tables: positions of the records of each table.
        rejects: records without a table, with the reasons.
        new: records of values that may get a table.
        empty: number of records without rows, such as an empty payload in CSV.
    """

    tables: Mapping[int, np.ndarray[Any, Any]] = field(default_factory=dict)
    rejects: Mapping[int, str] = field(default_factory=dict)
    new: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    empty: int = 0


class Router:
    """Router of one range's records.

    Args:
        job: the job, with routes.
    """

    def __init__(self, job: JobSpec) -> None:
        assert job.routes is not None
        self._job, self._routes = job, job.routes
        format, name = _only(job.format, self._routes)
        self._name = name
        self._reads = Deadlined(decoder(format, Columns.of({name: "VARCHAR"}), access=job.access))
        self._decoders: dict[int, Decoder] = {}
        self._new: dict[str, _Sample] = {}

    def decoder(self, table: int) -> Decoder:
        """Return the decoder of a table's records."""
        if table not in self._decoders:
            self._decoders[table] = self._job.decoder(table)
        return self._decoders[table]

    def divide(self, payloads: Payloads) -> Divided:
        """Return the tables of a block's records. A record of several rows has one table, or is rejected.

        Raises:
            TooManyRows: see `Decoder`.
        """
        decoded = self._reads.decode(payloads)
        rejects = dict(decoded.rejects) | dict(decoded.refused)
        empty = len(payloads) - answered([decoded], len(payloads)) - len(rejects)
        if not decoded.rows:
            return Divided(rejects=rejects, empty=empty)
        rows, values, found = _rows(decoded, decoded.table.column(self._name).combine_chunks(), rejects, self._routes.field)
        # Sorted by value, so that the cost does not grow with the number of different values.
        order = np.argsort(values, kind="stable")
        edges = np.flatnonzero(np.diff(values[order])) + 1
        tables: dict[int, np.ndarray[Any, Any]] = {}
        new: dict[str, np.ndarray[Any, Any]] = {}
        for part in np.split(order, edges) if len(order) else ():
            value, mine = found[values[part[0]]], rows[part]
            if (at := self._routes.place(value)) is not None:
                tables[at] = mine
            elif why := self._routes.problem(value):
                rejects |= dict.fromkeys(mine.tolist(), why)
            else:
                new[str(value)] = mine
        return Divided(tables, rejects, new, empty)

    def note(self, values: Mapping[str, np.ndarray[Any, Any]], held: RecordBlock) -> None:
        """Keep the first records of the values of a block that may get a table: of the first ones by name.

        Args:
            values: positions of the records of each value.
            held: the block's records.
        """
        kept = self._routes.least((*self._new, *values))
        self._new = {value: self._new.get(value, _Sample()) for value in kept}
        left = _BYTES - sum(sample.size for sample in self._new.values())
        for value in kept:
            if value in values and (sample := self._new[value]).wants(left):
                left -= sample.take(held.pick(values[value][:_RECORDS].tolist()), left)

    def found(self) -> dict[str, Columns]:
        """Return the values that may get a table, with the columns of their first records."""
        job = self._job
        return {
            value: sampled(job.format, sample.lines, job.key, sample.keys, job.access, *job.bounds)
            for value, sample in self._new.items()
        }


@dataclass
class _Sample:
    """The first records of a value."""

    lines: list[bytes] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    size: int = 0

    def wants(self, left: int) -> bool:
        """Return whether another record is kept, given the bytes left for all values: at least one is."""
        return not self.lines or (len(self.lines) < _RECORDS and left > 0)

    def take(self, records: RecordBlock, left: int) -> int:
        """Keep records, and return their bytes."""
        before = self.size
        for line, key in zip(records.values, records.keys(), strict=True):
            if not self.wants(left - (self.size - before)):
                break
            self.lines.append(line or b"")
            self.keys += [] if key is None else [key]
            self.size += len(line or b"") + len(key or b"")
        return self.size - before


def write_routed(job: JobSpec, reader: RangeReader, output: RangeOutput) -> dict[str, Columns]:
    """Decode the records of a range with the columns of their tables, and write them.

    Returns:
        Values that may get a table, with the columns of their first records, which are not written.
    """
    router = Router(job)
    for whole, _ in reader.blocks():
        block = output.spared(whole)
        held, tombstones = block.split_tombstones()
        if tombstones:
            output.tombstones(block)
        data = Payloads.of_array(held.column("line"))

        def divide(start: int, end: int, data: Payloads = data) -> Divided:
            return router.divide(data.part(start, end))

        for start, end, divided in in_parts(len(data), divide):
            _write(divided, held.part(start, end), router, output)
    return router.found()


def _write(divided: Divided, held: RecordBlock, router: Router, output: RangeOutput) -> None:
    """Write the records of a block to their tables, and keep those of values that may get a table."""
    output.filtered += divided.empty
    if divided.rejects:
        bad = sorted(divided.rejects)
        output.reject(held.pick(bad), "parse", [divided.rejects[at] for at in bad])
    for at, records in _blocks(divided.tables, held):
        reads, data, keys = router.decoder(at), Payloads.of_array(records.column("line")), records.column("key")

        def decode(start: int, end: int, reads: Decoder = reads, data: Payloads = data, keys: pa.Array = keys) -> Decoded:
            return reads.decode(data.part(start, end), keys.slice(start, end - start))

        for start, end, decoded in in_parts(len(data), decode):
            output.decoded([decoded], records.part(start, end), at)
    if divided.new:
        router.note(divided.new, held)


def _blocks(tables: Mapping[int, np.ndarray[Any, Any]], held: RecordBlock) -> Iterator[tuple[int, RecordBlock]]:
    for at, places in sorted(tables.items()):
        yield at, held if len(places) == len(held) else held.pick(places.tolist())


def _only(format: Format, routes: Routes) -> tuple[Format, str]:
    """Return the format that reads only the field, and the field's name as the format spells it."""
    name = next((each for each in format.listed or () if each.lower() == routes.field.lower()), routes.field)
    changes: dict[str, object] = {"infer_timestamps": False}
    if format.mapping is not None:
        changes["mapping"] = {name: format.mapping[name]}
    elif format.type == "json":
        changes["mapping"] = {name: Mapped(path=write_path((name,)), default=None)}
    return format.model_copy(update=changes), name


def _rows(
    decoded: Decoded, column: pa.Array, rejects: dict[int, str], name: str
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], list[str | None]]:
    """Return the record and the value's number of each record, and the values; a record of several values is rejected."""
    coded = column.dictionary_encode(null_encoding="encode")
    found, values = coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    rows = np.arange(decoded.rows) if decoded.kept is None else np.asarray(decoded.kept, np.int64)
    if len(rows) < 2 or (np.diff(rows) > 0).all():
        return rows, values, found
    first = np.concatenate(([True], np.diff(rows) > 0))
    record = np.cumsum(first) - 1
    mixed = np.unique(rows[values != values[first][record]])
    rejects |= dict.fromkeys(mixed.tolist(), f"{name}: the rows of the record are for several tables")
    alone = first & ~np.isin(rows, mixed)
    return rows[alone], values[alone], found
