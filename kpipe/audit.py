"""The proof of completeness: the ledger's own sums, and the table recounted against them (design.md, rule 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from kpipe.batch import SETTLED, Counts, total
from kpipe.ledger import LOST, Ledger, check_disjoint
from kpipe.offsets import Overlap, Range, RangeSet
from kpipe.source import PartitionId

__all__ = ["Audit", "Entry", "Holding", "Keeping", "Recount", "audit"]


@dataclass(frozen=True)
class Entry:
    """One committed range in the ledger's history.

    Attributes:
        batch: id of the batch.
        source: the partition.
        range: the offsets.
        counts: what became of them.
        reread: nothing was read: the offsets, read before, are to be read again on somebody's demand.
    """

    batch: str
    source: PartitionId
    range: Range
    counts: Counts
    reread: bool = False


@dataclass(frozen=True)
class Holding:
    """Rows of one partition in a table, and the sum of their offsets (NULL counts as 0)."""

    rows: int = 0
    offsets: int = 0


@dataclass(frozen=True)
class Keeping:
    """A table that is written with a key: what its commits have left in it, and what it holds.

    Attributes:
        expected: as the commits have left it, by partition number.
        found: counted afresh.
        repeated_keys: keys that more than one row has.
        unbalanced: rows that were left, less those that were there before any commit, less all that batches have inserted, plus
            all that they have deleted; 0 when the counters of the ranges add up.
    """

    expected: Mapping[int, Holding]
    found: Mapping[int, Holding]
    repeated_keys: int = 0
    unbalanced: int = 0


@dataclass(frozen=True)
class Recount:
    """What the destination really holds, counted afresh.

    Attributes:
        rows: of the table, by partition number.
        dead_letters: by partition number.
        duplicates: rows that share topic, partition and offset with another, by partition number; always empty where
            rows do not carry an offset.
        entries: rows by (batch, partition, start) whose range does not hold as many as the ledger says: found, expected.
        expected_rows: what the ledgers of all pipelines that write this table say together, by partition number.
        keeping: where the table is written with a key; ranges then say nothing about which rows are there.
    """

    rows: Mapping[int, int] = field(default_factory=dict)
    dead_letters: Mapping[int, int] = field(default_factory=dict)
    duplicates: Mapping[int, int] = field(default_factory=dict)
    entries: Sequence[tuple[Entry, int]] = ()
    expected_rows: Mapping[int, int] = field(default_factory=dict)
    keeping: Keeping | None = None


@dataclass(frozen=True)
class Audit:
    """The result of a verification.

    Attributes:
        counts: sums over all committed ranges.
        span: offsets in all committed ranges.
        partitions: the same by partition number, with the number of ranges and the rows found.
        problems: what does not add up, one sentence each; empty means proven.
        lost: what the ledger has as lost, with the partition, in words; it is in no range and no count. Gone from Kafka, or
            claimed by a batch whose rows are not there, or not yet (kpipe/claims.py).
    """

    span: int
    counts: Counts
    partitions: Mapping[str, Mapping[str, Any]]
    problems: Sequence[str]
    lost: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Whether everything adds up."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """The object that `kpipe verify --json` prints."""
        names = ("rows", "deletes", "dead_letters", "filtered", "gaps", *SETTLED)
        return {
            "ok": self.ok,
            "span": self.span,
            **{name: getattr(self.counts, name) for name in names},
            "partitions": dict(self.partitions),
            "lost": list(self.lost),
            "problems": list(self.problems),
        }


def audit(ledger: Ledger, history: Sequence[Entry], found: Recount) -> Audit:
    """Ledger against itself, history against ledger, table against history.

    Args:
        ledger: lanes now.
        history: every committed range.
        found: the destination recounted.
    """
    problems: list[str] = []
    by_source: dict[PartitionId, list[Entry]] = {source: [] for source in ledger.sources()}
    for entry in history:
        by_source.setdefault(entry.source, []).append(entry)
    for source, entries in sorted(by_source.items()):
        problems += _ranges(ledger, source, entries)
    partitions: dict[str, dict[str, Any]] = {}
    numbers = {source.partition for source in by_source} | set(found.rows) | set(found.dead_letters) | set(found.expected_rows)
    for number in sorted(numbers):
        mine = [entry for source, entries in by_source.items() if source.partition == number for entry in entries]
        counts = total(entry.counts for entry in mine)
        rows, dead = found.rows.get(number, 0), found.dead_letters.get(number, 0)
        expected = found.expected_rows.get(number, counts.rows if found.keeping is None else 0)
        if rows != expected:
            problems.append(f"partition {number}: the table holds {rows} rows, the ledger says {expected}")
        if dead != counts.dead_letters:
            problems.append(f"partition {number}: {dead} dead letters are kept, the ledger says {counts.dead_letters}")
        again = any(entry.reread for entry in mine) or _read_anew(ledger, number)
        if found.duplicates.get(number) and not again:
            problems.append(f"partition {number}: {found.duplicates[number]} rows repeat an offset")
        partitions[str(number)] = {
            "ranges": [[r.start, r.end] for source in by_source if source.partition == number for r in _merged(ledger, source)],
            "span": sum(len(entry.range) for entry in mine if not entry.reread),
            "rows": counts.rows,
            "deletes": counts.deletes,
            "dead_letters": counts.dead_letters,
            "filtered": counts.filtered,
            "gaps": counts.gaps,
            **{name: getattr(counts, name) for name in SETTLED},
            "rows_found": rows,
        }
    problems += _kept(found.keeping) if found.keeping is not None else []
    problems += [
        f"{entry.source} {entry.range}: {count} rows found, {entry.counts.rows} committed by batch {entry.batch}"
        for entry, count in found.entries
    ]
    return Audit(
        span=sum(len(entry.range) for entry in history if not entry.reread),
        counts=total(entry.counts for entry in history),
        partitions=partitions,
        problems=problems,
        lost=[f"{source} {gone}" for source in ledger.sources() for gone in _lost(ledger, source)],
    )


def _lost(ledger: Ledger, source: PartitionId) -> Sequence[Range]:
    try:
        return ledger.unread(source, LOST).ranges
    except Overlap:  # said among the problems
        return ()


def _kept(keeping: Keeping) -> list[str]:
    """A table with a key against what its commits have left: the numbers of rows are compared before."""
    problems = []
    for number in sorted(set(keeping.expected) | set(keeping.found)):
        expected, found = keeping.expected.get(number, Holding()), keeping.found.get(number, Holding())
        if expected.rows == found.rows and expected.offsets != found.offsets:
            problems.append(
                f"partition {number}: the {found.rows} rows in the table are not those that were left there"
                f" (their offsets sum up to {found.offsets}, not to {expected.offsets})"
            )
    if keeping.repeated_keys:
        problems.append(f"{keeping.repeated_keys} keys are in the table more than once")
    if keeping.unbalanced:
        problems.append(
            f"the table was left with {keeping.unbalanced:+d} rows beyond those that batches inserted and did not delete"
        )
    return problems


def _ranges(ledger: Ledger, source: PartitionId, entries: Sequence[Entry]) -> list[str]:
    problems = []
    for entry in entries:
        off = 0 if entry.reread else entry.counts.unaccounted(len(entry.range))
        if off:
            problems.append(f"{source} {entry.range}: {off} offsets of batch {entry.batch} are not accounted for")
        if entry.counts.unsettled:
            problems.append(
                f"{source} {entry.range}: batch {entry.batch} leaves open what became of {entry.counts.unsettled} writes"
            )
    try:
        check_disjoint(ledger.of(source))
    except Overlap as error:
        return [*problems, f"the ledger contradicts itself: {error}"]
    try:
        done = _done(entries)
    except Overlap as error:
        return [*problems, f"{source}: committed twice: {error}"]
    lanes = ledger.committed(source)
    if done != lanes:
        words = [" ".join(map(str, ranges)) or "nothing" for ranges in (lanes, done)]
        problems.append(f"{source}: the ledger stands at {words[0]}, its history holds {words[1]}")
    return problems


def _done(entries: Sequence[Entry]) -> RangeSet:
    """What the history says has been read. What is to be read again counts from then on as if it had not been.

    Raises:
        Overlap: an offset was read twice, and nobody had asked for it.
    """
    if not any(entry.reread for entry in entries):
        return RangeSet.of(entry.range for entry in entries)
    done = RangeSet()
    for entry in entries:
        done = done.without(entry.range) if entry.reread else done.add(entry.range)
    return done


def _read_anew(ledger: Ledger, number: int) -> bool:
    """Whether the same offsets were read from a topic and from another one that took its name; rows cannot tell them apart.

    Their numbers, which are compared anyway, can.
    """
    sources = [source for source in ledger.sources() if source.partition == number]
    return any(
        a.topic.name == b.topic.name and x.overlaps(y)
        for a, b in combinations(sources, 2)
        for x in _merged(ledger, a)
        for y in _merged(ledger, b)
    )


def _merged(ledger: Ledger, source: PartitionId) -> Sequence[Range]:
    try:
        return ledger.committed(source).ranges
    except Overlap:  # said among the problems
        return ()
