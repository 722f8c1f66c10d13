"""Programs with `stdin: arrow` in a task: each record is loaded, filtered or set aside, once; or the range fails."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpipe.batch.batch import Piece, RangeReport
from kpipe.definition.formats import Format
from kpipe.errors import RecordRejected, TransformFailed
from kpipe.offsets import Range
from kpipe.schema.columns import Columns, parse_type
from kpipe.topics import PartitionId, TopicId
from resources.decode.arrow import decoder
from resources.kafka import replay_reader
from resources.kafka.record_block import RecordBlock
from resources.spark.task import arrow_answers, range_task, transform_input
from resources.spark.task.arrow_answers import Answers
from resources.spark.task.task_spec import JobSpec, ProgramSpec, TableSpec
from resources.spark.task.transform import _Nowhere
from resources.spark.task.transform_input import Feed
from transforms import resolve

SOURCE = PartitionId(TopicId("c", "i", "t"), 3)
OFFSETS = [10, 11, 13, 14, 20]  # with gaps
HEAD = """#!/usr/bin/env python3
import json, sys
import pyarrow as pa
reader = pa.ipc.open_stream(sys.stdin.buffer)
def write(schema, batches):
    with pa.ipc.new_stream(sys.stdout.buffer, schema) as writer:
        for batch in batches:
            writer.write_batch(pa.record_batch(batch, schema=schema))
"""
IDENTITY = "write(reader.schema, (batch.columns for batch in reader))"
#: Of each record the rows that its value lists, [[name, number], ...], with its offset.
ROWS = """
schema = pa.schema([("name", pa.string()), ("n", pa.int64()), ("offset", pa.int64())])
def batches():
    for batch in reader:
        rows = [(*row, at) for value, at in zip(batch["value"].to_pylist(), batch["offset"].to_pylist())
                for row in json.loads(value or b"[]")]
        yield [pa.array(list(column), kind) for column, kind in zip(zip(*rows), schema.types)] if rows else [[], [], []]
write(schema, batches())
"""


class Bench:
    """A range of records, and programs to stage them through."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def job(self, body: str, values: Sequence[bytes | None], mode: str = "map", columns: dict[str, str] | None = None,
            held: RecordBlock | None = None, **more: Any) -> JobSpec:  # fmt: skip
        file = self.folder / "program.py"
        file.write_text(HEAD + textwrap.dedent(body))
        file.chmod(0o755)
        found = resolve(file)
        (self.folder / "programs").mkdir(exist_ok=True, mode=0o700)
        (self.folder / "batch").mkdir(exist_ok=True)
        multi_topic = more.pop("several_topics", False)
        tables = more.pop("tables", None) or (TableSpec(Columns.of(columns or {"name": "VARCHAR", "n": "TINYINT"})),)
        held = held or RecordBlock.of(OFFSETS[: len(values)], [1000] * len(values), values, [b"k"] * len(values))
        return JobSpec(
            batch="batch", config={}, staging=str(self.folder), format=Format(type="arrow"), tables=tables,
            programs=str(self.folder / "programs"), held={SOURCE: held}, fan_out=mode == "flatmap",
            program=ProgramSpec(str(found.file), None, found.sha256, stdin="arrow", mode=mode, idle_timeout_s=300,
                                max_output_bytes=1 << 30, several_topics=multi_topic), **more,
        )  # fmt: skip

    def stage(self, *args: Any, **more: Any) -> RangeReport:
        report = range_task.stage(self.job(*args, **more), Piece(SOURCE, Range(10, 21)))
        assert report.counts.unaccounted(11) == 0
        return report

    def failure(self, *args: Any, **more: Any) -> str:
        with pytest.raises(TransformFailed) as raised:
            self.stage(*args, **more)
        return raised.value.what


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def rows(report: RangeReport) -> list[dict[str, Any]]:
    return [row for file in report.tables[0].files for row in pq.read_table(file.path).to_pylist()]


def placed(report: RangeReport, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in (*names, "_kafka_offset")) for row in rows(report)]


def dead(report: RangeReport) -> list[tuple[int, bytes | None, str, str]]:
    assert report.dead_letters is not None
    found = pq.read_table(report.dead_letters.path).to_pylist()
    return [(row["offset"], row["value"], row["stage"], row["reason"]) for row in found]


def test_the_program_gets_whole_records(bench: Bench) -> None:
    held = RecordBlock.of(
        [10, 13], [1_700_000_000_123, -1], [b"\xff", None], [None, b"k"], [[("a", b"\xff"), ("a", None)], None]
    )  # fmt: skip
    columns = {
        "key": "BLOB", "value": "BLOB", "headers": "STRUCT(key VARCHAR, value BLOB)[]", "timestamp": "TIMESTAMP WITH TIME ZONE",
        "partition": "INTEGER", "topic": "VARCHAR",
    }  # fmt: skip
    one, other = rows(bench.stage(IDENTITY, [], columns=columns, held=held, several_topics=True))
    assert (one["key"], one["value"], one["partition"], one["topic"]) == (None, b"\xff", 3, "t")
    assert one["headers"] == [{"key": "a", "value": b"\xff"}, {"key": "a", "value": None}]
    assert one["timestamp"].timestamp() == 1_700_000_000.123
    assert (other["key"], other["value"], other["headers"], other["timestamp"], other["_kafka_offset"]) == (
        b"k",
        None,
        [],
        None,
        13,
    )


def test_only_with_several_topics_records_name_theirs(bench: Bench) -> None:
    report = bench.stage(IDENTITY, [b"x"], columns={"value": "BLOB"})
    assert list(report.tables[0].new_columns.names()) == ["key", "headers", "timestamp", "partition"]


def test_map_gives_a_row_for_each_record(bench: Bench) -> None:
    report = bench.stage(ROWS, [b'[["a", 1]]', b'[["b", 2]]'])
    assert placed(report, "name", "n") == [("a", 1, 10), ("b", 2, 11)]
    assert (report.records.filtered, report.records.gaps, report.records.given) == (0, 9, 0)


def test_filter_names_the_record_of_each_row(bench: Bench) -> None:
    report = bench.stage(ROWS, [b"[]", b'[["b", 2]]', None, b'[["d", 4]]', b"[]"], mode="filter")
    assert placed(report, "name", "n") == [("b", 2, 11), ("d", 4, 14)]
    assert (report.records.filtered, report.counts.rows, report.records.given) == (3, 2, 0)


def test_flatmap_counts_records_and_rows(bench: Bench) -> None:
    report = bench.stage(ROWS, [b'[["a", 1], ["b", 2]]', b"[]", b'[["c", 3]]'], mode="flatmap")
    assert placed(report, "name", "n") == [("a", 1, 10), ("b", 2, 10), ("c", 3, 13)]
    assert (report.records.filtered, report.counts.rows, report.records.given) == (1, 3, 2)
    assert (report.tables[0].mark.records, report.tables[0].mark.offsets) == (2, 33)


@pytest.mark.parametrize("mode", ["map", "filter", "flatmap"])
def test_a_bad_row_is_a_dead_letter_with_its_record(bench: Bench, mode: str) -> None:
    report = bench.stage(ROWS, [b'[["a", 1]]', b'[["b", 300]]', b'[["c", 3]]'], mode=mode)
    assert placed(report, "name") == [("a", 10), ("c", 13)]
    assert dead(report) == [(11, b'[["b", 300]]', "parse", "n: 300 is not a TINYINT")]


def test_a_bad_row_rejects_all_rows_of_its_record(bench: Bench) -> None:
    report = bench.stage(ROWS, [b'[["a", 1], ["b", 300], ["c", 3]]', b'[["d", 4], ["e", 5]]'], mode="flatmap")
    assert placed(report, "name") == [("d", 11), ("e", 11)]
    assert [offset for offset, *_ in dead(report)] == [10]
    assert (report.records.given, report.records.set_aside_before, report.records.dead_letters) == (1, 1, 1)


def test_policies_apply_to_bad_rows(bench: Bench) -> None:
    values = [b'[["a", 1]]', b'[["b", 300]]']
    assert bench.stage(ROWS, values, parse="skip").records.filtered == 1
    with pytest.raises(RecordRejected, match="t/3 offset 11: n: 300 is not a TINYINT"):
        bench.stage(ROWS, values, parse="fail")


@pytest.mark.parametrize("mode", ["map", "filter", "flatmap"])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_batches_of_the_output_may_be_any(bench: Bench, mode: str, size: int) -> None:
    body = f"""
    whole = reader.read_all()
    out = pa.table({{"name": whole["value"].cast(pa.string()), "offset": whole["offset"]}})
    out = out if {mode != "flatmap"} else out.take([0, 0, 0, 1, 2, 2, 3, 4, 4, 4])
    write(out.schema, (batch.columns for batch in out.to_batches(max_chunksize={size})))
    """
    report = bench.stage(body, [b"a", b"b", b"c", b"d", b"e"], mode=mode, columns={"name": "VARCHAR"})
    letters = "aaabccdeee" if mode == "flatmap" else "abcde"
    assert placed(report, "name") == [(letter, OFFSETS["abcde".index(letter)]) for letter in letters]
    assert report.records.given == (5 if mode == "flatmap" else 0)


def test_a_record_whose_rows_are_in_many_batches_is_rejected_as_a_whole(bench: Bench) -> None:
    body = """
    schema = pa.schema([("n", pa.int64()), ("offset", pa.int64())])
    reader.read_all()
    write(schema, ([[n], [at]] for n, at in [(1, 10), (2, 10), (300, 10), (4, 10), (5, 11)]))
    """
    report = bench.stage(body, [b"a", b"b"], mode="flatmap", columns={"n": "TINYINT"})
    assert placed(report, "n") == [(5, 11)]
    assert [offset for offset, *_ in dead(report)] == [10]


def test_filter_needs_the_offset(bench: Bench) -> None:
    body = 'reader.read_all()\nwrite(pa.schema([("n", pa.int64())]), [[[1]]])'
    assert (
        bench.failure(body, [b"a"], mode="filter")
        == "transform (t/3 [10, 21)): it writes no column offset, which mode filter requires"
    )


def test_a_poison_record_is_found(bench: Bench) -> None:
    report = bench.stage(ROWS, [b'[["a", 1]]', b"no json", b'[["c", 3]]'], transform="dead_letter")
    assert placed(report, "name") == [("a", 10), ("c", 13)]
    ((offset, value, stage, reason),) = dead(report)
    assert (offset, value, stage) == (11, b"no json", "transform")
    assert "it exited with status 1" in reason
    assert list(report.poison_records) == [11]


def test_a_record_that_breaks_the_stream_is_found(bench: Bench) -> None:
    body = ROWS.replace("(*row, at)", "(*row, -5 if row[0] == 'lie' else at)")
    report = bench.stage(body, [b'[["a", 1]]', b'[["lie", 2]]', b'[["c", 3]]'], mode="filter", transform="dead_letter")
    assert placed(report, "name") == [("a", 10), ("c", 13)]
    assert [offset for offset, *_ in dead(report)] == [11]


def test_a_wrong_type_fails_at_once_and_blames_no_record(bench: Bench) -> None:
    failed = bench.failure(IDENTITY, [b"a"], columns={"partition": "DATE"}, transform="dead_letter")
    assert failed == "transform (t/3 [10, 21)): column partition: expected DATE, found INTEGER"


def test_a_program_of_lines_is_told(bench: Bench) -> None:
    assert "expected an Arrow IPC stream, found b'{\"id\": 1}\\n'" in bench.failure("print('{\"id\": 1}')", [b"a"])


def test_without_records_the_program_gets_an_empty_stream(bench: Bench) -> None:
    """As bisection tries it: a program that fails then is broken, whatever the records are."""
    body = "rows = reader.read_all().num_rows\nassert rows == 0, 'boom'\n" + IDENTITY
    assert "this record makes the program fail" in bench.failure(body, [b"a"])
    assert "it fails without any record, too" in bench.failure("raise SystemExit(3)", [b"a"])


def test_output_is_bounded(bench: Bench) -> None:
    body = 'schema = pa.schema([("n", pa.int64())])\nreader.read_all()\nwrite(schema, ([[]] for _ in iter(int, 1)))'
    job = bench.job(body, [b"a"])
    assert job.program is not None
    small = replace(job, program=replace(job.program, max_output_bytes=1 << 16))
    with pytest.raises(TransformFailed, match="it wrote more than 65,536 bytes to stdout"):
        range_task.stage(small, Piece(SOURCE, Range(10, 21)))


def test_tombstones_delete_where_the_table_says_so(bench: Bench) -> None:
    key = Columns.of({"name": "VARCHAR"})
    table = TableSpec(Columns.of({"name": "VARCHAR", "n": "TINYINT"}), unique=key, deletes=True)
    report = bench.stage(ROWS, [b'[["a", 1]]', None, b'[["c", 3]]'], tables=(table,))
    assert placed(report, "name") == [("a", 10), ("c", 13)]
    assert report.counts.deletes == 1


def test_tombstones_delete_behind_a_program_that_reads_json_too(bench: Bench) -> None:
    table = TableSpec(Columns.of({"name": "VARCHAR", "n": "TINYINT"}), unique=Columns.of({"name": "VARCHAR"}), deletes=True)
    job = bench.job("", [b"a", None, b"c"], tables=(table,))
    file = bench.folder / "program.py"
    file.write_text(
        "#!/usr/bin/env python3\nimport json, sys\n"
        "for line in sys.stdin:\n    print(json.dumps({'name': json.loads(line)['value']}))\n"
    )
    assert job.program is not None
    job = replace(job, format=Format(), program=replace(job.program, stdin="json", sha256=resolve(file).sha256))
    report = range_task.stage(job, Piece(SOURCE, Range(10, 21)))
    assert placed(report, "name") == [("a", 10), ("c", 13)]
    assert (report.counts.deletes, report.counts.unaccounted(11)) == (1, 0)


def test_tombstones_that_delete_are_not_in_the_sample_either(bench: Bench) -> None:
    """There they would make a program fail that never gets them, and become dead letters instead of deletes."""
    body = (
        "out = reader.read_all()\nassert out['value'].null_count == 0\nwrite(out.schema, (b.columns for b in out.to_batches()))"
    )
    job = replace(bench.job(body, [b"a", None]), tables=(), transform="dead_letter")
    assert job.program is not None
    job = replace(job, program=replace(job.program, deletes=True))
    columns, found = range_task.sample_columns(job, Piece(SOURCE, Range(10, 21)), 500)
    assert (columns.get("value"), found) == (parse_type("BLOB"), {})


def test_a_sample_gives_the_columns(bench: Bench) -> None:
    columns, found = range_task.sample_columns(bench.job(ROWS, [b'[["a", 1]]']), Piece(SOURCE, Range(10, 21)), 500)
    assert (columns.to_dict(), found) == ({"name": "VARCHAR", "n": "BIGINT"}, {})
    job = bench.job(ROWS, [b"no json", b'[["a", 1]]'], transform="dead_letter")
    columns, found = range_task.sample_columns(job, Piece(SOURCE, Range(10, 21)), 500)
    assert (columns.to_dict(), list(found)) == ({"name": "VARCHAR", "n": "BIGINT"}, [10])


def test_a_sample_has_no_columns_that_are_always_null(bench: Bench) -> None:
    body = """
    count = reader.read_all().num_rows
    out = pa.table({"a": pa.nulls(count), "b": pa.array([[]] * count, pa.list_(pa.null())), "_kafka_c": pa.array([1] * count)})
    write(out.schema, (batch.columns for batch in out.to_batches()))
    """
    columns, _ = range_task.sample_columns(bench.job(body, [b"x"]), Piece(SOURCE, Range(10, 21)), 500)
    assert columns.to_dict() == {}


def test_rows_of_one_record_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_answers, "MOST_BYTES", 1000)
    with pytest.raises(TransformFailed, match="it wrote more than 1,000 bytes of rows for the record at offset 0"):
        list(answered([written([(0, "text", [1])] * 200, [])], "flatmap", 1))


def test_rows_of_one_record_are_bounded_by_their_offsets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_answers, "MOST_BYTES", 1000)
    data = written_table(pa.table({"offset": [0] * 200, "nothing": pa.nulls(200)}))
    with pytest.raises(TransformFailed, match="it wrote more than 1,000 bytes of rows for the record at offset 0"):
        list(answered([data], "flatmap", 1))


def test_many_small_parts_of_one_record_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_answers, "_MOST_PARTS", 4)
    kept: list[int] = []
    check = Answers._check_offsets
    monkeypatch.setattr(Answers, "_check_offsets", lambda self, rows: kept.append(len(self._last)) or check(self, rows))  # type: ignore[func-returns-value]
    output: list[tuple[int, str, list[int]]] = [(0, "a", [])] * 2 + [(1, str(at), [at]) for at in range(40)] + [(2, "z", [])]
    blocks = list(answered([written(output, list(range(44)))], "flatmap", 3))
    assert [at for rows_of, *_ in blocks for at in rows_of] == [at for at, *_ in output]
    assert max(kept) == 40 // 4 + 2


@pytest.mark.parametrize("mode", ["map", "filter"])
def test_records_that_wait_for_long_wait_on_disk(bench: Bench, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transform_input, "_MOST_HELD_BYTES", 9)
    monkeypatch.setattr(replay_reader, "_BLOCK_RECORDS", 1)
    made: list[RecordBlock] = []
    on_disk = transform_input._on_disk
    monkeypatch.setattr(transform_input, "_on_disk", lambda *of: made.append(on_disk(*of)) or made[-1])  # type: ignore[func-returns-value]
    body = """
    out = reader.read_all()
    out = pa.table({"name": out["value"].cast(pa.string()), "n": [1, 300, 1], "offset": out["offset"]})
    write(out.schema, (batch.columns for batch in out.to_batches()))
    """
    report = bench.stage(body, [b"aaaa", b"bbbb", b"cccc"], mode=mode)
    assert len(made) == 2
    assert placed(report, "name") == [("aaaa", 10), ("cccc", 13)]
    assert [(offset, value) for offset, value, *_ in dead(report)] == [(11, b"bbbb")]
    assert [path.name for path in (bench.folder / "programs").iterdir() if path.name.startswith("tmp")] == []


# Hostile streams, without a process.


def answered(chunks: Sequence[bytes], mode: str, count: int) -> Iterator[tuple[list[int], list[int], dict[int, str]]]:
    """Offsets of the rows, offsets of their records, and reasons, of each block."""
    job = JobSpec(batch="b", config={}, staging="", format=Format(type="arrow"), tables=(),
              program=ProgramSpec("", None, "", stdin="arrow", mode=mode),
              held={SOURCE: RecordBlock.of(range(count), [0] * count, [b"v"] * count)})  # fmt: skip
    piece = Piece(SOURCE, Range(0, count))
    feed = Feed(job, piece, job.reader(piece), _Nowhere(), {}, keep=True)
    assert list(feed)
    for found, held in Answers(iter(chunks), feed, mode, "t"):
        owners = range(found.count) if found.owners is None else found.owners.tolist()
        for array in found.arrays:
            array.validate(full=True)
            array.to_pylist()
        yield [held.offsets[at] for at in owners], held.offsets, found.reasons
    assert mode != "map" or not len(feed.waiting)


OUTPUT = st.lists(st.tuples(st.integers(-1, 6), st.text(max_size=3), st.lists(st.integers(0, 9), max_size=2)), max_size=8)


def written(rows: Sequence[tuple[int, str, list[int]]], cuts: Sequence[int]) -> bytes:
    schema = pa.schema([("text", pa.string()), ("list", pa.list_(pa.int32())), ("offset", pa.int64())])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        ends = sorted({cut % (len(rows) + 1) for cut in cuts} | {0, len(rows)})
        for start, end in pairwise(ends):
            part = rows[start:end]
            writer.write_batch(
                pa.record_batch(
                    [[text for _, text, _ in part], [item for *_, item in part], [at for at, *_ in part]], schema=schema
                )
            )
    return sink.getvalue()


@settings(max_examples=2 * settings.default.max_examples)
@given(OUTPUT, st.lists(st.integers(0, 8), max_size=3), st.sampled_from(["map", "filter", "flatmap"]), st.integers(1, 6))
def test_any_rows_are_those_of_the_contract_or_an_error(
    output: list[tuple[int, str, list[int]]], cuts: list[int], mode: str, count: int
) -> None:
    """An independent statement of the rules: which lists of offsets are valid answers to records 0 to count - 1."""
    offsets = [at for at, *_ in output]
    valid = {
        "map": offsets == list(range(count)),
        "filter": sorted(set(offsets)) == offsets and set(offsets) <= set(range(count)),
        "flatmap": sorted(offsets) == offsets and set(offsets) <= set(range(count)),
    }[mode]
    data = written(output, cuts)
    if not valid:
        with pytest.raises(TransformFailed):
            list(answered([data], mode, count))
        return
    blocks = list(answered([data], mode, count))
    assert [at for rows_of, *_ in blocks for at in rows_of] == offsets
    records = [at for _, held, _ in blocks for at in held]
    assert records == list(range(len(records)))  # each once, in order; the rest is filtered
    assert set(offsets) <= set(records)


def written_table(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def of_many_types(count: int) -> bytes:
    """A stream of a row for each record, with a column of each kind that is read."""
    columns = {
        "offset": pa.array(range(count)), "text": pa.array(["a text"] * count),
        "view": pa.array(["more than twelve bytes"] * count, pa.string_view()),
        "word": pa.array(["a"] * count).dictionary_encode(),
        "list": pa.array([[1, 2]] * count, pa.large_list(pa.int64())), "pair": pa.array([[1, 2]] * count, pa.list_(pa.int8(), 2)),
        "struct": pa.array([{"a": 1, "b": "x"}] * count), "ns": pa.array([1000] * count, pa.timestamp("ns")),
        "time": pa.array([1] * count, pa.time32("s")), "day": pa.array([0] * count, pa.date64()), "null": pa.nulls(count),
        "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1"] * count)),
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"1" * 16] * count, pa.binary(16))),
    }  # fmt: skip
    batch, sink = pa.record_batch(columns), io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


@settings(max_examples=4 * settings.default.max_examples)
@given(st.data())
def test_damaged_streams_end_in_an_error_or_in_whole_rows(data: st.DataObject) -> None:
    """Bytes are changed, left out or repeated: never a crash, never a record twice."""
    mode, count = data.draw(st.sampled_from(["map", "filter", "flatmap"])), 4
    cuts = data.draw(st.lists(st.integers(0, 4), max_size=2))
    sound = st.sampled_from([written([(at, "text", [at, at]) for at in range(count)], cuts), of_many_types(count)])
    raw = bytearray(data.draw(sound))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        change = data.draw(st.sampled_from(["set", "cut", "drop", "repeat"]))
        if change == "set":
            raw[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        elif change == "cut":
            del raw[at + 1 :]
        elif change == "drop":
            del raw[at : at + data.draw(st.integers(1, 16))]
        else:
            raw[at:at] = raw[at : at + data.draw(st.integers(1, 64))]
        if not raw:
            break
    try:
        blocks = list(answered([bytes(raw)] if raw else [], mode, count))
    except TransformFailed:
        return
    offsets = [at for rows_of, *_ in blocks for at in rows_of]
    assert offsets == sorted(offsets)
    assert mode == "flatmap" or len(set(offsets)) == len(offsets)
    assert mode != "map" or offsets == list(range(count))
    records = [at for _, held, _ in blocks for at in held]
    assert records == list(range(len(records)))


def test_blocks_of_one_batch_keep_records_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_BLOCK_ROWS", 2)
    output = [(at, "x", [1]) for at in (0, 0, 0, 1, 3, 3)]
    blocks = list(answered([written(output, [])], "flatmap", 4))
    assert [rows_of for rows_of, *_ in blocks] == [[0, 0, 0], [1], [3, 3]]
    assert [held for _, held, _ in blocks] == [[0], [1], [2, 3]]


@pytest.mark.parametrize(
    ("mode", "offsets", "message"),
    [
        ("map", [0, 0], "row 2 of its output, column offset: expected 1, the next record's, found 0"),
        ("map", [0], "transform in mode map (t): 2 records in, 1 out"),
        ("map", [0, 1, 2], "transform in mode map (t): 2 records in, 3 out"),
        ("filter", [1, 0], "row 2 of its output, column offset: expected 1 or a later one: rows in offset order, found 0"),
        ("filter", [0, 0], "row 2 of its output, column offset: expected one row for a record at most in mode filter, found 0"),
        ("filter", [0, 1, 1], "transform in mode filter (t): 2 records in, 3 out"),
        ("filter", [2], "row 1 of its output, column offset: expected the offset of a record of the input, found 2"),
        ("filter", [-(2**63)], f"expected the offset of a record of the input, found {-(2**63)}"),
        ("flatmap", [1, 0], "row 2 of its output, column offset: expected 1 or a later one: rows in offset order, found 0"),
        ("flatmap", [0, 2**62], f"expected the offset of a record of the input, found {2**62}"),
        ("flatmap", [0, None], "column offset: 1 of 2 rows have NULL"),
    ],
)  # fmt: skip
def test_offsets_that_lie_are_named(mode: str, offsets: list[Any], message: str) -> None:
    with pytest.raises(TransformFailed) as raised:
        list(answered([written([(at, "x", []) for at in offsets], [])], mode, 2))
    assert message in raised.value.what
