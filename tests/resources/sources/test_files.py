"""Files as a source: which files are splits, where their records begin and end, and which changes are refused."""

from __future__ import annotations

import bz2
import gzip
import os
import pickle
import random
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from kpipe.definition.source import Files
from kpipe.errors import ReadFailed
from kpipe.offsets import Range
from resources.object_store.config import StoreAccess
from resources.sources.connector import Split
from resources.sources.files.connector import FileConnector
from resources.sources.files.listing import listed, regex


def connector(folder: Path, pattern: str = "*", skip: int = 0, **options: object) -> FileConnector:
    return FileConnector(Files.model_validate({"path": f"{folder}/{pattern}", **options}), skip_lines=skip)


def only(source: FileConnector) -> Split:
    (split,) = source.splits()
    return split


def records(source: FileConnector, split: Split, span: Range | None = None) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for block in source.read(split.name, split.identity, span or Range(0, split.end)):
        found += zip(block.offsets, [value or b"" for value in block.values], strict=True)
    return found


def written(write: Callable[..., object], rows: int = 5, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    write(pa.table({"id": pa.array(range(rows), pa.int64()), "name": pa.array(["x"] * rows, pa.string())}), sink, **options)
    return bytes(sink.getvalue())


def test_a_record_is_a_line_at_the_offset_of_its_first_byte(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo\n\nthree\n")
    source = connector(tmp_path)
    assert records(source, only(source)) == [(0, b"one"), (4, b"two"), (9, b"three")]


def test_half_a_line_is_read_once_its_newline_is_written(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"one\ntw")
    source = connector(tmp_path)
    assert only(source).end == 4
    with file.open("ab") as out:
        out.write(b"o\n")
    assert records(source, only(source), Range(4, 8)) == [(4, b"two")]


def test_a_complete_file_needs_no_last_newline(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo")
    source = connector(tmp_path, grows=False)
    split = only(source)
    assert split.complete
    assert records(source, split) == [(0, b"one"), (4, b"two")]


@pytest.mark.parametrize("content", [b"", b"no newline yet"])
def test_a_file_without_a_record_is_not_a_split(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    assert connector(tmp_path).splits() == []


def test_crlf_and_a_byte_order_mark_are_not_part_of_a_record(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\n\r\nth\rree\r\n")
    source = connector(tmp_path)
    assert [value for _, value in records(source, only(source))] == [b"one", b"two", b"th\rree"]


def test_lines_before_the_first_record_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"# note\nid,name\n1,x\n")
    source = connector(tmp_path, skip=2)
    split = only(source)
    assert records(source, split) == [(15, b"1,x")]
    assert records(source, split, Range(0, 3)) == []


def test_any_cut_of_a_file_gives_each_record_once(tmp_path: Path) -> None:
    chance = random.Random(56)
    lines = [b"x" * chance.choice((0, 1, 3, 50, 5000)) + chance.choice((b"\n", b"\r\n")) for _ in range(200)]
    (tmp_path / "a").write_bytes(b"head\n" + b"".join(lines))
    source = connector(tmp_path, skip=1)
    split = only(source)
    whole = records(source, split)
    for _ in range(30):
        cuts = sorted({0, split.end, *(chance.randrange(split.end) for _ in range(chance.randrange(12)))})
        pieces = [records(source, split, Range(start, end)) for start, end in pairwise(cuts)]
        assert [record for piece in pieces for record in piece] == whole
    assert len(whole) == sum(len(line.strip()) > 0 for line in lines)


def test_lines_longer_than_a_chunk_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 9_000_000 + b"\nb\n")
    source = connector(tmp_path)
    split = only(source)
    assert [len(value) for _, value in records(source, split)] == [9_000_000, 1]
    assert [at for at, _ in records(source, split, Range(4_000_000, split.end))] == [9_000_001]


def test_a_line_without_end_is_an_error_instead_of_memory(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as out:
        out.write(b"first\n")
        out.truncate(40 << 20)
    with pytest.raises(ReadFailed, match="longer than"):
        connector(tmp_path).splits()


def test_appending_keeps_the_identity(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"one\n")
    source = connector(tmp_path)
    before = only(source)
    with file.open("ab") as out:
        out.write(b"two\n")
    after = only(source)
    assert (after.identity, after.end) == (before.identity, 8)


@pytest.mark.parametrize("grows", [True, False])
def test_other_content_of_the_same_name_is_another_split(tmp_path: Path, grows: bool) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"one\ntwo\n")
    source = connector(tmp_path, grows=grows)
    before = only(source)
    file.write_bytes(b"ONE\ntwo\n")
    assert only(source).identity != before.identity
    with pytest.raises(ReadFailed, match="was replaced while it was read"):
        records(source, before)


def test_a_complete_file_that_grows_is_another_split(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"one\n")
    source = connector(tmp_path, grows=False)
    before = only(source)
    with file.open("ab") as out:
        out.write(b"two\n")
    assert only(source).identity != before.identity


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"one\ntwo\n")
    source = connector(tmp_path)
    split = only(source)
    file.write_bytes(b"one\n")
    with pytest.raises(ReadFailed, match="truncated"):
        records(source, split)


def test_a_copy_in_another_process_reads_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n")
    source = connector(tmp_path)
    split = only(source)
    assert records(pickle.loads(pickle.dumps(source)), split) == [(0, b"one")]


@pytest.mark.parametrize(
    ("content", "format"),
    [
        (gzip.compress(b"x\n", mtime=0), "gzip"),
        (bz2.compress(b"x\n"), "bzip2"),
        (bz2.compress(b""), "bzip2"),
        (written(pq.write_table), "Parquet"),
        (written(pq.write_table, 0), "Parquet"),
        (written(orc.write_table), "ORC"),
        (written(orc.write_table, compression="zstd"), "ORC"),
        (written(orc.write_table, 0), "ORC"),
        ("x\n".encode("utf-16"), "UTF-16"),
    ],
    ids=["gzip", "bzip2", "bzip2-empty", "parquet", "parquet-empty", "orc", "orc-zstd", "orc-empty", "utf-16"],
)
def test_other_formats_are_refused_by_name(tmp_path: Path, content: bytes, format: str) -> None:
    (tmp_path / "a.gz").write_bytes(content)
    with pytest.raises(ReadFailed, match=rf"a\.gz: expected lines of UTF-8 text, found {format}"):
        connector(tmp_path).splits()


@pytest.mark.parametrize(
    "line", ["ORCL,2026-01-02,101.5", "ORC", "PAR1-77,\u00fc", "PAR1", "BZh9,1", "BZh", "PK,1", "Obj,1", "ORC\t\x1b[1mbold"]
)
def test_text_that_begins_with_the_letters_of_another_format_is_read(tmp_path: Path, line: str) -> None:
    (tmp_path / "a").write_bytes(line.encode() + b"\nx\n")
    source = connector(tmp_path)
    assert records(source, only(source))[0] == (0, line.encode())


@pytest.mark.parametrize("name", [b"line\nbreak", b"not-\xff-utf8", b"bell\x07"])
def test_names_that_cannot_be_printed_are_refused(tmp_path: Path, name: bytes) -> None:
    (tmp_path / os.fsdecode(name)).write_bytes(b"x\n")
    with pytest.raises(ReadFailed, match="cannot be printed") as caught:
        connector(tmp_path).splits()
    assert str(caught.value).isprintable()


def test_names_with_quotes_spaces_and_wildcards_are_read(tmp_path: Path) -> None:
    names = ["a b", "it's", 'a"b', "[x]", "50%", "a:1", "-rf", "ü"]
    for name in names:
        (tmp_path / name).write_bytes(b"x\n")
    assert sorted(split.name for split in connector(tmp_path).splits()) == sorted(f"{tmp_path}/{name}" for name in names)


def test_what_is_not_a_file_is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    (tmp_path / ".hidden").write_bytes(b"x\n")
    (tmp_path / "a").write_bytes(b"x\n")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert [Path(split.name).name for split in connector(tmp_path).splits()] == ["a", "link"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.csv", ["a.csv"]),
        ("**/*.csv", ["a.csv", "d/b.csv", "d/e/c.csv"]),
        ("*/*.csv", ["d/b.csv"]),
        ("?.csv", ["a.csv"]),
        ("[ab].csv", ["a.csv"]),
        ("[!a].csv", []),
        ("d/**/[a-c].csv", ["d/b.csv", "d/e/c.csv"]),
        ("a.csv", ["a.csv"]),
        ("a+csv", []),
    ],
)
def test_wildcards(tmp_path: Path, pattern: str, found: list[str]) -> None:
    for name in ("a.csv", "d/b.csv", "d/e/c.csv", "d/e/c.txt", "aXcsv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x\n")
    assert [split.name for split in connector(tmp_path, pattern).splits()] == [f"{tmp_path}/{name}" for name in found]


def test_a_path_that_matches_folders_only_is_refused(tmp_path: Path) -> None:
    """It matched no file, and the run ended well."""
    for path in (f"{tmp_path}/**", "s3://bucket/in/**"):
        with pytest.raises(ValueError, match=r"\*\* as the last part matches folders only: expected .*/\*\*/\*"):
            Files.model_validate({"path": path})


def test_a_wildcard_matches_no_empty_name() -> None:
    """An object whose name ends with a slash is the marker of a folder."""
    for pattern in ("s3://b/in/*", "s3://b/in/**/*"):
        assert not re.match(regex(pattern), "s3://b/in/")
    assert re.match(regex("s3://b/in/**/*"), "s3://b/in/a") and re.match(regex("s3://b/in/a*"), "s3://b/in/a")


@pytest.mark.parametrize(
    ("path", "prefix"),
    [("in/2026-*/a*.csv", "in/2026-"), ("in/**/*", "in/"), ("in/[ab]/c", "in/"), ("in/a?", "in/a"), ("in/a.csv", "in/a.csv")],
)
def test_objects_are_listed_below_the_path_up_to_its_first_wildcard(
    monkeypatch: pytest.MonkeyPatch, path: str, prefix: str
) -> None:
    asked: list[str] = []

    def found(name: str) -> list[object]:
        asked.append(name)
        return []

    monkeypatch.setattr("resources.sources.files.listing.store_of", lambda _: SimpleNamespace(listed=found))
    assert listed(f"s3://b/{path}", "s3://b/in", 9, StoreAccess(None, "", (), "s3")) == []
    assert asked == [f"s3://b/{prefix}"]


def test_an_empty_file_of_parquet_has_no_rows_yet(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").write_bytes(b"")
    source = connector(tmp_path, type="parquet")
    assert list(source.splits()) == []
    (tmp_path / "_SUCCESS").write_bytes(written(pq.write_table))
    assert only(source).end == 5


def test_more_files_than_allowed_are_refused(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / str(number)).write_bytes(b"x\n")
    with pytest.raises(ReadFailed, match="at most 2 files"):
        connector(tmp_path, max_files=2).splits()


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReadFailed, match="No such file"):
        connector(tmp_path / "missing").splits()


def test_an_unchanged_file_is_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"one\n")
    source = connector(tmp_path)
    before = only(source)
    monkeypatch.setattr(source, "_inspected", lambda *_: pytest.fail("opened again"))
    assert only(source) == before


def test_names_of_fields_are_those_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'\xef\xbb\xbfid,"name"\r\n1,x\r\n')
    source = connector(tmp_path, header=True)
    split = only(source)
    assert source.header(split.name) == ("id", "name")
    assert records(source, split) == [(14, b"1,x")]


@pytest.mark.parametrize("line", [b"id,,x\n", b"id,ID\n", b"\xff\xfa,x\n"])
def test_a_first_line_that_names_no_fields_is_refused(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "a").write_bytes(line + b"1,2\n")
    with pytest.raises(ReadFailed, match="does not name the fields"):
        connector(tmp_path, header=True).header(f"{tmp_path}/a")


def test_a_header_of_an_exported_table_or_with_variables(tmp_path: Path) -> None:
    """Coordinates of another topic would be columns beside those of this one; a variable would be lost."""
    (tmp_path / "a").write_bytes(b"id,_kafka_offset,_KAFKA_x,name\n7,1,2,x\n")
    assert connector(tmp_path, header=True).header(f"{tmp_path}/a") == ("id", "@kafka_1", "@kafka_2", "name")
    (tmp_path / "a").write_bytes(b'"@timestamp",id\n7,1\n')
    with pytest.raises(ReadFailed, match="'@timestamp': names with @ are variables"):
        connector(tmp_path, header=True).header(f"{tmp_path}/a")
