"""Keep the balance of a table with a key in the records of its pipelines (row_balance.py keeps it in one table).

Each record has the change by the commits of its pipeline, so the balance of the table is the sum over all records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from typing import Any

from kpipe.topics import Part, in_order
from kpipe.verification.verify import Holding
from resources.destinations.lakehouse.ledger_file import Item, Record
from resources.destinations.sql.ledger.row_balance import NOWHERE, named
from resources.destinations.staged_file_check import added

__all__ = ["Balance", "added", "moved", "total", "written"]

#: Topic, partition, rows and sum of offsets, each once.
Balance = tuple[tuple[str, int, int, int], ...]


def moved(old: Balance | None, delta: Mapping[Part, Holding]) -> Balance:
    """Return the balance after a commit that changed the rows by `delta`."""
    held = {(topic, number): (rows, offsets) for topic, number, rows, offsets in old or ()}
    for name, item in delta.items():
        rows, offsets = held.get(in_order(name), (0, 0))
        held[in_order(name)] = rows + item.rows, offsets + item.offsets
    return tuple((*place, *held[place]) for place in sorted(held))


def total(records: Iterable[Record]) -> list[tuple[str, int, int, int, int]]:
    """Return the rows of `kpipe_holdings` without the table: the sum over all records; none if the table has no key."""
    held: dict[tuple[str, int], tuple[int, int]] = {}
    baseline = 0
    for record in records:
        for topic, number, rows, offsets in record.balance or ():
            before = held.get((topic, number), (0, 0))
            held[topic, number] = before[0] + rows, before[1] + offsets
        if record.balance is not None:
            held.setdefault(("", NOWHERE), (0, 0))
        baseline += record.baseline
    return [(*place, *held[place], baseline if place == ("", NOWHERE) else 0) for place in sorted(held)]


def written(histories: Iterable[Iterable[Item]]) -> tuple[Mapping[Part, int], Mapping[Part, int]]:
    """Return the rows that batches have inserted and not deleted, and the sums of their offsets where all ranges have one.

    Args:
        histories: the commits of each pipeline.
    """
    rows, sums, unknown = Counter[Part](), Counter[Part](), set[Part]()
    for item in (item for history in histories for item in history):
        for row, mark in zip(item["ranges"], chain(item.get("marks", ()), repeat(None)), strict=False):
            name = named(row["topic"], row["batch_source_partition_id"])
            rows[name] += row["inserted"] - row["deleted"]
            offsets = mark[1] if mark is not None else _sum_of(row)
            if offsets is None:
                unknown.add(name)
            else:
                sums[name] += offsets
    return rows, {name: sums[name] for name in rows if name not in unknown}


def _sum_of(row: Mapping[str, Any]) -> int | None:
    """Return the sum of the offsets of a range's rows, if it follows from the counts as of `Mark.follows`."""
    if row["rows"] == 0:
        return 0
    start, end = row["batch_earliest_offset"], row["batch_latest_offset"]
    full = not row.get("given") and row["rows"] == end - start
    return int(row["rows"] * (start + end - 1) // 2) if full else None
