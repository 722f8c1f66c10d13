"""Audit a table: read its offsets once, then compare them with the topic's log, window by window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from kpipe.audit.coordinates import find_coordinates
from kpipe.audit.outcomes import Notes, Outcome, State, Summary
from kpipe.audit.windows import LogBounds, Window, audited_ranges, passes, windows
from kpipe.definition.pipeline import Source
from kpipe.errors import InvalidPipeline
from resources.audit.compare import Counts, Rules, compare, runs_of, tally
from resources.audit.normalize import Normalizer
from resources.audit.report import DECLARED, NUMBERED, ROWS, Report
from resources.audit.report_file import is_finished
from resources.audit.sources import check_address, open_table
from resources.audit.table_address import TableAddress
from resources.audit.table_rows import RowFile, RowFileWriter, Stretch, number_of_rows
from resources.audit.topic_admin import Identity, TopicAdmin
from resources.audit.topic_log import TopicLog

__all__ = ["Progress", "Request", "counted", "is_finished", "outside", "read_declared", "run"]

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """Table, topic, range, and properties of the loader.

    Attributes:
        source: names one topic.
        table: the table that another program loaded.
        columns: names of the columns of partition, offset and topic; None: by known layouts.
        number: name of the column that numbers the rows of a record; None: a record has one row.
        topic_value: value of the topic column; None: the topic's name.
        partitions: numbers; None: all.
        begin, end: see `audited_ranges`.
        group: consumer group at whose committed offsets the ranges end, in place of `end`; None: none.
        isolation: isolation level with which the table was loaded.
        skips_tombstones: whether the loader skips records without a value.
        compacted: whether compaction was on before, whatever the topic's policy is now.
        filtered: records that the loader filtered, by its own count.
        declared: Parquet file or folder with partition and offset of records that are rightly not in the table.
        memory_mb: for the counts of one pass.
    """

    source: Source
    table: TableAddress
    columns: tuple[str | None, str | None, str | None] = (None, None, None)
    number: str | None = None
    topic_value: str | None = None
    partitions: frozenset[int] | None = None
    begin: str | Mapping[int, int] = "first-row"
    end: str | Mapping[int, int] = "end"
    group: str | None = None
    isolation: str = "read_committed"
    skips_tombstones: bool = False
    compacted: bool = False
    filtered: int | None = None
    declared: str | None = None
    memory_mb: int = 64

    def identity(self, topic: Identity | None = None) -> dict[str, Any]:
        """Return what a report belongs to, in JSON's types and without secrets; None: before the brokers were queried."""
        topic = topic or Identity("", "", self.source.names[0])
        keyed = {
            name: value if isinstance(value, str) else {str(number): at for number, at in value.items()}
            for name, value in (("from", self.begin), ("to", self.end))
        }
        table = {key: value for key, value in asdict(self.table).items() if key != "credentials"}
        return {
            "cluster": topic.cluster,
            "topic": topic.name,
            "topic id": topic.id,
            "table": table,
            "columns": [*self.columns, *([] if self.number is None else [self.number])],
            "topic value": self.topic_value,
            "partitions": None if self.partitions is None else sorted(self.partitions),
            **keyed,
            "group": self.group,
            "isolation": self.isolation,
            "skips tombstones": self.skips_tombstones,
            "compacted": self.compacted,
            "except": self.declared,
        }


def run(request: Request, folder: Path, progress: Progress = lambda _: None) -> tuple[Summary, list[Any], dict[str, Any]]:
    """Audit, and write the report. An interrupted audit continues if it is run again with the same folder.

    Returns:
        The result, the first unexplained runs (see `Report.findings`), and facts about table and topic.

    Raises:
        KpipeError: the topic or the table cannot be read, or the report belongs to a different audit.
    """
    check_address(request.table)
    outside(folder, request.table)
    admin = TopicAdmin(request.source)
    # The group first: its offsets are below the log's end of any later moment.
    end = request.end if request.group is None else admin.group_offsets(request.group)
    identity, bounds = admin.state()
    with Report(folder, request.identity(identity)) as report:
        facts = report.table
        if facts is None:
            progress("reading the table")
            _read_table(request, report, admin, identity, bounds, end)
            facts = report.table
        elif not (folder / ROWS).is_file():
            raise InvalidPipeline(f"{folder / ROWS}: the file is missing", "name another folder: --report")
        else:
            progress(f"continuing with the rows that were read at {facts['read']}")
        assert facts is not None
        _compare(request, report, facts, progress)
        trouble = [
            f"partition {number}: group {request.group} has committed no offset, so it was not audited (choose: --partitions)"
            for number in facts["not committed"]
        ]
        if admin.state()[0] != identity:
            trouble.append("the topic was recreated during the audit")
        counts, rows = report.counts()
        ranges = {int(number): (start, stop) for number, (start, stop) in facts["ranges"].items()}
        notes = Notes(**facts["notes"])
        if request.number is not None:
            notes.misnumbered, facts["misnumbered"] = report.misnumbered(20)
        summary = Summary(
            request.isolation, ranges, report.tails(), counts, notes, rows, request.filtered, finished=True, trouble=trouble,
            policy_unknown=not (request.compacted or facts["cleanup policy"]),
        )  # fmt: skip
        report.finish(summary, _rules(request, facts))
        return summary, report.findings(request.isolation, 20), facts


def outside(folder: Path, table: TableAddress) -> None:
    """Reject a report inside the folder of the table, where `rows.parquet` would be part of the table."""
    if table.type not in ("parquet", "delta") or "://" in table.database:
        return
    place = Path(table.database).expanduser().resolve() / table.table
    if place.is_dir() and folder.resolve().is_relative_to(place):
        raise InvalidPipeline(f"--report {folder}: inside the folder of the table", "name another folder: --report")


def _read_table(
    request: Request,
    report: Report,
    admin: TopicAdmin,
    identity: Identity,
    before: Mapping[int, LogBounds],
    end: str | Mapping[int, int],
) -> None:
    """Copy the offsets of the table to the report, and fix the audited ranges.

    The ranges end at or below the log's end before the table was opened: later records need not be in it. Rows are beyond the
    log if they are beyond its end after the table was opened.
    """
    audited = {number: log for number, log in before.items() if request.partitions is None or number in request.partitions}
    if request.partitions is not None and request.partitions - before.keys():
        raise InvalidPipeline(f"--partitions: the topic has no partition {min(request.partitions - before.keys())}", "")
    idle = []
    if request.group is not None and not isinstance(end, str):
        # A loader may never have begun with a partition: then its records are in no range, and lost all the same.
        idle = sorted(number for number, log in audited.items() if number not in end and log.log_start < log.stable)
        end = {number: at for number, at in end.items() if number in audited}
    policy = admin.cleanup_policy()
    read = datetime.now(timezone.utc)
    with open_table(request.table) as table:
        coordinates = find_coordinates(table.fields(), *request.columns, request.number)
        again, after = admin.state()
        if again != identity:
            raise InvalidPipeline(f"topic {identity.name} was recreated", "run it again")
        normal = Normalizer(request.topic_value or identity.name)
        numbered = request.number is not None
        with RowFileWriter(report.folder / (NUMBERED if numbered else ROWS), len(after), numbered) as writer:
            for arrays in table.batches(coordinates):
                writer.add(*normal.of(arrays, coordinates))
        name, snapshot, sql = table.name, table.snapshot, table.sql(coordinates)
    if numbered:
        report.save_records()
    if request.declared is not None:
        read_declared(request, report.folder / DECLARED, identity.name, len(after))
    stretches = {number: (item.rows, item.first, item.last) for number, item in writer.stretches.items()}
    ranges = audited_ranges(audited, stretches, request.begin, end)
    notes = _notes(report.folder / ROWS, ranges, after)
    notes.total, notes.invalid = normal.counts.total, normal.counts.invalid
    notes.other_topic, notes.other_partition = normal.counts.other_topic, writer.other_partition
    if numbered:
        notes.further = number_of_rows(report.folder / NUMBERED) - number_of_rows(report.folder / ROWS)
    facts = {
        "table": name,
        "snapshot": snapshot,
        "read": read.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "columns": [str(column) for column in coordinates.all],
        "cleanup policy": policy,
        "not committed": idle,
        "ranges": {str(number): list(item) for number, item in ranges.items()},
        "notes": vars(notes),
    }
    nothing = Stretch()
    lines = []
    for number, (start, stop) in ranges.items():
        log, rows = before[number], writer.stretches.get(number, nothing)
        first, last = (rows.first, rows.last) if rows.rows else (None, None)
        lines.append([number, start, stop, log.log_start, log.stable, log.high, rows.rows, first, last])
    report.save_table(facts, lines, normal.counts.samples, sql)


def read_declared(request: Request, path: Path, topic: str, partitions: int) -> None:
    """Copy the coordinates of `request.declared` to a file.

    Raises:
        InvalidPipeline: one of them identifies no record.
    """
    assert request.declared is not None
    with open_table(TableAddress("parquet", request.declared)) as table:
        coordinates = find_coordinates(table.fields())
        normal = Normalizer(request.topic_value or topic)
        with RowFileWriter(path, partitions) as writer:
            for arrays in table.batches(coordinates):
                writer.add(*normal.of(arrays, coordinates))
    if normal.counts.invalid:
        raise InvalidPipeline(
            f"--except {request.declared}: {normal.counts.invalid:,} rows identify no record: {normal.counts.samples[0]}",
            "write integers that are not NULL and not negative",
        )


def _notes(path: Path, ranges: Mapping[int, tuple[int, int]], after: Mapping[int, LogBounds]) -> Notes:
    """Classify the rows by their place relative to the audited ranges and the log."""
    notes = Notes()
    columns = [[0] * len(after) for _ in range(5)]
    for number, log in after.items():
        start, end = ranges.get(number, (0, 0))
        columns[0][number], columns[1][number] = start, end
        # A range may end above: the log was recreated or truncated meanwhile.
        columns[2][number], columns[3][number] = max(end, log.stable), max(end, log.high)
        columns[4][number] = number in ranges
    starts, ends, stable, high, audited = (np.array(column, np.int64) for column in columns)
    for partitions, offsets in RowFile(path).batches():
        mine = audited[partitions] == 1
        notes.not_audited += int((~mine).sum())
        partitions, offsets = partitions[mine], offsets[mine]
        edges = np.stack([starts[partitions], ends[partitions], stable[partitions], high[partitions]])
        found = np.bincount((offsets >= edges).sum(axis=0), minlength=5).tolist()
        notes.before, notes.inside = notes.before + found[0], notes.inside + found[1]
        notes.after, notes.undecided, notes.beyond = notes.after + found[2], notes.undecided + found[3], notes.beyond + found[4]
    return notes


def _rules(request: Request, facts: Mapping[str, Any]) -> Rules:
    # An unknown policy must not explain a row without a record.
    compacted = request.compacted or "compact" in str(facts["cleanup policy"])
    return Rules(request.isolation == "read_uncommitted", compacted, request.skips_tombstones)


def _compare(request: Request, report: Report, facts: Mapping[str, Any], progress: Progress) -> None:
    rules = _rules(request, facts)
    ranges = {int(number): (start, stop) for number, (start, stop) in facts["ranges"].items()}
    done = report.windows()
    waiting = [window for window in windows(ranges) if window not in done]
    finished, total = sum(map(len, done)), sum(stop - start for start, stop in ranges.values())
    each = 4 if request.declared is not None else 2
    with TopicLog(request.source) as log:
        for group in passes(waiting, max(1, request.memory_mb * 1_000_000 // each)):
            rows = counted(report.folder / ROWS, group)
            declared = counted(report.folder / DECLARED, group) if request.declared is not None else None
            for at, window in enumerate(group):
                states = log.states(window)
                outcomes = compare(rows.of(at), states, rules, None if declared is None else declared.of(at) > 0)
                log_runs = runs_of(states, window.start, State.VALUE)
                findings = runs_of(outcomes, window.start, Outcome.MATCHED, rows.of(at))
                report.save_window(window, rows.totals[at], tally(outcomes), log_runs, findings)
                finished += len(window)
                progress(f"compared {finished:,} of {total:,} offsets")
            del rows, declared  # else two passes would be in memory


def counted(path: Path, group: Sequence[Window]) -> Counts:
    """Count the rows of a file of coordinates, for each offset of adjacent windows."""
    counts = Counts(group)
    for partitions, offsets in RowFile(path).batches(group):
        counts.add(partitions, offsets)
    return counts
