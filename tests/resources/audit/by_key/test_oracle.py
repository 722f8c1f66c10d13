"""Audits by key of generated topics and tables: each key has the outcome that an oracle finds, and no other."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resources.audit.by_key.run import run
from tests.resources.audit.by_key.fake_log import Record, outcomes, parquet, proofs, request, serve

KEYS, VALUES = st.integers(0, 5), st.sampled_from([None, 1, 1, 2])
#: Key, value (None: a tombstone), and whether the record goes to the partition of its key.
WRITES = st.lists(st.tuples(KEYS, VALUES, st.sampled_from([True] * 9 + [False])), max_size=25)
#: Whether compaction removes the record at this offset, if the log has a newer one of the key; None: no compaction.
REMOVALS = st.none() | st.lists(st.booleans(), min_size=25, max_size=25)
FAULTS = st.lists(st.tuples(st.sampled_from(["drop", "double", "alter", "add"]), KEYS, st.integers(1, 3)), max_size=3)


#: Keys and values of the records of a partition; None: compaction has removed the record.
Part = Sequence["tuple[int, int | None] | None"]


def topic(writes: list[tuple[int, int | None, bool]]) -> list[list[tuple[int, int | None]]]:
    """Two partitions, by the parity of the key."""
    parts: list[list[tuple[int, int | None]]] = [[], []]
    for key, value, right in writes:
        parts[(key + (not right)) % 2].append((key, value))
    return parts


def damaged(rows: list[tuple[int, int | None]], faults: list[tuple[str, int, int]]) -> list[tuple[int, int | None]]:
    rows = list(rows)
    for fault, key, value in faults:
        mine = [row for row in rows if row[0] == key]
        if fault == "add":
            rows.append((key, value))
        elif mine and fault == "drop":
            rows.remove(mine[0])
        elif mine and fault == "double":
            rows.append(mine[0])
        elif mine:
            rows[rows.index(mine[0])] = (key, value)
    return rows


def compact(part: list[tuple[int, int | None]], removals: list[bool]) -> Part:
    """Remove some of the records of which the partition has a newer one of the same key."""
    newest = {key: at for at, (key, _) in enumerate(part)}
    return [None if removals[at] and newest[item[0]] > at else item for at, item in enumerate(part)]


def audited(parts: Sequence[Part], ends: list[int], rows: list[tuple[int, int | None]], every: bool, policy: str) -> Any:
    log = [
        [None if item is None else Record(item[0], None if item[1] is None else {"id": item[0], "n": item[1]}) for item in part]
        for part in parts
    ]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        serve(patch, log, policy)
        block = {"id": pa.array([key for key, _ in rows], pa.int32()), "n": pa.array([n for _, n in rows], pa.int64())}
        wanted = request(parquet(Path(name), **block), dict(enumerate(ends)), columns=("n",), every=every)
        summary, findings, _ = run(wanted, Path(name) / "report")
        assert proofs(Path(name) / "report") == [[], []]
    return summary, findings


def latest(parts: Sequence[Part], ends: list[int], rows: list[tuple[int, int | None]], compacted: bool) -> dict[int, str]:
    """The outcome of each key, one key at a time."""
    found = {}
    for key in range(6):
        newest = {}
        later = set()
        for number, part in enumerate(parts):
            for at, (other, value) in ((at, item) for at, item in enumerate(part) if item is not None):
                if other == key and at < ends[number]:
                    newest[number] = value
                elif other == key:
                    later.add(value)
        mine = [value for other, value in rows if other == key]
        has = mine[0] if mine else None  # None: no row
        if len(mine) > 1:
            found[key] = "duplicate"
        elif compacted and later and has not in later:
            found[key] = "replaced"
        elif len(set(newest.values())) > 1:
            found[key] = "newer" if has in later else "unordered"
        elif not newest:
            if mine or (compacted and later):
                found[key] = "newer" if has in later else "surplus"
        else:
            (wanted,) = set(newest.values())
            if wanted == has:
                found[key] = "absent" if has is None else "matched"
            elif has in later:
                found[key] = "newer"
            else:
                found[key] = "undeleted" if wanted is None else "missing" if has is None else "differing"
    return found


def newest_record(writes: Any, faults: Any, behind: tuple[int, int], removals: list[bool] | None) -> None:
    parts = topic(writes)
    ends = [max(0, len(part) - less) for part, less in zip(parts, behind, strict=True)]
    state = {key: value for part, end in zip(parts, ends, strict=True) for key, value in part[:end]}
    rows = damaged([(key, value) for key, value in state.items() if value is not None], faults)
    compacted = removals is not None
    kept: Sequence[Part] = parts if removals is None else [compact(part, removals) for part in parts]
    summary, findings = audited(kept, ends, rows, False, "compact" if compacted else "delete")
    expected = latest(kept, ends, rows, compacted)
    assert outcomes(summary) == Counter(expected.values())
    good = {"matched", "absent", "newer"}
    wrong = {key: name for key, name in expected.items() if name not in good}
    assert {int(item["key"]): item["outcome"].name.lower() for item in findings} == wrong
    assert summary.ok == (not wrong and any(any(part[:end]) for part, end in zip(kept, ends, strict=True)))
    if summary.ok:
        assert set(latest(parts, ends, rows, False).values()) <= good, "so is the table, by the log before compaction"


def every_record(writes: Any, faults: Any, behind: tuple[int, int]) -> None:
    parts = topic(writes)
    ends = [max(0, len(part) - less) for part, less in zip(parts, behind, strict=True)]
    wanted = Counter(item for part, end in zip(parts, ends, strict=True) for item in part[:end])
    later = Counter(item for part, end in zip(parts, ends, strict=True) for item in part[end:])
    rows = damaged(list(wanted.elements()), faults)
    summary, _ = audited(parts, ends, rows, True, "delete")
    had = Counter(rows)
    missing, surplus = wanted - had, had - wanted - later
    found = outcomes(summary)
    assert found.get("matched", 0) == (wanted & had).total()
    assert found.get("newer", 0) == (had - wanted).total() - surplus.total()
    assert found.get("missing", 0) + found.get("differing", 0) == missing.total()
    assert sum(found.get(name, 0) for name in ("surplus", "duplicate", "differing")) == surplus.total()
    assert found.get("duplicate", 0) <= sum(count for item, count in surplus.items() if wanted[item] + later[item])
    assert summary.ok == (not missing and not surplus and any(ends))


CASES = (WRITES, FAULTS, st.tuples(st.integers(0, 3), st.integers(0, 3)))
NEWEST, EVERY = given(*CASES, REMOVALS), given(*CASES)
test_the_newest_record_of_each_key = settings(max_examples=20)(NEWEST(newest_record))
test_every_record = settings(max_examples=10)(EVERY(every_record))
test_the_newest_record_of_each_key_at_length = pytest.mark.chaos(settings(max_examples=400)(NEWEST(newest_record)))
test_every_record_at_length = pytest.mark.chaos(settings(max_examples=400)(EVERY(every_record)))
