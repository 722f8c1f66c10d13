"""Audits by key: planted losses, duplicates and alterations are found, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.errors import InvalidPipeline
from resources.audit.by_key import run as by_key
from resources.audit.by_key.run import run
from tests.resources.audit.by_key.fake_log import Record, outcomes, parquet, proofs, request, serve

ORDERS: list[list[Record | None]] = [
    [Record(n, {"id": n, "city": f"c{n}", "total": {"cents": n * 100}, "extra": 1}) for n in range(0, 12, 2)],
    [Record(n, {"id": n, "city": f"c{n}", "total": {"cents": n * 100}, "extra": 1}) for n in range(1, 12, 2)],
]
IDS = list(range(12))


def orders(folder: Path, ids: list[int | None] = [*IDS], **changes: Any) -> Any:  # noqa: B006 - not changed
    columns = {"id": ids, "city": [None if n is None else f"c{n}" for n in ids], "cents": [(n or 0) * 100 for n in ids]}
    return parquet(folder, **{**columns, "loaded": ["now"] * len(ids), **changes})


def test_a_table_that_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, ORDERS)
    summary, findings, facts = run(request(orders(tmp_path)), tmp_path / "report")
    assert (summary.verdict, outcomes(summary), findings) == ("explained", {"matched": 12}, [])
    assert (summary.compared, summary.read.unmapped) == (["city"], {"total", "extra"})
    assert [name for name, *_ in facts["contents"]] == ["city", "cents", "loaded"]
    assert proofs(tmp_path / "report") == [[], []]
    assert not [path for path in (tmp_path / "report").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("every", [False, True])
def test_each_fault_is_found_with_its_key_and_its_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: bool) -> None:
    serve(monkeypatch, ORDERS)
    ids = [n for n in IDS if n not in (3, 4)] + [7, 99]
    cities = [f"c{n}" if n != 8 else "C8" for n in ids]
    cents = [n * 100 + (n == 9) for n in ids]
    table = orders(tmp_path, [*ids], city=cities, cents=cents)
    chosen = request(table, columns=("city", "cents=total.cents"), every=every)
    summary, findings, _ = run(chosen, tmp_path / "report")
    found = {item["key"]: (item["outcome"].name.lower(), item["columns"]) for item in findings}
    assert found == {
        "3": ("missing", []), "4": ("missing", []), "7": ("duplicate", []), "8": ("differing", ["city"]),
        "9": ("differing", ["cents"]), "99": ("surplus", []),
    }  # fmt: skip
    coordinates = {item["key"]: (item["partition"], item["offset"]) for item in findings}
    assert coordinates["3"] == (1, 1) and coordinates["8"] == (0, 4)
    assert not summary.ok and len(summary.problems()) == 4
    assert proofs(tmp_path / "report") == [[], []]
    for edit in ("DELETE FROM findings WHERE key = '3'", "UPDATE totals SET count = count + 1 WHERE outcome = 0"):
        with duckdb.connect(str(tmp_path / "report" / "report.duckdb")) as connection:
            connection.execute(edit)
        assert any(proofs(tmp_path / "report")), edit


def test_deletes_and_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest record of a key counts: that older ones were removed changes nothing."""
    log = [[None, None, Record(1, {"id": 1, "v": 2}), Record(2, None), Record(3, {"id": 3, "v": 1}), Record(3, None)]]
    serve(monkeypatch, log, policy="compact")
    summary, *_ = run(request(parquet(tmp_path, id=[1], v=[2])), tmp_path / "report")
    assert (summary.ok, outcomes(summary)) == (True, {"matched": 1, "absent": 2})
    summary, findings, _ = run(request(parquet(tmp_path, id=[1, 3], v=[2, 1])), tmp_path / "bad")
    assert [(item["key"], item["outcome"].name) for item in findings] == [("3", "UNDELETED")]
    summary, *_ = run(request(parquet(tmp_path, id=[1], v=[2]), every=True), tmp_path / "every")
    assert "the topic is compacted" in summary.problems()[-1]


def test_compaction_by_another_key_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = [[Record("a", {"id": 1, "v": 1}), Record("b", {"id": 2, "v": 1})]]
    table = parquet(tmp_path, id=[1, 2], v=[1, 1])
    serve(monkeypatch, log, policy="compact,delete")
    summary, *_ = run(request(table), tmp_path / "report")
    assert summary.problems() == ["compaction keeps the newest record of Kafka's key, and 2 records have another key there"]
    serve(monkeypatch, log, policy="")
    for every in (False, True):
        unknown = run(request(table, every=every), tmp_path / f"unknown{every}")[0].problems()
        assert len(unknown) == 2 and "cleanup.policy cannot be read" in unknown[-1]
    assert "cannot be read" not in str(run(request(table, compacted=True), tmp_path / "stated")[0].problems())
    serve(monkeypatch, log)
    assert run(request(table), tmp_path / "kept")[0].ok
    assert not run(request(table, compacted=True), tmp_path / "before")[0].ok


def test_compaction_by_a_record_after_the_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest record of a key in the range is unknown once the key has a later record."""
    log = [[None, Record(2, {"id": 2, "v": 1}), Record(1, {"id": 1, "v": 2})]]
    serve(monkeypatch, log, policy="compact", group={0: 2})
    for name, values in (("right", {1: 1, 2: 1}), ("lost", {2: 1}), ("ahead", {1: 2, 2: 1})):
        table, ahead = parquet(tmp_path, id=[*values], v=[*values.values()]), name == "ahead"
        summary, findings, _ = run(request(table, group="g"), tmp_path / name)
        assert (outcomes(summary), summary.ok) == ({"matched": 1, "newer" if ahead else "replaced": 1}, ahead)
        assert [(item["key"], item["rows"]) for item in findings] == [("1", 1 in values)] * (not ahead)
        assert proofs(tmp_path / name) == [[], []]
    twice = request(parquet(tmp_path, id=[1, 1, 2], v=[2, 2, 1]), group="g")
    assert outcomes(run(twice, tmp_path / "twice")[0]) == {"matched": 1, "duplicate": 1}
    serve(monkeypatch, log, group={0: 2})
    kept = request(parquet(tmp_path, id=[1, 2], v=[1, 1]), group="g")
    assert outcomes(run(kept, tmp_path / "kept")[0]) == {"matched": 1, "surplus": 1}
    serve(monkeypatch, log, policy="", group={0: 2})
    assert "cleanup.policy cannot be read" in run(kept, tmp_path / "unknown")[0].problems()[-1]


def test_compaction_while_the_topic_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = [[None, Record(2, {"id": 2, "v": 1}), Record(1, {"id": 1, "v": 2})]]
    table = parquet(tmp_path, id=[2], v=[1])
    serve(monkeypatch, log, policy="compact", written=1)
    summary, *_ = run(request(table), tmp_path / "report")
    assert outcomes(summary) == {"matched": 1}
    assert [problem.partition(" of the topic")[0] for problem in summary.problems()] == ["1 offset"]
    serve(monkeypatch, log, written=1)
    assert run(request(table), tmp_path / "kept")[0].ok


def test_compaction_by_records_that_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table lacks key 1, whose record was removed because of the last one."""
    table = parquet(tmp_path, id=[2], v=[1])
    pq.write_table(pa.table({"partition": [0], "offset": [2]}), tmp_path / "dead.parquet")
    dead = str(tmp_path / "dead.parquet")
    cases: list[tuple[bytes | None, dict[str, Any]]]
    cases = [(None, {"skips_tombstones": True}), (b"{", {"declared": dead}), (b"{", {"end": {0: 2}})]
    for value, options in cases:
        log = [[None, Record(2, {"id": 2, "v": 1}), Record(1, value)]]
        for policy in ("compact", "delete"):
            serve(monkeypatch, log, policy=policy)
            summary, *_ = run(request(table, **options), tmp_path / f"{policy}{[*options]}")
            expected = ["1 record was left out"] if policy == "compact" else []
            assert [problem.partition(",")[0] for problem in summary.problems()] == expected


def test_tombstones_of_another_key_prove_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = [[Record("user-1", {"id": 1, "v": 1}), Record("user-2", {"id": 2, "v": 1}), Record("user-1", None)]]
    serve(monkeypatch, log)
    table = parquet(tmp_path, id=[1, 2], v=[1, 1])
    told = "2 records have another key in Kafka, so which rows 1 records without a value delete is unknown"
    assert run(request(table), tmp_path / "report")[0].problems() == [told]
    assert run(request(table, end={0: 2}), tmp_path / "later")[0].problems() == [told]
    assert run(request(table, skips_tombstones=True), tmp_path / "skips")[0].ok


@pytest.mark.parametrize("older_rows", [False, True])
def test_records_that_retention_removed_before_they_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older_rows: bool
) -> None:
    log: list[Record | None] = [Record(n, {"id": n, "v": n}) for n in range(12)]
    serve(monkeypatch, [log], removed=8)
    summary, *_ = run(request(parquet(tmp_path, id=[8, 9, 10, 11], v=[8, 9, 10, 11]), older_rows=older_rows), tmp_path / "report")
    assert (summary.read.lost, outcomes(summary)) == (8, {"matched": 4})
    assert [problem.split(" were", 1)[0] for problem in summary.problems()] == ["8 offsets"]


def test_records_without_a_key_that_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = [b"{", b"[1]", {"v": 1}, {"id": None}, b"\xff", None, b"[" * 50_000, b'{"id": ' + b"9" * 5000 + b"}"]
    log = [[Record(None, value) for value in bad] + [Record(None, {"id": 1, "v": 5})]]
    serve(monkeypatch, log)
    table = parquet(tmp_path, id=[1, None], v=[5, 5])
    summary, _, facts = run(request(table), tmp_path / "report")
    assert (summary.read.unreadable, summary.read.keyless, summary.read.rows) == (8, 1, 2)
    assert [offset for _, offset, _ in facts["unreadable"]] == list(range(8))
    assert [problem.split(" ", 1)[0] for problem in summary.problems()] == ["8", "1"]
    # The loader's dead letters need no row.
    pq.write_table(pa.table({"partition": [0] * 8, "offset": list(range(8))}), tmp_path / "dead.parquet")
    declared = request(parquet(tmp_path, id=[1], v=[5]), declared=str(tmp_path / "dead.parquet"))
    summary, *_ = run(declared, tmp_path / "declared")
    assert (summary.ok, summary.read.declared, summary.read.records) == (True, 8, 1)


def test_the_key_of_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = [
        [
            Record(b"007", {"v": 1}), Record({"name": "b", "region": 1}, {"v": 2}), Record(["c", 1], {"v": 3}),
            Record(b"\0\0\0\0\x05" + b'{"name": "d", "region": 1}', b"\0\0\0\0\x06" + b'{"v": 4}'),
        ]
    ]  # fmt: skip
    serve(monkeypatch, [log[0][:1]])
    one = request(parquet(tmp_path, name=["007"], v=[1]), keys=("name",), own_key=True)
    assert run(one, tmp_path / "one")[0].ok
    serve(monkeypatch, [log[0][1:]])
    two = request(parquet(tmp_path, name=["b", "c", "d"], region=[1, 1, 1], v=[2, 3, 4]), keys=("name", "region"), own_key=True)
    summary, *_ = run(two, tmp_path / "two")
    assert summary.ok, summary.problems()


def test_texts_of_keys_are_compared_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, [[Record(None, {"id": '{"a":1}'}), Record(None, {"id": '{"a": 1}'}), Record(None, {"id": "é"})]])
    whole = request(parquet(tmp_path, id=['{"a":1}', '{"a": 1}', "é"]), columns=("none",))
    assert run(whole, tmp_path / "report")[0].ok
    lost = request(parquet(tmp_path, id=['{"a":1}', "e\u0301"]), columns=("none",))
    assert outcomes(run(lost, tmp_path / "lost")[0]) == {"matched": 1, "missing": 2, "surplus": 1}


def test_rows_that_are_older_than_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, [[None, None, Record(1, {"id": 1, "v": 1}), Record(2, {"id": 2, "v": 1})]], start=2)
    table = parquet(tmp_path, id=[1, 2, 3], v=[1, 1, 9])
    _, findings, _ = run(request(table), tmp_path / "report")
    assert [(item["key"], item["outcome"].name) for item in findings] == [("3", "OLDER")]
    assert run(request(table, older_rows=True), tmp_path / "older")[0].ok
    bad = request(parquet(tmp_path, id=[1, 1, 3], v=[1, 1, 9]), older_rows=True)
    assert outcomes(run(bad, tmp_path / "bad")[0]) == {"duplicate": 1, "missing": 1, "older": 1}
    table = parquet(tmp_path, id=[1, 2, 3], v=[1, 1, 9])
    serve(monkeypatch, [[Record(1, {"id": 1, "v": 1})]])
    assert outcomes(run(request(table, older_rows=True), tmp_path / "whole")[0])["surplus"] == 2


def test_a_table_that_is_ahead_of_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = [[Record(1, {"id": 1, "v": v}) for v in range(5)], [Record(2, {"id": 2, "v": 0})]]
    serve(monkeypatch, log, group={0: 2, 1: 1})
    for value, good in ((0, False), (1, True), (3, True), (4, True), (9, False)):
        table = request(parquet(tmp_path, id=[1, 2], v=[value, 0]), group="g")
        assert run(table, tmp_path / f"report{value}")[0].ok == good
    serve(monkeypatch, log, group={0: 5})
    summary, *_ = run(request(parquet(tmp_path, id=[1], v=[4]), group="g"), tmp_path / "idle")
    assert [problem.partition(":")[0] for problem in summary.problems()] == ["partition 1"]


def test_nothing_is_proven_without_records_or_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, [[Record(1, {"id": 1, "Other": 2})]])
    table = parquet(tmp_path, id=[1], v=[1])
    summary, *_ = run(request(table), tmp_path / "report")
    assert summary.problems() == ["no column was compared: no record has a field with the name of a column"]
    assert run(request(table, columns=("none",)), tmp_path / "keys")[0].ok
    summary, *_ = run(request(table, columns=("v",)), tmp_path / "chosen")
    assert outcomes(summary) == {"differing": 1}, "a column that the user names is compared, though no record has its field"
    assert run(request(table, columns=("v=OTHER",)), tmp_path / "folded")[0].totals.total() == 1
    serve(monkeypatch, [[]])
    assert "the range is empty" in run(request(parquet(tmp_path, id=[], v=[])), tmp_path / "empty")[0].problems()[0]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"keys": ("nope",)}, "--key: column 'nope' does not exist"),
        ({"columns": ("nope",)}, "--columns: column 'nope' does not exist"),
        ({"columns": ("v=",)}, "the field is missing"),
        ({"columns": ("id",)}, "column id is named twice"),
        ({"columns": ("raw",)}, "values of column raw cannot be compared"),
        ({"keys": ("doc",)}, "column doc contains documents"),
    ],
)
def test_columns_that_cannot_be_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], problem: str
) -> None:
    serve(monkeypatch, [[]])
    table = parquet(tmp_path, id=[1], v=[1], raw=[b"x"], doc=[{"a": 1}])
    with pytest.raises(InvalidPipeline, match=problem):
        run(request(table, **more), tmp_path / "report")


def test_an_interrupted_audit_reads_no_part_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, ORDERS)
    chosen = request(orders(tmp_path, [n for n in IDS if n != 5]))
    real, read = by_key.TopicLog.records, list[Any]()

    def failing(self: Any, window: Any, level: str, handle: Any) -> int:
        if len(read) == 3:
            raise KeyboardInterrupt
        read.append(window)
        return real(self, window, level, handle)

    with monkeypatch.context() as patch:
        patch.setattr(by_key.TopicLog, "records", failing)
        with pytest.raises(KeyboardInterrupt):
            run(chosen, tmp_path / "report")
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "table.parquet")  # the table changes meanwhile
    again: list[Any] = []
    monkeypatch.setattr(by_key.TopicLog, "records", lambda self, *more: (again.append(more[0]), real(self, *more))[1])
    heard: list[str] = []
    summary, findings, facts = run(chosen, tmp_path / "report", heard.append)
    assert heard[0] == f"continuing with the rows that were read at {facts['read']}"
    assert len(set(read) & set(again)) <= 1, "one window of a part that was not finished"
    assert [(item["key"], item["outcome"].name) for item in findings] == [("5", "MISSING")]
    assert (summary.read.records, proofs(tmp_path / "report")) == (12, [[], []])
    with pytest.raises(InvalidPipeline, match="the report is finished"):
        run(chosen, tmp_path / "report")
