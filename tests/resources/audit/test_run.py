"""Whole audits of generated tables and logs: the verdict is `explained` exactly if an oracle finds no fault."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpipe.audit.coordinates import Column, Coordinates
from kpipe.audit.outcomes import Outcome, State
from kpipe.audit.windows import LogBounds, Window, windows
from kpipe.definition.pipeline import Source
from kpipe.errors import InvalidPipeline
from resources.audit import run as audit
from resources.audit.normalize import Normalizer
from resources.audit.table_address import TableAddress
from resources.audit.topic_admin import Identity
from resources.audit.topic_log import TopicLog

Log = list[list[State]]

DECIDED = st.sampled_from([State.VALUE, State.VALUE, State.VALUE, State.TOMBSTONE, State.ABORTED, State.NONE])
LOGS = st.lists(st.lists(DECIDED, max_size=25), min_size=1, max_size=3)
FAULTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(-1, 2)), max_size=4)


def fakes(patch: pytest.MonkeyPatch, log: Log, policy: str = "delete") -> None:
    class Admin:
        def __init__(self, _: Source) -> None: ...

        def state(self) -> tuple[Identity, dict[int, LogBounds]]:
            return Identity("c", "t", "t"), {at: LogBounds(0, len(part), len(part)) for at, part in enumerate(log)}

        def cleanup_policy(self) -> str:
            return policy

    class Reader(TopicLog):
        def states(self, window: Window) -> Any:
            return np.array(log[window.partition][window.start : window.end], np.uint8)

    patch.setattr(audit, "TopicAdmin", Admin)
    patch.setattr(audit, "TopicLog", Reader)
    patch.setattr(audit, "windows", lambda ranges: windows(ranges, 7))


def write(folder: Path, rows: Sequence[tuple[int, int]]) -> TableAddress:
    """Rows in two files, in any order."""
    place = folder / "table"
    place.mkdir()
    for at, some in enumerate((rows[::2], rows[1::2])):
        block = {"_partition": pa.array([p for p, _ in some], pa.int32()), "_offset": pa.array([o for _, o in some], pa.int64())}
        pq.write_table(pa.table(block), place / f"{at}.parquet")
    return TableAddress("parquet", str(place))


def proofs(report: Path) -> list[Any]:
    statements = (report / "checks.sql").read_text()
    for name in ("rows.parquet", "numbered_rows.parquet", "declared.parquet"):
        statements = statements.replace(f"'{name}'", f"'{report / name}'")
    with duckdb.connect(str(report / "report.duckdb"), read_only=True) as connection:
        return [connection.execute(item).fetchall() for item in duckdb.extract_statements(statements)][:-2]


@settings(max_examples=60)
@given(LOGS, FAULTS, st.booleans(), st.sampled_from(["delete", "compact"]))
def test_a_verdict_equals_the_oracles(log: Log, faults: list[tuple[int, int, int]], uncommitted: bool, policy: str) -> None:
    wanted = {State.VALUE, State.TOMBSTONE, *([State.ABORTED] if uncommitted else [])}
    good = Counter((p, o) for p, part in enumerate(log) for o, state in enumerate(part) if state in wanted)
    table = good.copy()
    for partition, offset, change in faults:
        table[partition, offset] = max(0, table[partition, offset] + change)
    rows = sorted(table.elements(), key=lambda row: (row[1] % 3, row))
    harmless = {
        (p, o) for p, part in enumerate(log) for o, state in enumerate(part)
        if policy == "compact" and state == State.NONE and table[p, o] == 1
    }  # fmt: skip
    faulty = {key for key in good.keys() | table.keys() if good[key] != table[key]} - harmless
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        fakes(patch, log, policy)
        isolation = "read_uncommitted" if uncommitted else "read_committed"
        request = audit.Request(Source(brokers="b", topic="t"), write(Path(name), rows), isolation=isolation, memory_mb=1)
        summary, findings, _ = audit.run(request, Path(name) / "report")
        assert summary.ok == (not faulty and any(log)), summary.problems()
        inside = {(p, o) for p, o in faulty if p < len(log) and o < len(log[p])}
        assert {(p, at) for p, start, end, _, _ in findings for at in range(start, end)} == inside
        assert (summary.notes.total, summary.notes.accounted) == (len(rows), len(rows))
        assert sum(summary.totals.values()) == summary.span == sum(map(len, log))
        assert not any(proofs(Path(name) / "report"))


@settings(max_examples=30)
@given(LOGS, FAULTS, FAULTS, st.booleans(), st.booleans(), st.sampled_from(["delete", "compact"]))
def test_checks_prove_any_report_with_declared_records(
    log: Log,
    faults: list[tuple[int, int, int]],
    places: list[tuple[int, int, int]],
    uncommitted: bool,
    skips: bool,
    policy: str,
) -> None:
    table = Counter((p, o) for p, part in enumerate(log) for o, state in enumerate(part) if state == State.VALUE)
    for partition, offset, change in faults:
        table[partition, offset] = max(0, table[partition, offset] + change)
    declared = [(p, o) for p, o, _ in places]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        fakes(patch, log, policy)
        request = audit.Request(
            Source(brokers="b", topic="t"), write(Path(name), [*table.elements()]), skips_tombstones=skips,
            isolation="read_uncommitted" if uncommitted else "read_committed", declared=declare(Path(name), declared),
        )  # fmt: skip
        audit.run(request, Path(name) / "report")
        assert not any(proofs(Path(name) / "report"))


def declare(folder: Path, places: Sequence[tuple[int, int]]) -> str:
    columns = {name: pa.array([place[at] for place in places], pa.int64()) for at, name in enumerate(("partition", "offset"))}
    pq.write_table(pa.table(columns), folder / "dead.parquet")
    return str(folder / "dead.parquet")


def test_checks_find_a_report_that_was_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes(monkeypatch, [[State.VALUE] * 20])
    rows = [(0, at) for at in range(20) if at not in (5, 6)] + [(0, 9)]
    request = audit.Request(Source(brokers="b", topic="t"), write(tmp_path, rows), declared=declare(tmp_path, [(0, 6)]))
    summary, _, _ = audit.run(request, tmp_path / "report")
    assert summary.totals == {Outcome.MATCHED: 17, Outcome.MISSING: 1, Outcome.DUPLICATE: 1, Outcome.DECLARED: 1}
    assert not any(proofs(tmp_path / "report"))
    for at, (edit, numbers) in enumerate(
        {
            "DELETE FROM windows WHERE start = 7": {0},
            "INSERT INTO windows VALUES (0, 6, 9, 0, now())": {0, 1},
            "DELETE FROM findings WHERE outcome = 4": {2, 3},
            "DELETE FROM findings WHERE outcome = 1": {2, 3},
            "DELETE FROM findings WHERE outcome = 12": {2, 3},
            "DELETE FROM totals WHERE outcome = 1": {3},
            "UPDATE totals SET offsets = offsets + 1 WHERE outcome = 1": {3},
            "UPDATE totals SET offsets = offsets + 1 WHERE outcome = 0": {3},
            "UPDATE totals SET outcome = 12 WHERE outcome = 1; UPDATE findings SET outcome = 12 WHERE outcome = 1": {2},
        }.items()
    ):
        copy = tmp_path / str(at)
        shutil.copytree(tmp_path / "report", copy)
        with duckdb.connect(str(copy / "report.duckdb")) as connection:
            connection.execute(edit)
        assert {number for number, found in enumerate(proofs(copy)) if found} == numbers, edit


def test_a_policy_that_cannot_be_read_is_named_if_it_would_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes(monkeypatch, [[State.VALUE, State.NONE]], policy="")
    table = write(tmp_path, [(0, 0), (0, 1)])
    request = audit.Request(Source(brokers="b", topic="t"), table)
    problems = audit.run(request, tmp_path / "report")[0].problems()
    assert len(problems) == 2 and "cleanup.policy cannot be read" in problems[1]
    assert audit.run(replace(request, compacted=True), tmp_path / "stated")[0].ok
    fakes(monkeypatch, [[State.VALUE, State.VALUE]], policy="")
    assert audit.run(request, tmp_path / "irrelevant")[0].ok


@pytest.mark.parametrize(
    ("rows", "wrong", "outcomes"),
    [
        ("0:1 0:2 0:3 1:1 2:2 2:1", 0, {"MATCHED": 3}),
        ("0:0 0:1 1:0 2:0", 0, {"MATCHED": 3}),
        ("0:1 0:2 1:- 2:1", 0, {"MATCHED": 3}),
        ("0:1 0:2 0:1 0:2 1:1 2:1", 1, {"MATCHED": 3}),
        ("0:1 0:3 1:2 2:1", 2, {"MATCHED": 3}),
        ("0:1 0:- 1:1 2:- 2:-", 2, {"MATCHED": 3}),
        ("0:0 1:1 2:0 2:1", 1, {"MATCHED": 3}),
        ("0:1 0:2 2:1", 0, {"MATCHED": 2, "MISSING": 1}),
        ("0:1 1:1 2:1 7:1 7:2", 0, {"MATCHED": 3}),
    ],
)
def test_rows_of_a_record_are_told_from_duplicates_by_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: str, wrong: int, outcomes: dict[str, int]
) -> None:
    fakes(monkeypatch, [[State.VALUE] * 3])
    pairs = [text.split(":") for text in rows.split()]
    block = {
        "_partition": pa.array([0] * len(pairs), pa.int32()),
        "_offset": pa.array([int(at) for at, _ in pairs]),
        "line": pa.array([None if number == "-" else int(number) for _, number in pairs], pa.int64()),
    }
    (tmp_path / "table").mkdir()
    pq.write_table(pa.table(block), tmp_path / "table" / "0.parquet")
    source, table = Source(brokers="b", topic="t"), TableAddress("parquet", str(tmp_path / "table"))
    summary, _, facts = audit.run(audit.Request(source, table, number="LINE"), tmp_path / "report")
    assert {outcome.name: count for outcome, count in summary.totals.items()} == outcomes
    assert (summary.notes.misnumbered, len(facts["misnumbered"])) == (wrong, wrong)
    assert summary.notes.total == summary.notes.accounted == len(pairs)
    assert summary.ok == (not wrong and "MISSING" not in outcomes and "7:1" not in rows), summary.problems()
    assert not any(proofs(tmp_path / "report"))
    plain, _, _ = audit.run(audit.Request(source, table), tmp_path / "plain")
    assert not plain.ok, "without the numbers, they are duplicates"


def test_a_number_that_is_none_is_an_unexplained_row() -> None:
    columns = Coordinates(Column("p"), Column("o"), None, Column("n"))
    normal = Normalizer("t")
    zeros, numbers = pa.array([0] * 5), pa.array(["1", "x", "-1", None, "0"])
    assert [part.tolist() for part in normal.of([zeros, zeros, numbers], columns)] == [[0] * 3, [0] * 3, [1, -1, 0]]
    assert normal.counts.invalid == 2
    with pytest.raises(InvalidPipeline, match="the ordinality column has type bool"):
        normal.of([pa.array([0]), pa.array([0]), pa.array([True])], columns)


NUMBERS = st.one_of(st.none(), st.integers(-5, 2**63 - 1), st.integers(-5, 50))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=30), st.sampled_from([pa.int64(), pa.string(), pa.decimal128(38, 2)]))
def test_each_type_gives_the_same_integers(rows: list[tuple[int | None, int | None]], kind: pa.DataType) -> None:
    made = [pa.array([row[at] for row in rows], pa.int64()).cast(kind) for at in range(2)]
    normal = Normalizer("t")
    partitions, offsets = normal(made[0], made[1], None)
    most = 10**18 if kind != pa.int64() else 2**63  # texts of more digits are refused: no log is that long
    valid = [(p, o) for p, o in rows if p is not None and o is not None and 0 <= p < most and 0 <= o < most]
    assert list(zip(partitions.tolist(), offsets.tolist(), strict=True)) == valid
    assert (normal.counts.total, normal.counts.invalid) == (len(rows), len(rows) - len(valid))


def test_numbers_that_are_not_integers_identify_no_record() -> None:
    normal = Normalizer("t")
    decimals = pa.array(["1.00", "1.50", "-1.00", None]).cast(pa.decimal128(5, 2))
    assert normal(pa.array([0] * 4), decimals, None)[1].tolist() == [1]
    big = pa.array([2**63, 7], pa.uint64())
    assert normal(pa.array([0, 0]), big, None)[1].tolist() == [7]
    assert normal(pa.array([0, 0, 0]), pa.array([2.0**53, 3.0, float("inf")]), None)[1].tolist() == [3]
    assert normal.counts.invalid == 6
    with pytest.raises(InvalidPipeline, match="the offset column has type bool"):
        normal(pa.array([0]), pa.array([True]), None)
