"""Audits by key of generated topics and tables: each key has the outcome that an oracle finds, and no other."""

from __future__ import annotations

import tempfile
from collections import Counter
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
FAULTS = st.lists(st.tuples(st.sampled_from(["drop", "double", "alter", "add"]), KEYS, st.integers(1, 3)), max_size=3)


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


def audited(parts: list[list[tuple[int, int | None]]], ends: list[int], rows: list[tuple[int, int | None]], every: bool) -> Any:
    log = [[Record(key, None if value is None else {"id": key, "n": value}) for key, value in part] for part in parts]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        serve(patch, log)
        block = {"id": pa.array([key for key, _ in rows], pa.int32()), "n": pa.array([n for _, n in rows], pa.int64())}
        wanted = request(parquet(Path(name), **block), dict(enumerate(ends)), columns=("n",), every=every)
        summary, findings, _ = run(wanted, Path(name) / "report")
        assert proofs(Path(name) / "report") == [[], []]
    return summary, findings


def latest(parts: list[list[tuple[int, int | None]]], ends: list[int], rows: list[tuple[int, int | None]]) -> dict[int, str]:
    """The outcome of each key, one key at a time."""
    found = {}
    for key in range(6):
        newest = {}
        later = set()
        for number, part in enumerate(parts):
            for at, (other, value) in enumerate(part):
                if other == key and at < ends[number]:
                    newest[number] = value
                elif other == key:
                    later.add(value)
        mine = [value for other, value in rows if other == key]
        has = mine[0] if mine else None  # None: no row
        if len(mine) > 1:
            found[key] = "duplicate"
        elif len(set(newest.values())) > 1:
            found[key] = "newer" if has in later else "unordered"
        elif not newest:
            if mine:
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


def newest_record(writes: Any, faults: Any, behind: tuple[int, int]) -> None:
    parts = topic(writes)
    ends = [max(0, len(part) - less) for part, less in zip(parts, behind, strict=True)]
    state = {key: value for part, end in zip(parts, ends, strict=True) for key, value in part[:end]}
    rows = damaged([(key, value) for key, value in state.items() if value is not None], faults)
    summary, findings = audited(parts, ends, rows, False)
    expected = latest(parts, ends, rows)
    assert outcomes(summary) == Counter(expected.values())
    wrong = {key: name for key, name in expected.items() if name not in ("matched", "absent", "newer")}
    assert {int(item["key"]): item["outcome"].name.lower() for item in findings} == wrong
    assert summary.ok == (not wrong and any(ends))


def every_record(writes: Any, faults: Any, behind: tuple[int, int]) -> None:
    parts = topic(writes)
    ends = [max(0, len(part) - less) for part, less in zip(parts, behind, strict=True)]
    wanted = Counter(item for part, end in zip(parts, ends, strict=True) for item in part[:end])
    later = Counter(item for part, end in zip(parts, ends, strict=True) for item in part[end:])
    rows = damaged(list(wanted.elements()), faults)
    summary, _ = audited(parts, ends, rows, True)
    had = Counter(rows)
    missing, surplus = wanted - had, had - wanted - later
    found = outcomes(summary)
    assert found.get("matched", 0) == (wanted & had).total()
    assert found.get("newer", 0) == (had - wanted).total() - surplus.total()
    assert found.get("missing", 0) + found.get("differing", 0) == missing.total()
    assert sum(found.get(name, 0) for name in ("surplus", "duplicate", "differing")) == surplus.total()
    assert found.get("duplicate", 0) <= sum(count for item, count in surplus.items() if wanted[item] + later[item])
    assert summary.ok == (not missing and not surplus and any(ends))


CASES = given(WRITES, FAULTS, st.tuples(st.integers(0, 3), st.integers(0, 3)))
test_the_newest_record_of_each_key = settings(max_examples=10)(CASES(newest_record))
test_every_record = settings(max_examples=10)(CASES(every_record))
test_the_newest_record_of_each_key_at_length = pytest.mark.chaos(settings(max_examples=400)(CASES(newest_record)))
test_every_record_at_length = pytest.mark.chaos(settings(max_examples=400)(CASES(every_record)))
