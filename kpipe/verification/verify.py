"""Verify completeness: the ledger's sums, and the table recounted against them (design.md, rule 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from kpipe.batch.batch import SETTLED, Counts, total
from kpipe.ledger.ledger import ADOPTED, LOST, SKIPPED, Ledger, check_disjoint
from kpipe.ledger.tail import ACCEPTED, CUT
from kpipe.offsets import Overlap, Range, RangeSet, union
from kpipe.topics import Part, PartitionId, folded, in_order, part
from kpipe.verification.clearing import standing
from kpipe.verification.commit_order import reappeared
from kpipe.verification.recount import Entry, Holding, Keeping, Recount, TableRecount

__all__ = ["Audit", "Entry", "Holding", "Keeping", "Recount", "TableRecount", "audit"]


@dataclass(frozen=True)
class Audit:
    """The result of a verification.

    Attributes:
        counts: sums over all committed ranges.
        span: offsets in all committed ranges.
        partitions: the same by partition, with the number of ranges and the rows found.
        problems: differences, one sentence each; empty if everything adds up.
        lost: lost offsets by partition, as text; not part of any range or count. They were deleted from Kafka, or
            claimed by a batch whose rows are not committed (kpipe/ingest/at_most_once.py).
        skipped: skipped offsets by partition, as text: skipped on purpose, or after a permanent failure. A backfill
            can read them.
        adopted: offsets by partition, as text, that another loader has read (kpipe/adoption/); not part of any range or count.
        adopted_from: source of that loader's position; empty: not known.
        repeated: offsets that were read more than once, or will be, by partition, as text; each reading is counted. With
            `delivery: at_least_once`, or on an operator's demand.
        given_up: ranges of batches that were abandoned after requests had been sent: not verified.
        replaced: ranges whose rows may be of records that the topic has lost, by partition, as text: the log was cut and had
            grown again, and an operator has decided where to continue. Not verified.
        unproven: ranges with offsets in common of which only the numbers of rows were compared, as text, with the table if there
            are several: a lost row beside a doubled one would not be found.
        targets: rows of each further table, according to the ledger and as found; empty with one table. With tables by topic:
            of each table.
        set_aside: dead letters of records; the other dead letters are output of a program.
    """

    span: int
    counts: Counts
    partitions: Mapping[str, Mapping[str, Any]]
    problems: Sequence[str]
    lost: Sequence[str] = ()
    skipped: Sequence[str] = ()
    adopted: Sequence[str] = ()
    adopted_from: str = ""
    repeated: Sequence[str] = ()
    given_up: Sequence[str] = ()
    replaced: Sequence[str] = ()
    unproven: Sequence[str] = ()
    targets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    set_aside: int = 0

    @property
    def ok(self) -> bool:
        """True if everything adds up."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `kpipe verify --json` prints."""
        names = ("rows", "deletes", "dead_letters", "filtered", "gaps", *SETTLED)
        return {
            "ok": self.ok,
            "span": self.span,
            **{name: getattr(self.counts, name) for name in names},
            "partitions": dict(self.partitions),
            **({"targets": {name: dict(rows) for name, rows in self.targets.items()}} if self.targets else {}),
            **{name: list(getattr(self, name)) for name in ("lost", "skipped", "repeated", "problems")},
            **{name: list(found) for name in ("given_up", "adopted", "replaced", "unproven") if (found := getattr(self, name))},
            **({"adopted_from": self.adopted_from} if self.adopted_from else {}),
        }


def audit(ledger: Ledger, history: Sequence[Entry], found: Recount, multi_topic: bool = False) -> Audit:
    """Compare the ledger with itself, the history with the ledger, and each table with the history.

    Args:
        ledger: the ledger now.
        history: every committed range.
        found: the recount of the destination; without any table, the history must not have rows either.
        multi_topic: whether the pipeline has several topics. Partitions are then compared one by one, unless rows of a number
            do not name their topic; all partitions of that number are then compared together.
    """
    problems: list[str] = []
    history = standing(history)
    by_source: dict[PartitionId, list[Entry]] = {source: [] for source in ledger.sources()}
    for entry in history:
        by_source.setdefault(entry.source, []).append(entry)
    for source, entries in sorted(by_source.items()):
        problems += [*_cut(ledger, source), *_ranges(ledger, source, entries), *reappeared(source, entries)]
    partitions: dict[str, dict[str, Any]] = {}
    by_part: dict[Part, list[PartitionId]] = {}
    for source in by_source:
        by_part.setdefault(part(source, multi_topic), []).append(source)
    tables = found.tables or {"": TableRecount(expected_rows=_written(by_part, by_source))}
    listed = list(tables.values()) if found.by_topic else [next(iter(tables.values()))]
    counted = (_summed(item.rows for item in listed), found.dead_letters, _summed(item.expected_rows for item in listed))
    rows, dead, expected = (dict(folded(values, multi_topic)) for values in counted)
    for name in sorted({*by_part, *rows, *dead, *expected}, key=in_order):
        sources = by_part.get(name, [])
        mine = [entry for source in sources for entry in by_source[source]]
        counts = total(entry.counts for entry in mine)
        if dead.get(name, 0) != counts.dead_letters:
            problems.append(f"partition {name}: expected {counts.dead_letters} dead letters, found {dead.get(name, 0)}")
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
    unproven: list[str] = []
    for name, item in tables.items():
        of_table = f"table {name}: " if len(tables) > 1 or (found.by_topic and name) else ""
        problems += [f"{of_table}{text}" for text in _table(item, multi_topic)]
        unproven += [f"{of_table}{text}" for text in item.unproven]
    return Audit(
        span=sum(len(entry.range) for entry in history if not entry.reread),
        counts=total(entry.counts for entry in history),
        partitions=partitions,
        problems=problems,
        lost=[f"{source} {gone}" for source in ledger.sources() for gone in _unread(ledger, source, LOST)],
        skipped=[f"{source} {left}" for source in ledger.sources() for left in _unread(ledger, source, SKIPPED)],
        adopted=[f"{source} {left}" for source in ledger.sources() for left in _unread(ledger, source, ADOPTED)],
        repeated=[f"{source} {again}" for source, mine in sorted(by_source.items()) for again in _repeated(ledger, source, mine)],
        given_up=[f"{entry.source} {entry.range}, batch {entry.batch}" for entry in history if entry.given_up],
        replaced=[
            f"{lane.source} {Range(lane.start, lane.next)}"
            for lane in ledger.lanes.values()
            if lane.tail is not None and lane.tail.state == ACCEPTED
        ],
        unproven=unproven,
        targets={
            name: {"rows": sum(item.expected_rows.values()), "rows_found": sum(item.rows.values())}
            for name, item in list(tables.items())[0 if found.by_topic and found.tables else 1 :]
        },
        set_aside=sum(e.counts.set_aside_before if e.counts.given else e.counts.dead_letters for e in history),
    )


def _summed(tables: Iterable[Mapping[Part, int]]) -> Mapping[Part, int]:
    """Return the rows of all tables by partition."""
    sums: dict[Part, int] = {}
    for rows in tables:
        for name, count in rows.items():
            sums[name] = sums.get(name, 0) + count
    return sums


def _written(
    by_part: Mapping[Part, Sequence[PartitionId]], by_source: Mapping[PartitionId, Sequence[Entry]]
) -> Mapping[Part, int]:
    """Return the rows of the history by partition."""
    return {name: total(e.counts for source in mine for e in by_source[source]).rows for name, mine in by_part.items()}


def _table(found: TableRecount, multi_topic: bool) -> list[str]:
    """Compare a table with the ledgers of the pipelines that write it; `multi_topic`: see `audit`."""
    rows, expected, repeated = (folded(values, multi_topic) for values in (found.rows, found.expected_rows, found.duplicates))
    twice = sorted((name for name, number in repeated.items() if number), key=in_order)
    return [
        *(_rows(rows, expected) or (_rows_by_name(found.keeping) if found.keeping is not None else [])),
        *(f"partition {name}: {repeated[name]} rows repeat an offset" for name in twice),
        *(_kept(found.keeping) if found.keeping is not None else []),
        *(
            f"{entry.source} {entry.range}: {count} rows found, {entry.counts.rows} committed by batch {entry.batch}"
            for entry, count in found.entries
        ),
        *(
            f"{entry.source} {entry.range}: the {entry.counts.rows} rows found are not those of batch {entry.batch}"
            for entry in found.exchanged
        ),
        *found.problems,
    ]


def _rows(rows: Mapping[Part, int], expected: Mapping[Part, int]) -> list[str]:
    """Compare rows of the table with the ledgers; if rows of a number lack their topic, all rows of that number together."""
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
            problems.append(f"partition {name}{all_of}: expected {said} rows, found {held} in the table")
    return problems


def _rows_by_name(keeping: Keeping) -> list[str]:
    """Compare the rows of a table with a key as they name their partition, where their numbers add up.

    Only the commits distinguish a lost row of one topic from a surplus row of another. Rows without a topic may get one later, by
    the table's default or by hand: then all rows of their number are compared together.
    """
    problems = []
    names = {*keeping.expected, *keeping.found}
    off = {name: keeping.found.get(name, Holding()).less(keeping.expected.get(name, Holding())) for name in names}
    for name in sorted(names, key=in_order):
        number = in_order(name)[1]
        if off.get(number, Holding()).rows == 0:
            if off[name].rows:
                held = keeping.found.get(name, Holding()).rows
                problems.append(f"partition {name}: expected {held - off[name].rows} rows, found {held} in the table")
        elif name == number and (more := sum(item.offsets for other, item in off.items() if in_order(other)[1] == number)):
            problems.append(
                f"partition {number}: the rows in the table are not those of the commits (sum of their offsets: {more:+d})"
            )
    return problems


def _unread(ledger: Ledger, source: PartitionId, kind: str) -> Sequence[Range]:
    try:
        return ledger.unread(source, kind).ranges
    except Overlap:  # already among the problems
        return ()


def _kept(keeping: Keeping) -> list[str]:
    """Compare a table with a key with its commits; the numbers of rows are compared before."""
    problems = []
    for number in sorted(set(keeping.expected) | set(keeping.found), key=in_order):
        expected, found = keeping.expected.get(number, Holding()), keeping.found.get(number, Holding())
        if expected.rows == found.rows and expected.offsets != found.offsets:
            problems.append(
                f"partition {number}: the {found.rows} rows in the table are not those of the commits"
                f" (sum of their offsets: expected {expected.offsets}, found {found.offsets})"
            )
    if keeping.missing:
        problems.append(f"{keeping.missing} rows were missing in the table at its first commit with a key")
    if keeping.repeated_keys:
        problems.append(f"{keeping.repeated_keys} keys are in the table more than once")
    if keeping.unbalanced:
        problems.append(f"the number of rows differs by {keeping.unbalanced:+d} from the inserts and deletes of all batches")
    return problems


def _ranges(ledger: Ledger, source: PartitionId, entries: Sequence[Entry]) -> list[str]:
    problems = []
    for entry in entries:
        off = 0 if entry.reread else entry.counts.unaccounted(len(entry.range))
        if off:
            problems.append(f"{source} {entry.range}: {off} offsets of batch {entry.batch} are not accounted for")
        if entry.counts.unsettled:
            problems.append(f"{source} {entry.range}: batch {entry.batch}: {entry.counts.unsettled} writes have no outcome")
    try:
        check_disjoint(ledger.of(source))
    except Overlap as error:
        return [*problems, f"the ledger contradicts itself: {error}"]
    problems += [f"{source} {hole}: the ledger has no lane for these offsets" for hole in _holes(ledger, source)]
    try:
        done, loose = _done(entries)
    except Overlap as error:
        return [*problems, f"{source}: committed twice: {error}"]
    lanes = ledger.committed(source)  # rows that were committed before the ledger may be missing in it
    if _without(done, lanes) or _without(lanes, union([*done.ranges, *loose.ranges])):
        words = [" ".join(map(str, ranges)) or "nothing" for ranges in (lanes, union([*done.ranges, *loose.ranges]))]
        problems.append(f"{source}: expected {words[1]} from the history, found {words[0]} in the ledger")
    return problems


def _cut(ledger: Ledger, source: PartitionId) -> list[str]:
    """Return the problem of each lane below which a read has found another log."""
    return [
        f"{source} {Range(lane.start, lane.next)}: the log was cut and has grown again: the rows may be of records that the topic"
        " has lost"
        for lane in ledger.of(source)
        if lane.tail is not None and lane.tail.state == CUT
    ]


def _holes(ledger: Ledger, source: PartitionId) -> list[Range]:
    """Return the offsets between two lanes.

    Every decision leaves a lane, of some kind. Only `retire` removes lanes, and then no lane of the partition is open.
    """
    lanes = ledger.of(source)
    if not any(lane.open for lane in lanes):
        return []
    return [Range(a.end, b.start) for a, b in pairwise(lanes) if a.end is not None and a.end < b.start]


def _done(entries: Sequence[Entry]) -> tuple[RangeSet, RangeSet]:
    """Return the offsets that were read according to the history: strictly, and with `delivery: at_least_once`.

    Strictly read offsets that are to be read again are left out. The others may be missing in the ledger at any time.

    Raises:
        Overlap: an offset was read twice without an operator's demand.
    """
    if not any(entry.reread for entry in entries):
        return RangeSet.of(e.range for e in entries if not e.loose), union(e.range for e in entries if e.loose)
    done = loose = RangeSet()
    for entry in entries:
        if entry.reread:
            done = done.without(entry.range)
        elif entry.loose:
            loose = union([*loose.ranges, entry.range])
        else:
            done = done.add(entry.range)
    return done, loose


def _repeated(ledger: Ledger, source: PartitionId, entries: Sequence[Entry]) -> Sequence[Range]:
    """Return the ranges that were read more than once, or will be.

    With `delivery: at_least_once`, those that were read again after a failure; otherwise those that an operator demanded again.
    Cleared rows are not in the table any more.
    """
    loose = union(entry.range for entry in entries if entry.loose)
    demanded = union(entry.range for entry in entries if entry.reread and not entry.cleared and not entry.given_up)
    if not loose and not demanded:
        return ()
    ranges = sorted(entry.range for entry in entries if not entry.reread)
    twice, reached = [], 0
    for found in ranges:
        twice.append(Range(found.start, max(found.start, min(found.end, reached))))
        reached = max(reached, found.end)
    expected = union([*loose.ranges, *demanded.ranges]) if any(lane.open for lane in ledger.of(source)) else loose
    return union([*twice, *_without(expected, union(_merged(ledger, source)))]).ranges


def _without(whole: RangeSet, gone: RangeSet) -> list[Range]:
    return [left for found in whole for left in gone.missing(found)]


def _merged(ledger: Ledger, source: PartitionId) -> Sequence[Range]:
    try:
        return ledger.committed(source).ranges
    except Overlap:  # already among the problems
        return ()
