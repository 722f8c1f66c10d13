"""Read what a lake's ledger files and table contain about one offset, at one version of the table."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kpipe.errors import InvalidPipeline
from kpipe.ledger.ledger import Ledger
from kpipe.provenance.facts import DECISIONS, CommitInfo, Facts, Found, Letter, Query, Reading, RowSources, Snapshot, TableRows
from kpipe.schema.columns import Columns
from kpipe.verification.recount import Entry
from resources.destinations.lakehouse import commit_log
from resources.destinations.lakehouse import ledger_file as records
from resources.destinations.lakehouse import ledger_tables as tables
from resources.destinations.lakehouse.current_reads import at_one_version
from resources.destinations.lakehouse.ledger_file import Item, Record
from resources.destinations.lakehouse.row_search import Condition
from resources.destinations.lakehouse.table_format import State, Table, is_keyed
from resources.destinations.ledger_rows import entry
from resources.destinations.provenance import Written, adopted_rows, bound, commit_info, decided, shares

__all__ = ["Lake", "Tracing", "rows_at", "trace"]

_LOOKED = 1000  # most decisions whose notes are read; most dead letters of an offset
_TOPIC, _NUMBER, _OFFSET = "_kafka_topic", "_kafka_partition", "_kafka_offset"


@dataclass(frozen=True)
class Lake:
    """A pipeline's table and ledger at one version.

    Attributes:
        table: in its format.
        name: of the table.
        pipeline: name of the pipeline.
        state: the version.
        record: the pipeline's ledger file of that version.
        where: the destination, for messages.
    """

    table: Table
    name: str
    pipeline: str
    state: State
    record: Record
    where: str

    def items(self, record: Record | None = None) -> Iterator[Item]:
        """Read the commits of the pipeline, or of another record of the same table, in order."""
        return commit_log.items(self.table.ledger, record or self.record)

    def others(self) -> Iterator[Record]:
        """Read the ledger files of all pipelines of the table at that version, this one included."""
        return records.read_all(self.table.ledger, self.state.pointer, self.where)


def trace(lake: Lake, topic: str, partition: int, offset: int) -> Facts:
    """Return what is recorded about an offset; see `Traceable.trace`. Reads the history twice, one file at a time."""
    found: list[tuple[Item, Entry]] = []
    decisions: deque[CommitInfo] = deque(maxlen=_LOOKED)
    for item in lake.items():
        if item["commit"]["kind"] in DECISIONS:
            decisions.appendleft(commit_info(item["commit"]))
        for row in item["ranges"]:
            if (row["topic"], row["batch_source_partition_id"]) == (topic, partition):
                made = entry(row)
                if offset in made.range:
                    found.append((item, made))
    read = [(item, made) for item, made in found if not made.reread]
    others = _others(lake, read)
    snapshots = lake.table.landed(lake.state, lake.pipeline, [made.seq for _, made in read])
    readings = [
        _reading(lake, item, made, offset, others.get(made.seq, []), snapshots.get(made.seq))
        if not made.reread
        else Reading(made, commit_info(item["commit"]))
        for item, made in found
    ]
    return Facts(lake.record.ledger, readings, decided(decisions, topic, partition))


def _others(lake: Lake, read: Sequence[tuple[Item, Entry]]) -> dict[int, list[Written]]:
    """Return, by the number of each commit, other ranges that overlap its range and have rows.

    They are those of all pipelines, and of the loaders whose positions pipelines have adopted. An adoption by another pipeline
    after the range was read took over from this pipeline.
    """
    mine = [made for _, made in read]
    result: dict[int, list[Written]] = {made.seq: [] for made in mine}
    for record in lake.others() if mine else ():
        for item in lake.items(record):
            if item["commit"]["kind"] == "adopt":
                adopted = commit_info(item["commit"])
                for own, made in read:
                    if record.pipeline == lake.pipeline or _is_before(adopted, commit_info(own["commit"])):
                        result[made.seq] += adopted_rows(record.pipeline, adopted.batch, adopted.note, made)
            for row in item["ranges"]:
                if not row["rows"]:
                    continue
                for made in mine:
                    same = (row["batch_source_partition_id"], row["batch_earliest_offset"] < made.range.end)
                    if same != (made.source.partition, True) or row["batch_latest_offset"] <= made.range.start:
                        continue
                    other = entry(row)
                    written = Written(record.pipeline, other.batch, other.source, other.range.start, other.range.end)
                    if written != _own(lake, made):
                        result[made.seq].append(written)
    return result


def _is_before(first: CommitInfo, second: CommitInfo) -> bool:
    return first.committed is not None and second.committed is not None and first.committed < second.committed


def _own(lake: Lake, made: Entry) -> Written:
    return Written(lake.pipeline, made.batch, made.source, made.range.start, made.range.end)


def _reading(lake: Lake, item: Item, made: Entry, offset: int, others: Sequence[Written], snapshot: Snapshot | None) -> Reading:
    letters, located = _letters(lake, item, made, offset)
    counted = _rows(lake, made, offset, others)
    return Reading(made, commit_info(item["commit"]), (counted,), letters, located, counted.records, snapshot)


def _letters(lake: Lake, item: Item, made: Entry, offset: int) -> tuple[tuple[Letter, ...], int]:
    """Return the dead letters of the batch at the offset, and the number of those that name an offset of the range."""
    if not item["dead"]:
        return (), 0
    with tables.desk(lake.table.ledger, [item]) as (connection, files):
        tables.lay_dead_letters(connection, [item], files, lake.table.place)
        place = [made.batch, made.source.topic.name, made.source.partition]
        same = 'batch_id = $1 AND topic = $2 AND "partition" = $3'
        rows = connection.execute(
            f'SELECT batch_id, stage, error_message, version FROM kpipe_errors WHERE {same} AND "offset" = $4'  # noqa: S608 - constants
            f" ORDER BY error_id LIMIT {_LOOKED}",
            [*place, offset],
        ).fetchall()
        located = connection.execute(
            f'SELECT count(*) FROM kpipe_errors WHERE {same} AND "offset" >= $4 AND "offset" < $5',  # noqa: S608 - constants
            [*place, made.range.start, made.range.end],
        ).fetchone()
        assert located is not None
        return tuple(Letter(row[0], row[1] or "", row[2] or "", row[3] or "") for row in rows), int(located[0])


def _rows(lake: Lake, made: Entry, offset: int, others: Sequence[Written]) -> TableRows:
    """Count the rows that may belong to the range. Memory: three columns of the rows of one range."""
    written = made.counts.rows
    names = {name.lower(): name for name in lake.state.columns.names()}
    if not names.keys() >= {_NUMBER, _OFFSET}:
        return TableRows(lake.name, written, keyed=is_keyed(lake.state))
    wanted = [names[name] for name in (_NUMBER, _OFFSET, _TOPIC) if name in names]
    number, at = names[_NUMBER], names[_OFFSET]
    where = [(number, "==", made.source.partition), (at, ">=", made.range.start), (at, "<", made.range.end)]
    found = lake.table.matching(lake.state, wanted, where, None)
    topic = made.source.topic.name
    by_topic: str | None = None
    if _TOPIC in names:
        column = found[names[_TOPIC]]
        found = found.filter(pc.or_kleene(pc.equal(column, topic), pc.is_null(column)))
        by_topic = topic if not found[names[_TOPIC]].null_count else None
    offsets = found[at]
    at_offset = int(pc.sum(pc.cast(pc.equal(offsets, offset), pa.int64())).as_py() or 0)
    shared = shares(others, by_topic, offset)
    records_found = int(pc.count_distinct(offsets).as_py())
    keyed = is_keyed(lake.state)
    return TableRows(lake.name, written, True, at_offset, len(offsets), records_found, keyed=keyed, **shared)


def rows_at(lake: Lake | None, name: str, table: str, where: Mapping[str, str], limit: int) -> Sequence[Found]:
    """Return the coordinates of rows; see `Traceable.rows_at`."""
    if table.lower() != name.lower():
        raise InvalidPipeline(f"no table {table!r}", f"tables: {name}")
    columns = lake.state.columns if lake is not None else Columns()
    values = bound(columns, where, name)
    assert lake is not None  # without columns, `bound` raises
    names = {column.lower(): column for column in columns.names()}
    wanted = [names[column] for column in (_TOPIC, _NUMBER, _OFFSET) if column in names]
    kinds = dict(columns)
    conditions: list[Condition] = [
        (column, "==", str(value) if str(kinds[column]) == "HUGEINT" else value) for column, value in values.items()
    ]  # a lake stores these integers as text
    try:
        rows: list[dict[str, Any]] = lake.table.matching(lake.state, wanted, conditions, limit).to_pylist()
    except (pa.ArrowTypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        raise InvalidPipeline(
            f"table {name}: column {', '.join(values)}: the value cannot be compared in {lake.table.kind}",
            "choose another column",
        ) from error
    return [Found(row.get(names.get(_TOPIC, _TOPIC)), row[names[_NUMBER]], row[names[_OFFSET]]) for row in rows]


class Tracing:
    """The methods of `Traceable` and `Versioned`, for `LakeDestination`."""

    lake: Table
    table: str
    pipeline: str

    def describe(self) -> str:
        """Describe format, location and table."""
        raise NotImplementedError

    def _look(self) -> tuple[State | None, Record | None]:
        raise NotImplementedError

    @at_one_version
    def trace(self, topic: str, partition: int, offset: int) -> Facts:
        """Return what is recorded about an offset; see `Traceable`."""
        lake = self._traced()
        return trace(lake, topic, partition, offset) if lake is not None else Facts(Ledger(self.pipeline))

    def rows_at(self, table: str, where: Mapping[str, str], limit: int) -> Sequence[Found]:
        """Return the coordinates of rows; see `Traceable`."""
        return rows_at(self._traced(), self.table, table, where, limit)

    def snapshots(self, seqs: Sequence[int]) -> Mapping[int, Snapshot]:
        """Return the snapshots that these commits made; see `Versioned`."""
        state, record = self._look()
        return self.lake.landed(state, self.pipeline, seqs) if record is not None else {}

    @at_one_version
    def writers(self, table: str) -> Sequence[str]:
        """Return the pipelines that have committed to the table; see `Versioned`."""
        del table
        lake = self._traced()
        return sorted(record.pipeline for record in lake.others()) if lake is not None else []

    def queries(self, snapshot: Snapshot, condition: str = "") -> Sequence[Query]:
        """Return queries of a snapshot; see `Versioned`."""
        state, _ = self._look()
        return self.lake.queries(state, snapshot, condition)

    def row_sources(self, table: str) -> RowSources:
        """Return how the rows of the table name the source of their records; see `Attributing`. Rows are not searched."""
        del table
        state, _ = self._look()
        if state is None:
            return RowSources()
        names = {name.lower() for name in state.columns.names()}
        return RowSources(is_keyed(state), topic_column=_TOPIC in names, unnamed=None)

    def _traced(self) -> Lake | None:
        state, record = self._look()
        if state is None or record is None:
            return None
        return Lake(self.lake, self.table, self.pipeline, state, record, self.describe())
