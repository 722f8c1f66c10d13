"""The proof of completeness: the ledger's own sums, and the table recounted against them (design.md, rule 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

from kpipe.batch.batch import SETTLED, Counts, total
from kpipe.ledger.ledger import LOST, SKIPPED, Ledger, check_disjoint
from kpipe.offsets import Overlap, Range, RangeSet, union
from kpipe.topics import Part, PartitionId, folded, in_order, part
from kpipe.verification.clearing import standing
from kpipe.verification.commit_order import reappeared
from kpipe.verification.recount import Entry, Holding, Keeping, Recount

__all__ = ["Audit", "Entry", "Holding", "Keeping", "Recount", "audit"]


@dataclass(frozen=True)
class Audit:
    """The result of a verification.

    Attributes:
        counts: sums over all committed ranges.
        span: offsets in all committed ranges.
        partitions: the same by partition, with the number of ranges and the rows found.
        problems: what does not add up, one sentence each; empty means proven.
        lost: what the ledger has as lost, with the partition, in words; it is in no range and no count. Gone from Kafka, or
            claimed by a batch whose rows are not there, or not yet (kpipe/ingest/at_most_once.py).
        skipped: what the ledger has as skipped, the same: left out on purpose, or as it failed for good. It can be read later.
        repeated: what was read more than once with `delivery: at_least_once`, or will be, with the partition, in words; each
            reading is counted.
        given_up: ranges of batches that were given up after requests had left: nothing is proven about them.
        targets: rows that the ledger says each further table holds, and rows found; empty where there is one table only.
        set_aside: dead letters that stand for an offset; the others are output of a program that was given their record.
    """

    span: int
    counts: Counts
    partitions: Mapping[str, Mapping[str, Any]]
    problems: Sequence[str]
    lost: Sequence[str] = ()
    skipped: Sequence[str] = ()
    repeated: Sequence[str] = ()
    given_up: Sequence[str] = ()
    targets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    set_aside: int = 0

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
            **({"targets": {name: dict(rows) for name, rows in self.targets.items()}} if self.targets else {}),
            **{name: list(getattr(self, name)) for name in ("lost", "skipped", "repeated", "problems")},
            **({"given_up": list(self.given_up)} if self.given_up else {}),
        }


def audit(ledger: Ledger, history: Sequence[Entry], found: Recount, several: bool = False) -> Audit:
    """Ledger against itself, history against ledger, table against history.

    Args:
        ledger: lanes now.
        history: every committed range.
        found: the destination recounted.
        several: whether the pipeline has several topics. Partitions are then compared one by one, unless rows of that number
            do not name their topic; otherwise those of one number together.
    """
    problems: list[str] = []
    history = standing(history)
    by_source: dict[PartitionId, list[Entry]] = {source: [] for source in ledger.sources()}
    for entry in history:
        by_source.setdefault(entry.source, []).append(entry)
    for source, entries in sorted(by_source.items()):
        problems += [*_ranges(ledger, source, entries), *reappeared(source, entries)]
    partitions: dict[str, dict[str, Any]] = {}
    by_part: dict[Part, list[PartitionId]] = {}
    for source in by_source:
        by_part.setdefault(part(source, several), []).append(source)
    rows, dead, expected, repeated = (
        dict(folded(values, several)) for values in (found.rows, found.dead_letters, found.expected_rows, found.duplicates)
    )
    for name in sorted({*by_part, *rows, *dead, *expected}, key=in_order):
        sources = by_part.get(name, [])
        mine = [entry for source in sources for entry in by_source[source]]
        counts = total(entry.counts for entry in mine)
        expected.setdefault(name, 0 if found.keeping or found.expected_rows or found.also else counts.rows)
        if dead.get(name, 0) != counts.dead_letters:
            problems.append(f"partition {name}: {dead.get(name, 0)} dead letters are kept, the ledger says {counts.dead_letters}")
        again = any((entry.reread and not entry.cleared) or entry.loose for entry in mine) or _read_anew(ledger, sources)
        if repeated.get(name) and not again:
            problems.append(f"partition {name}: {repeated[name]} rows repeat an offset")
        partitions[str(name)] = {
            "ranges": [[r.start, r.end] for source in sources for r in _merged(ledger, source)],
            "span": sum(len(entry.range) for entry in mine if not entry.reread),
            "rows": counts.rows,
            "deletes": counts.deletes,
            "dead_letters": counts.dead_letters,
            "filtered": counts.filtered,
            "gaps": counts.gaps,
            **{name: getattr(counts, name) for name in SETTLED},
            "rows_found": rows.get(name, 0),
        }
    problems += [*_rows(rows, expected), *_held(found), *found.problems]
    problems += [f"table {name}: {text}" for name, item in found.also.items() for text in _further(item, several)]
    return Audit(
        span=sum(len(entry.range) for entry in history if not entry.reread),
        counts=total(entry.counts for entry in history),
        partitions=partitions,
        problems=problems,
        lost=[f"{source} {gone}" for source in ledger.sources() for gone in _unread(ledger, source, LOST)],
        skipped=[f"{source} {left}" for source in ledger.sources() for left in _unread(ledger, source, SKIPPED)],
        repeated=[f"{source} {again}" for source, mine in sorted(by_source.items()) for again in _repeated(ledger, source, mine)],
        given_up=[f"{entry.source} {entry.range}, batch {entry.batch}" for entry in history if entry.given_up],
        targets={
            name: {"rows": sum(item.expected_rows.values()), "rows_found": sum(item.rows.values())}
            for name, item in found.also.items()
        },
        set_aside=sum(e.counts.set_aside_before if e.counts.given else e.counts.dead_letters for e in history),
    )


def _held(found: Recount) -> list[str]:
    """What does not fit in one table, beyond the numbers of rows by partition."""
    return [
        *(_kept(found.keeping) if found.keeping is not None else []),
        *(
            f"{entry.source} {entry.range}: {count} rows found, {entry.counts.rows} committed by batch {entry.batch}"
            for entry, count in found.entries
        ),
        *(
            f"{entry.source} {entry.range}: the {entry.counts.rows} rows found are not those of batch {entry.batch}"
            for entry in found.exchanged
        ),
    ]


def _further(found: Recount, several: bool) -> list[str]:
    """A further table against what the ledger says of it."""
    rows, expected, repeated = (folded(values, several) for values in (found.rows, found.expected_rows, found.duplicates))
    twice = [
        f"partition {name}: {repeated[name]} rows repeat an offset" for name in sorted(repeated, key=in_order) if repeated[name]
    ]
    return [*_rows(rows, expected), *twice, *_held(found), *found.problems]


def _rows(rows: Mapping[Part, int], expected: Mapping[Part, int]) -> list[str]:
    """Rows of the table against what the ledgers say; where some of a number name no topic, all of that number together."""
    problems = []
    untold = {name for name in (*rows, *expected) if isinstance(name, int)}
    for name in sorted({*rows, *expected}, key=in_order):
        number = in_order(name)[1]
        if name != number and number in untold:
            continue
        same = [other for other in {*rows, *expected} if other == name or (name == number == in_order(other)[1])]
        held, said = sum(rows.get(other, 0) for other in same), sum(expected.get(other, 0) for other in same)
        if held != said:
            all_of = " of all topics together" if len(same) > 1 else ""
            problems.append(f"partition {name}{all_of}: the table holds {held} rows, the ledger says {said}")
    return problems


def _unread(ledger: Ledger, source: PartitionId, kind: str) -> Sequence[Range]:
    try:
        return ledger.unread(source, kind).ranges
    except Overlap:  # said among the problems
        return ()


def _kept(keeping: Keeping) -> list[str]:
    """A table with a key against what its commits have left: the numbers of rows are compared before."""
    problems = []
    for number in sorted(set(keeping.expected) | set(keeping.found), key=in_order):
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
    problems += [
        f"{source} {hole}: the ledger says neither that it was read nor that it was left out" for hole in _holes(ledger, source)
    ]
    try:
        done, loose = _done(entries)
    except Overlap as error:
        return [*problems, f"{source}: committed twice: {error}"]
    lanes = ledger.committed(source)  # what landed loosely may be there, or not yet
    if _without(done, lanes) or _without(lanes, union([*done, *loose])):
        words = [" ".join(map(str, ranges)) or "nothing" for ranges in (lanes, union([*done, *loose]))]
        problems.append(f"{source}: the ledger stands at {words[0]}, its history holds {words[1]}")
    return problems


def _holes(ledger: Ledger, source: PartitionId) -> list[Range]:
    """Offsets between two lanes that no lane has.

    A decision about offsets leaves a lane behind, whatever its kind. Only `retire` takes lanes away, and it leaves none open.
    """
    lanes = ledger.of(source)
    if not any(lane.open for lane in lanes):
        return []
    return [Range(a.end, b.start) for a, b in pairwise(lanes) if a.end is not None and a.end < b.start]


def _done(entries: Sequence[Entry]) -> tuple[RangeSet, RangeSet]:
    """What the history says has been read: once, and loosely. What was read once and is to be read again counts as if it had not
    been; what landed loosely may be in the lanes from any time on.

    Raises:
        Overlap: an offset was read twice, and nobody had asked for it.
    """
    if not any(entry.reread for entry in entries):
        return RangeSet.of(e.range for e in entries if not e.loose), union(e.range for e in entries if e.loose)
    done = loose = RangeSet()
    for entry in entries:
        if entry.reread:
            done = done.without(entry.range)
        elif entry.loose:
            loose = union([*loose, entry.range])
        else:
            done = done.add(entry.range)
    return done, loose


def _repeated(ledger: Ledger, source: PartitionId, entries: Sequence[Entry]) -> Sequence[Range]:
    """What was read loosely and then once more, or will be."""
    loose = union(entry.range for entry in entries if entry.loose)
    if not loose:
        return ()
    ranges = sorted(entry.range for entry in entries if not entry.reread)
    twice, reached = [], 0
    for found in ranges:
        twice.append(Range(found.start, max(found.start, min(found.end, reached))))
        reached = max(reached, found.end)
    return union([*twice, *_without(loose, union(_merged(ledger, source)))]).ranges


def _without(whole: RangeSet, gone: RangeSet) -> list[Range]:
    return [left for found in whole for left in gone.missing(found)]


def _read_anew(ledger: Ledger, sources: Sequence[PartitionId]) -> bool:
    """Whether the same offsets were read from a topic and from another one that took its name; rows cannot tell them apart.

    Their numbers, which are compared anyway, can.
    """
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
