"""Compare the rows in memory with the committed ranges, by the rows' offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kpipe.testing.memory_store import Row
from kpipe.topics import Part, part
from kpipe.verification.recount import Entry

__all__ = ["check_ranges", "named_rows", "part_of"]


def part_of(row: Row) -> Part:
    """Return the partition of a row or a dead letter, from files of a worker or of the fake stager."""
    number = int(row["partition"] if "partition" in row else row["_kafka_partition"])
    topic = row.get("topic") if "partition" in row else row.get("_kafka_topic")
    return f"{topic}:{number}" if topic else number


def named_rows(rows: Sequence[Row], entries: Sequence[Entry]) -> Sequence[Row]:
    """Return the rows with their topic. Those that name none are of the only topic that one pipeline read at first.

    Args:
        rows: of the table.
        entries: ranges of one pipeline in order of commit.
    """
    written = [entry for entry in entries if entry.counts.rows]
    unnamed = Counter(int(row["_kafka_partition"]) for row in rows if not row.get("_kafka_topic"))
    if not written or not unnamed:
        return rows
    topic = written[0].source.topic
    later = min((at for at, entry in enumerate(written) if entry.source.topic != topic), default=len(written))
    early: Counter[int] = Counter()
    for entry in written[:later]:
        early[entry.source.partition] += entry.counts.rows
    if any(count > early[number] for number, count in unnamed.items()):
        return rows
    return [row if row.get("_kafka_topic") else {**row, "_kafka_topic": topic.name} for row in rows]


def check_ranges(
    rows: Sequence[Row], entries: Sequence[Entry], multi_topic: bool
) -> tuple[list[tuple[Entry, int]], Counter[Part], list[str]]:
    """Return ranges with a wrong number of rows, rows that repeat an offset that was read once, and other problems.

    See resources/destinations/sql/ledger/range_check.py.
    """
    held = Counter((part_of(row) if multi_topic else int(row["_kafka_partition"]), row.get("_kafka_offset")) for row in rows)
    unplaced = {number for number, offset in held if offset is None or (multi_topic and isinstance(number, int))}
    wrong: list[tuple[Entry, int]] = []
    repeated: Counter[Part] = Counter()
    problems: list[str] = []
    for group in _groups([entry for entry in entries if not entry.reread]):
        first, number = group[0], part(group[0].source, multi_topic)
        counts = {
            at: n for (where, at), n in held.items() if where == number and any(at in e.range for e in group if at is not None)
        }
        found, written = sum(counts.values()), sum(entry.counts.rows for entry in group)
        again = sum(max(0, n - sum(at in e.range for e in group)) for at, n in counts.items() if at is not None)
        one_each, loose = not any(entry.counts.given for entry in group), {number, first.source.partition} & unplaced
        few = found != written and loose and (len(group) > 1 or found == 0 or not one_each)
        if found > written or (found != written and not few):
            if len(group) == 1:
                wrong.append((first, found))
            else:
                problems.append(f"{first.source}: {found} rows found, {written} committed by {len(group)} batches")
        if one_each and again:
            repeated[number] += again
    return wrong, repeated, problems


def _groups(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Yield ranges that overlap together, and all others alone."""
    group: list[Entry] = []
    for entry in sorted(entries, key=lambda entry: (entry.source, entry.range.start)):
        if group and entry.source == group[-1].source and entry.range.start < max(one.range.end for one in group):
            group.append(entry)
            continue
        if group:
            yield group
        group = [entry]
    if group:
        yield group
