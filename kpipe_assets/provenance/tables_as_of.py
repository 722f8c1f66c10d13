"""Find the state of a pipeline's tables at given offsets, or at a time, and how to query it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.interfaces import Destination
from kpipe.ledger.ledger import Ledger
from kpipe.offsets import RangeSet
from kpipe.provenance.as_of import Match, content_at, find, first_covering
from kpipe.provenance.facts import Attributing, Query, RowSources, Snapshot, Versioned, VersionedTables
from kpipe.provenance.row_conditions import Naming, beyond, by_history, naming, within
from kpipe.tables.field_tables import refused_by_field
from kpipe.tables.multi_table import table_pipelines
from kpipe.tables.topic_tables import topic_parts
from kpipe.tables.upsert import KeyRule
from kpipe.topics import PartitionId
from kpipe.verification.clearing import Clearing, standing
from kpipe.verification.recount import Entry
from kpipe_assets.provenance.positions import wanted
from kpipe_assets.provenance.trace_report import iso
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["AsOf", "TableState", "as_of", "to_dict"]

_DATABASES = ("duckdb", "ducklake", "postgres", "mysql", "singlestore")


@dataclass(frozen=True)
class TableState:
    """A table at the commit.

    Attributes:
        table: its name.
        snapshot: its snapshot after the commit; None: see `statement`.
        queries: of the snapshot; or of the table now, by offsets.
        narrowed: queries of a later snapshot that contain the wanted offsets only; of an exact match: empty.
        narrowed_snapshot: that snapshot.
        statement: reason why there is no snapshot, or a restriction of the queries; else empty.
    """

    table: str
    snapshot: Snapshot | None = None
    queries: Sequence[Query] = ()
    narrowed: Sequence[Query] = ()
    narrowed_snapshot: Snapshot | None = None
    statement: str = ""


@dataclass(frozen=True)
class AsOf:
    """State of a pipeline's tables.

    Attributes:
        pipeline: its name.
        match: the commit, compared with the wanted offsets.
        committed: its time; None: unknown, or before the first commit.
        next_seq: number of the next commit with rows; None: there is none.
        starts: first offset of the ledger by partition; lower ones were never read.
        tables: in the order of the definition.
    """

    pipeline: str
    match: Match
    committed: datetime | None
    next_seq: int | None
    starts: Mapping[PartitionId, int]
    tables: Sequence[TableState]


def to_dict(state: AsOf) -> dict[str, Any]:
    """Return the object that `kpipe as-of --json` prints."""
    match, content = state.match, state.match.content
    return {
        "pipeline": state.pipeline,
        "seq": content.seq or None,
        "batch": content.batch or None,
        "committed": iso(state.committed),
        "next_seq": state.next_seq,
        "exact": match.exact,
        "starts": {f"{source.topic.name}:{source.partition}": start for source, start in sorted(state.starts.items())},
        "in": _by_name(content.ranges),
        **{part: _by_name(getattr(match, part)) for part in ("missing", "beyond", "repeated")},
        "tables": [
            {
                "table": item.table,
                "snapshot": str(item.snapshot.id) if item.snapshot else None,
                "queries": {query.engine: query.text for query in item.queries},
                "narrowed_snapshot": str(item.narrowed_snapshot.id) if item.narrowed_snapshot else None,
                "narrowed": {query.engine: query.text for query in item.narrowed},
                "statement": item.statement or None,
            }
            for item in state.tables
        ],
    }


def _by_name(ranges: Mapping[PartitionId, RangeSet]) -> dict[str, list[list[int]]]:
    found: dict[str, list[list[int]]] = {}
    for source, items in ranges.items():
        found.setdefault(f"{source.topic.name}:{source.partition}", []).extend([item.start, item.end] for item in items)
    return {name: items for name, items in found.items() if items}


def as_of(pipeline: Pipeline, home: Home, offsets: str | None, moment: datetime | None) -> AsOf:
    """Find the state of the tables. Memory: one entry for each committed range, as `kpipe verify`.

    Args:
        pipeline: the pipeline.
        home: KPIPE_HOME.
        offsets: `TOPIC:PARTITION=OFFSET,...`, next offsets; None: use `moment`.
        moment: time, by the clocks of the drivers that made the commits.

    Raises:
        InvalidPipeline: nothing is committed yet, or `offsets` does not fit the ledger.
        NotAvailable: the destination does not number its commits.
    """
    refused_by_field(pipeline, "kpipe as-of", "trace single offsets instead: kpipe trace")
    destination = open_destination(pipeline, home)
    uid, ledger = destination.ledger()
    if not uid:
        raise InvalidPipeline(f"pipeline {pipeline.name}: nothing committed yet", f"kpipe run {pipeline.name}")
    targets = wanted(offsets, ledger) if offsets is not None else {}
    history = [entry for entry in destination.history() if entry.seq <= ledger.seq]
    if any(entry.seq < 1 for entry in history):
        raise NotAvailable(
            f"pipeline {pipeline.name}: into.type {pipeline.into.type} does not report the numbers of commits",
            "trace single offsets instead: kpipe trace",
        )
    starts = {source: ledger.of(source)[0].start for source in ledger.sources()}
    times = _times(destination)
    if offsets is None:
        assert moment is not None
        if None in times.values():
            raise NotAvailable(
                f"pipeline {pipeline.name}: into.type {pipeline.into.type} does not report the times of commits", "use --offsets"
            )
        content = content_at(history, _until(times, moment))
        targets = {source: ranges.ranges[-1].end for source, ranges in content.ranges.items() if ranges}
        found = Match(content, {}, {}, content.repeated)
    else:
        found = find(history, targets, starts)
    seqs = sorted({entry.seq for entry in history})
    later = first_covering(history, targets, starts) if offsets is not None and not found.exact else None
    tables = _lakes(pipeline, destination, ledger, history, found, later, targets)
    if tables is None:
        tables = _database(pipeline, destination, ledger, history, found, targets, exact_now=offsets is not None)
    following = next((seq for seq in seqs if seq > found.content.seq), None)
    return AsOf(pipeline.name, found, times.get(found.content.seq), following, starts, tables)


def _times(destination: Destination) -> dict[int, datetime | None]:
    """Return the time of each commit with ranges, by its number."""
    return {int(row["seq"]): row.get("committed") for row in destination.view("batches_summary")}


def _until(times: Mapping[int, datetime | None], moment: datetime) -> int:
    """Return the last commit that, like all before it, was made at the time or before. Clocks of drivers may differ."""
    last = 0
    for seq, committed in sorted(times.items()):
        if committed is None or committed > moment:
            break
        last = seq
    return last


def _lakes(
    pipeline: Pipeline,
    destination: Destination,
    ledger: Ledger,
    history: Sequence[Entry],
    found: Match,
    cover: Match | None,
    targets: Mapping[PartitionId, int],
) -> list[TableState] | None:
    """Return the state of tables with snapshots; None: the destination has none.

    With tables by topic, the state of a table is that after its topic's last commit up to the wanted one.
    """
    if pipeline.into.type == "parquet":
        return None
    seq, after = found.content.seq, cover.content.seq if cover is not None else 0
    if isinstance(destination, Versioned):
        return [_lake(pipeline, destination, ledger, history, seq, after, cover, targets)]
    if not isinstance(destination, VersionedTables):
        return None
    tables = []
    for part, topics in topic_parts(pipeline, sorted({entry.source.topic.name for entry in history})):
        mine = [entry for entry in history if entry.source.topic.name in topics]
        own, own_after = (max((entry.seq for entry in mine if entry.seq <= limit), default=0) for limit in (seq, after))
        wanted_here = {source: to for source, to in targets.items() if source.topic.name in topics}
        place = destination.versions(part.into.table)
        tables.append(_lake(part, place, ledger.of_topics(topics), mine, own, own_after, cover, wanted_here))
    return tables


def _lake(
    pipeline: Pipeline,
    destination: Versioned,
    ledger: Ledger,
    history: Sequence[Entry],
    seq: int,
    after: int,
    cover: Match | None,
    targets: Mapping[PartitionId, int],
) -> TableState:
    """Return the state of one table.

    Args:
        pipeline: the definition, as seen by the table.
        destination: the table's states.
        ledger: lanes of its topics.
        history: ranges of its topics.
        seq: number of the commit; 0: none.
        after: number of the first commit that has all wanted offsets; 0: none.
        cover: the offsets after that commit.
        targets: wanted offsets of the table's topics.
    """
    table = pipeline.into.table
    snapshots = destination.snapshots([item for item in (seq, after) if item])
    snapshot = snapshots.get(seq)
    statement = ""
    if seq == 0:
        statement = "no commit: the first one with rows already contains other offsets, or nothing was committed by then"
    elif snapshot is None:
        statement = f"the snapshot of commit {seq} does not exist any more: it has expired, or the log was cleaned up"
    narrowed: Sequence[Query] = ()
    later = snapshots.get(after)
    if cover is not None and later is not None and not any(cover.repeated.values()):
        rows = _rows(pipeline, destination, history)
        names = naming(pipeline, ledger, rows)
        # Rows of a later snapshot have replaced and deleted others by their key.
        condition = "" if rows.keyed else beyond(names, targets)
        if condition:
            narrowed = destination.queries(later, condition)
            notes = [*_unnamed(names, ledger), *_others(pipeline, destination, table)]
            statement = "; ".join([*filter(None, [statement]), *notes])
    queries = destination.queries(snapshot) if snapshot is not None else ()
    return TableState(table, snapshot, queries, narrowed, later if narrowed else None, statement)


def _database(
    pipeline: Pipeline,
    destination: Destination,
    ledger: Ledger,
    history: Sequence[Entry],
    found: Match,
    targets: Mapping[PartitionId, int],
    exact_now: bool,
) -> list[TableState]:
    """Return queries of the tables as they are now, by the coordinates of rows."""
    kind = pipeline.into.type
    if kind not in (*_DATABASES, "parquet"):
        return [TableState(part.into.table, statement=f"{kind} keeps no snapshots") for part in table_pipelines(pipeline)]
    now = content_at(history, ledger.seq)
    ranges = (
        {source: [(0, to)] for source, to in targets.items()}
        if exact_now
        else {source: [(item.start, item.end) for item in held] for source, held in found.content.ranges.items()}
    )
    parts = topic_parts(pipeline, sorted({source.topic.name for source in (*ranges, *found.content.ranges)}))
    current = {part.into.table.lower() for part, _ in (parts if pipeline.into.by_topic else parts[:1])}
    former = sorted({entry.table for entry in standing(history) if entry.table and entry.table.lower() not in current})
    tables = []
    for part, topics in parts:
        table, notes = part.into.table, [f"{kind} keeps no snapshots"]
        mine = {source: item for source, item in ranges.items() if source.topic.name in topics}
        rows = _rows(part, destination, [entry for entry in history if entry.source.topic.name in topics])
        names = naming(pipeline, ledger, rows)
        condition = within(names, mine)
        if rows.keyed:
            condition = ""
            notes.append("later batches have replaced and deleted rows of the table: its state then cannot be queried")
        elif not any(mine.values()):
            notes.append("nothing was committed by then")
        elif not condition:
            notes.append(names.refusal or "the offsets are too many ranges for a condition")
        elif kind == "parquet":
            notes += _unnamed(names, ledger)
        notes += _others(pipeline, destination, table)
        if former:
            notes.append(f"an earlier definition has loaded other tables, which are not queried: {', '.join(former)}")
        gone = [
            f"{source} {left}"
            for source, held in found.content.ranges.items()
            if source.topic.name in topics
            for item in held
            for left in now.ranges.get(source, RangeSet()).missing(item)
        ]
        if condition and gone:
            notes.append(f"rows of these offsets were cleared since: {', '.join(gone[:20])}")
        again = [f"{source} {item}" for source in mine for item in now.repeated.get(source, ())]
        if condition and again:
            notes.append(f"these offsets were read more than once, so their rows may be duplicated: {', '.join(again[:20])}")
        if condition:
            name = table.replace('"', '""') if kind in ("duckdb", "ducklake", "postgres") else table.replace("`", "``")
            quoted = f'"{name}"' if kind in ("duckdb", "ducklake", "postgres") else f"`{name}`"
            queries = (Query(kind, f"SELECT * FROM {quoted} WHERE {condition}"),) if kind != "parquet" else ()  # noqa: S608 - quoted
            if kind == "parquet":
                notes.append(f"condition on the rows: {condition}")
            tables.append(TableState(table, queries=queries, statement="; ".join(notes)))
        else:
            tables.append(TableState(table, statement="; ".join(notes)))
    return tables


def _rows(pipeline: Pipeline, destination: object, history: Sequence[Entry]) -> RowSources:
    """Return how the rows of a table name their source: rows of earlier definitions may differ from those of the present one."""
    table = pipeline.into.table
    destination = destination.versions(table) if isinstance(destination, VersionedTables) else destination
    rows = destination.row_sources(table) if isinstance(destination, Attributing) else RowSources(unnamed=None)
    if KeyRule.of(pipeline) is not None:
        rows = replace(rows, keyed=True)
    return by_history(rows, history)


def _unnamed(names: Naming, ledger: Ledger) -> list[str]:
    """Return the restriction of a condition in a table whose rows were not searched."""
    several = len({source.topic.name for source in ledger.sources()}) > 1
    return [f"rows that name no topic count as those of {names.owner}, which was read first"] if names.owner and several else []


def _others(pipeline: Pipeline, destination: object, table: str) -> list[str]:
    """Return the restriction of a condition on coordinates if other pipelines write the table."""
    destination = destination.versions(table) if isinstance(destination, VersionedTables) else destination
    if not isinstance(destination, (Clearing, Versioned)):
        return []
    others = [name for name in destination.writers(table) if name != pipeline.name]
    if not others:
        return []
    return [f"the condition does not distinguish the rows of pipeline {', '.join(others[:20])}, which writes the table, too"]
