"""Files are read exactly once: killed at each point, two runs at once, files that grow, shrink, disappear or are replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import Fenced, LogTruncated, OffsetsBeyondEnd, ReadFailed, SourceIdentityChanged, TopicGone
from kpipe.failpoints import POINTS
from kpipe.planning.seek import forget
from tests.resources.sources.runs import Bench, kill

_REACHED = [point for point in POINTS if not point.startswith(("tx.", "gc.", "collect.partial", "plan.frozen"))]


def rows(bench: Bench, columns: str = "id") -> list[Any]:
    with duckdb.connect(str(bench.home.data / "kpipe.duckdb"), read_only=True) as connection:
        found = connection.execute(f"SELECT {columns} FROM t ORDER BY ALL").fetchall()
    return [row[0] if len(row) == 1 else row for row in found]


def numbered(first: int, last: int) -> Iterator[dict[str, int]]:
    return ({"id": number} for number in range(first, last))


def test_records_of_files_become_rows_with_file_and_position(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write("a", {"id": 1}, {"id": 2})
    bench.write("b", {"id": 3}, raw=b"not json\n")
    assert bench.run() == 1
    place = f"{bench.files}/"
    assert rows(bench, "_kafka_topic, _kafka_partition, _kafka_offset, id") == [
        (f"{place}a", 0, 0, 1), (f"{place}a", 0, 10, 2), (f"{place}b", 0, 0, 3),
    ]  # fmt: skip
    (letter,) = [row for row in bench.destination().view("errors") if row["dead_letter"]]
    assert (letter["topic"], letter["offset"]) == (f"{place}b", 10)
    result = bench.audit()
    assert (result.ok, result.counts.rows, result.counts.dead_letters) == (True, 3, 1), result.problems


@pytest.mark.parametrize("point", _REACHED)
def test_a_run_that_is_killed_anywhere_repeats_and_loses_nothing(tmp_path: Path, point: str) -> None:
    bench = Bench(tmp_path)
    bench.write("a", *numbered(0, 5))
    bench.run()
    bench.write("a", *numbered(5, 9))
    bench.write("b", *numbered(9, 12), raw=b'{"id": 12')
    assert bench.run_until(point, kill)
    bench.write("b", raw=b"}\n")
    bench.write("c", *numbered(13, 15))
    bench.run()
    assert rows(bench) == list(range(15))
    assert bench.audit().ok, bench.audit().problems


def test_of_two_runs_one_is_fenced_and_nothing_is_read_twice(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write("a", *numbered(0, 5))
    with pytest.raises(Fenced):
        bench.run_until("collect.all", lambda: bench.run())
    bench.run()
    assert rows(bench) == list(range(5))
    assert bench.audit().ok


def test_a_file_that_grows_while_it_is_read_is_read_to_the_planned_end_and_then_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write("a", *numbered(0, 5))
    bench.run_until("read.first", lambda: bench.write("a", *numbered(5, 8), raw=b'{"id": '))
    assert rows(bench) == list(range(8))
    bench.write("a", raw=b"8}\n")
    bench.run()
    assert rows(bench) == list(range(9))


def test_a_replaced_file_needs_an_operator_and_is_named(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write("a", *numbered(0, 3))
    bench.run()
    bench.write("a", *numbered(7, 9), append=False)
    for _ in range(2):
        with pytest.raises(SourceIdentityChanged, match=rf"file {bench.files}/a was replaced"):
            bench.run()
    bench.run(on_new_topic="begin", who="test")
    assert rows(bench) == [0, 1, 2, 7, 8]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("in/*", "a was replaced: expected content"),
        ("*/*", r"a was read from another place: expected .*/in, found "),
    ],
)
def test_an_edit_that_makes_a_file_another_one_is_named(tmp_path: Path, path: str, words: str) -> None:
    bench = Bench(tmp_path)
    bench.write("a", *numbered(0, 3))
    bench.run()
    fields = bench.pipeline.to_dict()
    edited = {"path": f"{tmp_path}/{path}", "grows": path == "*/*"}
    bench.pipeline = Pipeline.model_validate({**fields, "source": {"files": edited}})
    with pytest.raises(SourceIdentityChanged, match=words) as caught:
        bench.run()
    assert "or undo a change of source.files" in caught.value.hint


def test_a_file_that_is_replaced_while_it_is_read_changes_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write("a", *numbered(0, 3))
    with pytest.raises(ReadFailed, match="was replaced while it was read"):
        bench.run_until("read.end", lambda: bench.write("a", *numbered(7, 9), append=False))
    with pytest.raises(SourceIdentityChanged, match=rf"file {bench.files}/a was replaced"):
        bench.run()
    assert bench.destination().columns() is None


def test_a_truncated_file_needs_an_operator_and_is_named(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write("a", *numbered(0, 3))
    bench.run()
    bench.write("a", {"id": 0}, append=False)
    with pytest.raises(OffsetsBeyondEnd, match=rf"file {bench.files}/a was truncated: expected its end at 30 or later, found 10"):
        bench.run()


def test_a_removed_file_that_can_grow_needs_an_operator(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write("a", *numbered(0, 3))
    bench.write("b", *numbered(3, 4))
    bench.run()
    (bench.files / "a").unlink()
    with pytest.raises(TopicGone, match=rf"file {bench.files}/a no longer exists"):
        bench.run()


def test_removed_files_are_recorded_if_the_definition_allows_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, source={"on_data_loss": "record"})
    bench.write("a", *numbered(0, 3))
    bench.write("b", *numbered(3, 4))
    bench.run()
    (bench.files / "a").unlink()
    bench.write("b", *numbered(4, 5))
    bench.run()
    assert rows(bench) == list(range(5))
    assert bench.audit().ok


@pytest.mark.parametrize("grows", [True, False])
def test_files_of_a_folder_that_was_not_mounted_are_read_on_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grows: bool
) -> None:
    monkeypatch.setattr("kpipe.definition.source_files.Files.most_offsets", property(lambda _: 25))
    bench = Bench(tmp_path, source={"on_data_loss": "record"}, files={"grows": grows})
    bench.write("a", *numbered(0, 3))
    bench.write("b", *numbered(3, 4))
    next(iter(bench.ingest().run()))
    bench.files.rename(tmp_path / "away")
    bench.files.mkdir()
    assert bench.run() == 0
    bench.files.rmdir()
    (tmp_path / "away").rename(bench.files)
    if grows:
        bench.write("a", *numbered(4, 5))
    bench.run()
    assert rows(bench) == list(range(5 if grows else 4))
    assert bench.audit().ok, bench.audit().problems


def test_a_complete_file_may_be_removed_once_it_was_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path, files={"grows": False})
    bench.write("a", *numbered(0, 3), raw=b'{"id": 3}')
    bench.run()
    (bench.files / "a").unlink()
    bench.write("b", *numbered(4, 5))
    bench.run()
    assert rows(bench) == list(range(5))
    bench.write("b", *numbered(5, 6))
    with pytest.raises(SourceIdentityChanged, match=rf"file {bench.files}/b was replaced"):
        bench.run()


def test_files_that_were_removed_count_for_the_most_that_a_ledger_names(tmp_path: Path) -> None:
    bench = Bench(tmp_path, files={"grows": False, "max_files": 2})
    for name in "ab":
        bench.write(name, {"id": 1})
        bench.run()
        (bench.files / name).unlink()
    bench.write("c", {"id": 1})
    with pytest.raises(ReadFailed, match=r"expected at most 2 files .*ever read \(source.files.max_files\), found 3") as caught:
        bench.run()
    assert "max.message.bytes" in caught.value.hint
    assert rows(bench) == [1, 1]


def test_an_empty_folder_is_caught_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write("empty")
    assert bench.run() == 0
    bench.write("empty", {"id": 1})
    assert bench.run() == 1


def test_a_batch_has_at_most_so_many_bytes_of_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kpipe.definition.source_files.Files.most_offsets", property(lambda _: 25))
    bench = Bench(tmp_path)
    for name in "abc":
        bench.write(name, *numbered(0, 3))
    assert bench.run() == 4
    assert rows(bench) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert bench.audit().ok


def test_csv_with_names_in_the_first_line_of_each_file(tmp_path: Path) -> None:
    csv = {"type": "csv", "delimiter": ",", "quote": '"'}
    bench = Bench(tmp_path, files={"header": True}, format=csv)
    bench.write("a", raw=b'id,name\r\n1,"x, y"\r\n2,z\r\n')
    bench.run()
    bench.write("b", raw=b"name,city,id\nw,Oslo,3\nbroken\n")
    bench.run()
    assert rows(bench, "id, name, city") == [("1", "x, y", None), ("2", "z", None), ("3", "w", "Oslo")]
    result = bench.audit()
    assert (result.ok, result.counts.dead_letters) == (True, 1)


def test_csv_with_named_fields_skips_the_first_lines_of_each_file(tmp_path: Path) -> None:
    csv = {"type": "csv", "delimiter": ",", "skip_lines": 1, "fields": ["id", "name"]}
    bench = Bench(tmp_path, format=csv, columns={"id": "BIGINT"})
    bench.write("a", raw=b"ID,Name\n1,x\n")
    bench.write("b", raw=b"ID,Name\n2,y\n3,z\n")
    bench.run()
    assert rows(bench, "id, name") == [(1, "x"), (2, "y"), (3, "z")]


def test_rows_of_parquet_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path, files={"type": "parquet"})
    table = pa.table(
        {"id": pa.array(range(10), pa.int32()), "at": pa.array([1000] * 10, pa.timestamp("ns")), "tags": [["a"]] * 10}
    )
    pq.write_table(table, bench.files / "a.parquet", row_group_size=3)
    bench.run()
    assert rows(bench) == list(range(10))
    assert rows(bench, "_kafka_offset") == list(range(10))
    assert rows(bench, "DISTINCT tags") == [["a"]]
    assert bench.audit().ok


def test_times_that_would_lose_digits_are_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, files={"type": "parquet"})
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), bench.files / "a.parquet")
    with pytest.raises(ReadFailed, match=r"a\.parquet: .*would lose data"):
        bench.run()


def test_a_program_sees_the_lines(tmp_path: Path) -> None:
    program = tmp_path / "double.py"
    program.write_text("#!/usr/bin/env python3\nimport json, sys\nfor l in sys.stdin:\n    d = json.loads(l); d['id'] *= 2\n")
    program.write_text(program.read_text() + "    print(json.dumps(d), flush=True)\n")
    program.chmod(0o755)
    bench = Bench(tmp_path, transform={"program": str(program)})
    bench.write("a", *numbered(0, 4))
    bench.run()
    assert rows(bench) == [0, 2, 4, 6]


def test_values_are_the_lines_unchanged_with_format_raw(tmp_path: Path) -> None:
    bench = Bench(tmp_path, format={"type": "raw"})
    bench.write("a", raw=json.dumps({"b": 1}).encode() + b"  \nx\n")
    bench.run()
    assert rows(bench, "value") == [b"x", b'{"b": 1}  ']


def test_an_operator_drops_a_removed_file(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write("a", *numbered(0, 3))
    bench.write("b", *numbered(3, 4))
    bench.run()
    (bench.files / "a").unlink()
    survey = bench.ingest().survey
    survey.forgetting = True
    snapshot, ledger = survey.look()
    for decision in forget(ledger, snapshot, None):
        survey.decide(decision.kind, decision.changes, decision.note, decision.steps)
    bench.write("b", *numbered(4, 5))
    bench.run()
    assert rows(bench) == list(range(5))
    assert bench.audit().ok


def test_a_file_that_is_rewritten_in_place_needs_an_operator(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write("a", *numbered(0, 5))
    bench.run()
    bench.write("a", {"id": 0}, *numbered(6, 10), *numbered(10, 12), append=False)  # as long, with the same first record
    for _ in range(2):
        with pytest.raises(LogTruncated, match=rf"{bench.files}/a: the log was cut"):
            bench.run()
    assert rows(bench) == list(range(5))


def test_pieces_of_a_line_do_not_hide_the_last_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kpipe.definition.source_files.Files.most_offsets", property(lambda _: 7))
    bench = Bench(tmp_path)
    bench.write("a", *numbered(0, 6))
    assert bench.run() == 9
    assert rows(bench) == list(range(6))
