"""Audit a table by key: hash its rows, then the records of the topic, part by part, and compare them bucket by bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from kpipe.audit.canonical import joined
from kpipe.audit.key_outcomes import KeySummary
from kpipe.audit.windows import LogBounds, Window, audited_ranges, passes, windows
from kpipe.errors import InvalidPipeline
from resources.audit.by_key.comparison_sql import compare_every, compare_latest
from resources.audit.by_key.fields import Field, Plan, plan
from resources.audit.by_key.key_report import RECORDS, ROWS, KeyReport
from resources.audit.by_key.records import Records, Rows
from resources.audit.by_key.spill import Spill
from resources.audit.column_kinds import row_texts
from resources.audit.report import DECLARED
from resources.audit.run import Progress, Request, counted, outside, read_declared
from resources.audit.sources import check_address, open_table
from resources.audit.topic_admin import Identity, TopicAdmin
from resources.audit.topic_log import TopicLog
from resources.kafka.rare_requests import may_compact

__all__ = ["KeyRequest", "run"]

_PART = 8 * (2 << 20)  # offsets of a part, the unit of a checkpoint
_BUCKET = 1_000_000  # offsets of a bucket
_MOST_BUCKETS = 256
_SHOWN = 20


@dataclass(frozen=True)
class KeyRequest:
    """An audit by key.

    Attributes:
        base: topic, table, end of the range, properties of the loader. Its range begins at the log start.
        keys, columns: see `plan`.
        every: whether each record has a row; otherwise the newest record of each key.
        own_key: whether the key is that of Kafka, not part of the value.
        unit: unit of numbers that are timestamps.
        older_rows: whether rows without a record are those of records that the log does not contain any more.
    """

    base: Request
    keys: tuple[str, ...]
    columns: tuple[str, ...] = ()
    every: bool = False
    own_key: bool = False
    unit: str = "ms"
    older_rows: bool = False

    def identity(self, topic: Identity | None = None) -> dict[str, Any]:
        """Return what a report belongs to, in JSON's types and without secrets; None: before the brokers were queried."""
        own = {key: value for key, value in vars(self).items() if key != "base"}
        own = {f"by key: {key}": list(value) if isinstance(value, tuple) else value for key, value in own.items()}
        return {**self.base.identity(topic), **own}


def run(
    request: KeyRequest, folder: Path, progress: Progress = lambda _: None
) -> tuple[KeySummary, list[dict[str, Any]], dict[str, Any]]:
    """Audit, and write the report. An interrupted audit continues if it is run again with the same folder.

    Returns:
        The result, the first findings of each outcome, and facts about table and topic.

    Raises:
        KpipeError: the topic or the table cannot be read, or the report belongs to a different audit.
    """
    base = request.base
    check_address(base.table)
    outside(folder, base.table)
    admin = TopicAdmin(base.source)
    end = base.end if base.group is None else admin.group_offsets(base.group)
    identity, bounds = admin.state()
    with KeyReport(folder, request.identity(identity)) as report:
        facts = report.table
        if facts is None:
            progress("reading the table")
            facts = _read_table(request, report, admin, identity, bounds, end)
        else:
            progress(f"continuing with the rows that were read at {facts['read']}")
        chosen = _plan(facts)
        parts = _read_topic(request, report, facts, chosen, progress)
        last, log = admin.state()
        read = replace(report.read(), rows=facts["rows"], keyless=facts["keyless"], written=_written(facts["later"], log))
        trouble = [
            f"partition {number}: group {base.group} has committed no offset, so none of its records must have a row"
            for number in facts["not committed"]
        ]
        if last != identity:
            trouble.append("the topic was recreated during the audit")
        numbers = [at for at in range(len(chosen.contents)) if chosen.chosen or at in read.fields]
        older = bool(facts["older"] or read.lost)
        compacted = base.compacted or may_compact(facts["cleanup policy"])
        query = compare_every(numbers, older) if request.every else compare_latest(numbers, older, compacted)
        for bucket in range(facts["buckets"]):
            report.compare(bucket, parts, len(chosen.contents), query)
            progress(f"compared {bucket + 1:,} of {facts['buckets']:,} buckets of keys")
        summary = KeySummary(
            report.totals(), read, [chosen.contents[at].column for at in numbers], request.columns == ("none",),
            compacted, request.every, request.older_rows, trouble=trouble,
            policy_unknown=not (base.compacted or facts["cleanup policy"]),
        )  # fmt: skip
        columns = [(at, item.column, item.path, at in numbers) for at, item in enumerate(chosen.contents)]
        report.finish(summary, columns, query)
        findings = report.findings(summary.explained, _SHOWN)
        for item in findings:
            item["columns"] = [chosen.contents[at].column for at in item["columns"]]
        return summary, findings, {**facts, "unreadable": report.unreadable(_SHOWN)}


def _written(read: Mapping[str, Sequence[int]], log: Mapping[int, LogBounds]) -> int:
    """Return how many offsets of the log are above the ranges, `[start, end]` by partition."""
    return sum(max(0, at.stable - read.get(str(number), (0, at.log_start))[1]) for number, at in log.items())


def _plan(facts: Mapping[str, Any]) -> Plan:
    keys, contents = (tuple(Field(*item) for item in facts[name]) for name in ("keys", "contents"))
    return Plan(keys, contents, facts["chosen"], tuple(facts["excluded"]))


def _read_table(
    request: KeyRequest,
    report: KeyReport,
    admin: TopicAdmin,
    identity: Identity,
    before: Mapping[int, LogBounds],
    end: str | Mapping[int, int],
) -> dict[str, Any]:
    """Write the hashes of the rows, and fix the ranges: records that the table must contain, and later ones that it may."""
    base = request.base
    ranges = audited_ranges(before, {}, "log-start", end)
    idle = [number for number, log in before.items() if base.group and number not in end and log.log_start < log.stable]
    policy = admin.cleanup_policy()
    span = sum(log.stable - log.log_start for log in before.values())
    buckets = min(_MOST_BUCKETS, 1 + span // _BUCKET)
    read = datetime.now(timezone.utc)
    rows = keyless = 0
    with open_table(base.table) as table:
        chosen = plan(table.kinds(), request.keys, request.columns)
        with Spill(report.folder / ROWS, 0, buckets, len(chosen.contents)) as spill:
            names = [item.column for item in (*chosen.keys, *chosen.contents)]
            for block, missing in _blocks(table.values(names), chosen):
                rows, keyless = rows + len(block.keys) + missing, keyless + missing
                spill.add(block)
        name, snapshot, sql = table.name, table.snapshot, table.values_sql(names)
    again, after = admin.state()
    if again != identity:
        raise InvalidPipeline(f"topic {identity.name} was recreated", "run it again")
    if base.declared is not None:
        read_declared(base, report.folder / DECLARED, identity.name, len(after))
    later = {number: (stop, max(stop, after[number].stable)) for number, (_, stop) in ranges.items() if number in after}
    later |= {number: (log.log_start, log.stable) for number, log in after.items() if number not in ranges}
    facts = {
        "table": name,
        "snapshot": snapshot,
        "read": read.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "keys": [[item.column, item.path, item.kind] for item in chosen.keys],
        "contents": [[item.column, item.path, item.kind] for item in chosen.contents],
        "chosen": chosen.chosen,
        "excluded": list(chosen.excluded),
        "ranges": {str(number): list(item) for number, item in ranges.items()},
        "later": {str(number): list(item) for number, item in later.items()},
        "buckets": buckets,
        "rows": rows,
        "keyless": keyless,
        "cleanup policy": policy,
        "older": any(log.log_start > 0 for log in before.values()),
        "not committed": idle,
    }
    report.save_table(facts, sql)
    return facts


def _blocks(batches: Iterator[list[Any]], chosen: Plan) -> Iterator[tuple[Rows, int]]:
    """Yield keys and texts of rows that have a key, and the number of the others."""
    fields, count = [*chosen.keys, *chosen.contents], len(chosen.keys)
    for arrays in batches:
        texts = [row_texts(array, item.kind) for array, item in zip(arrays, fields, strict=True)]
        keys = [joined(item) for item in zip(*texts[:count], strict=True)]
        kept = [at for at, key in enumerate(keys) if key is not None]
        missing = len(keys) - len(kept)
        if missing:
            texts = [[column[at] for at in kept] for column in texts]
        yield Rows([key for key in keys if key is not None], texts[count:]), missing


def _read_topic(request: KeyRequest, report: KeyReport, facts: Mapping[str, Any], chosen: Plan, progress: Progress) -> int:
    """Write the hashes of the records, and return the number of parts."""
    base = request.base
    kept = {name: {int(number): (start, stop) for number, (start, stop) in facts[name].items()} for name in ("ranges", "later")}
    groups = [(name == "later", group) for name, ranges in kept.items() for group in passes(windows(ranges), _PART)]
    total, done = sum(sum(map(len, group)) for _, group in groups), report.parts()
    finished = sum(sum(map(len, group)) for _, group in groups[:done])
    compares = not request.every and not request.own_key
    records = Records(chosen, request.own_key, compares, base.skips_tombstones, request.unit)
    with TopicLog(base.source) as log:
        for part, (later, group) in enumerate(groups):
            if part < done:
                continue
            records.begin()
            with Spill(report.folder / RECORDS, part, facts["buckets"], len(chosen.contents)) as spill:
                for window in group:
                    handle = _handler(records, spill, window, later, _declared(request, report.folder / DECLARED, window))
                    records.read.lost += log.records(window, base.isolation, handle)
                    finished += len(window)
                    progress(f"read {finished:,} of {total:,} offsets")
            report.save_part(part, records.counted(), records.unreadable)
    return len(groups)


def _declared(request: KeyRequest, path: Path, window: Window) -> Any:
    """Return which offsets of a window need no row; None: all of them do."""
    return None if request.base.declared is None else counted(path, [window]).of(0) > 0


def _handler(records: Records, spill: Spill, window: Window, later: bool, declared: Any) -> Callable[[Sequence[Any], Any], None]:
    def handle(messages: Sequence[Any], offsets: Any) -> None:
        if declared is not None:
            skipped = declared[offsets - window.start]
            records.read.declared += int(skipped.sum())
            messages = [messages[at] for at in np.flatnonzero(~skipped).tolist()]
            offsets = offsets[~skipped]
        spill.add(records.rows(messages, offsets.tolist(), window.partition, later), window.partition, later)

    return handle
