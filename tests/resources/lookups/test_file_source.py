"""Lookups from files: what is taken, with which types, and what is refused in which words."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.errors import InvalidPipeline
from resources.lookups.reference_table import Reference

Read = Callable[..., Reference]


def test_csv_is_text_but_for_what_is_declared(read: Read, tmp_path: Path) -> None:
    content = '\ufeffcode,name,n,day\n007,"a ""b"", c\nd",1.50,2026-11-21\nNA,,,\nNULL,"",-2,\n'
    (tmp_path / "x.csv").write_text(content)
    found = read("name", "N", "day", path="x.csv", key="CODE", columns={"n": "DECIMAL(5,2)", "day": "DATE"})
    assert found.columns.to_dict() == {"code": "VARCHAR", "name": "VARCHAR", "n": "DECIMAL(5,2)", "day": "DATE"}
    assert found.table.to_pylist() == [
        {"code": "007", "name": 'a "b", c\nd', "n": Decimal("1.50"), "day": date(2026, 11, 21)},
        {"code": "NA", "name": None, "n": None, "day": None},
        {"code": "NULL", "name": "", "n": Decimal("-2.00"), "day": None},
    ]
    assert (found.version.rows, found.version.sha256) == (3, hashlib.sha256(content.encode()).hexdigest())


@pytest.mark.parametrize(("name", "fields"), [("x.tsv", {}), ("x.txt", {"format": "csv", "delimiter": "\t"})])
def test_other_delimiters(read: Read, tmp_path: Path, name: str, fields: dict[str, str]) -> None:
    (tmp_path / name).write_text("k\tv\na,b\tc\n")
    assert read("v", path=name, key="k", **fields).table.to_pylist() == [{"k": "a,b", "v": "c"}]


@pytest.mark.parametrize("text", ['[{"k": 1, "v": {"w": 1.5}, "x": 1}, {"k": 2}]', '{"k": 1, "v": {"w": 1.5}}\n\n{"k": 2}\n'])
def test_json_has_the_types_of_records(read: Read, tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    found = read("v", path="x.json", key="k")
    assert found.columns.to_dict() == {"k": "BIGINT", "v": "STRUCT(w DOUBLE)"}
    assert found.table.to_pylist() == [{"k": 1, "v": {"w": 1.5}}, {"k": 2, "v": None}]


def test_parquet_has_its_own_types_and_others_are_those_that_hold_the_same(read: Read, tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": pa.array(["b", "a"]).dictionary_encode(),
            "at": pa.array([1_000_000_000, None], pa.timestamp("ns")),
            "big": pa.array(["x", "y"], pa.large_string()),
            "n": pa.array([1, 2], pa.uint16()),
            "list": pa.array([[1], []], pa.list_(pa.int32())),
            "not asked for": pa.array([1, 2]),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    found = read("at", "big", "n", "list", path="x.parquet", key="k")
    assert found.columns.to_dict() == {"k": "VARCHAR", "at": "TIMESTAMP", "big": "VARCHAR", "n": "USMALLINT", "list": "INTEGER[]"}
    assert [row["n"] for row in found.table.to_pylist()] == [2, 1], "in the order of the key"
    assert str(found.table.to_pylist()[1]["at"]) == "1970-01-01 00:00:01"


def test_a_file_of_no_rows_answers_nothing(read: Read, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("k,v\n")
    (tmp_path / "x.json").write_text("[]")
    pq.write_table(pa.table({"k": pa.array([], pa.int32()), "v": pa.array([], pa.int32())}), tmp_path / "x.parquet")
    assert [read("v", path=f"x.{kind}", key="k").version.rows for kind in ("csv", "json", "parquet")] == [0, 0, 0]


REFUSED = [
    ("x.csv", "", "is empty", {}),
    ("x.csv", "k,v\n1,2,3\n", "cannot be read as csv", {}),
    ("x.csv", b"k,v\n1,\xff\n", "UTF8", {}),
    ("x.csv", "k,v\n1,a\n2,b\n1,c\n", "duplicate key k '1': expected one row, found 2", {}),
    ("x.csv", "k,v\n1,a\n,b\n", "the key k is NULL", {}),
    ("x.csv", "k,w\n1,a\n", "no column v -> there are k, w", {}),
    ("x.csv", "k,v,V\n1,a,b\n", "2 columns named v", {}),
    ("x.csv", "k,v\n1,a\n2,1.5\n", "row 1: v: 'a' is not a BIGINT", {"columns": {"v": "BIGINT"}}),
    ("x.csv", "k,v\n1,2\n2,1.5\n", "row 2: v: '1.5' is not a BIGINT", {"columns": {"v": "BIGINT"}}),
    ("x.json", "{", "item 1", {}),
    ("x.json", '[{"k": 1},', "invalid JSON", {}),
    ("x.json", '[{"k": 1, "v": 1}, 7]', "item 2", {}),
    ("x.json", '{"k": {"a": 1}, "v": 1}', "k: not a type of a key: STRUCT", {}),
    ("x.json", '{"k": 1, "v": "a"}', "item 1", {"columns": {"v": "BIGINT"}}),
    ("x.parquet", "PAR1", "cannot be read as parquet", {}),
    ("x.dat", "k,v\n", "unknown format", {}),
    ("x.csv", "k,v\n" + "".join(f"{n},{'v' * 100}\n" for n in range(11_000)), "larger than 1 MiB", {"max_mb": 1}),
]


@pytest.mark.parametrize(("name", "content", "words", "fields"), REFUSED, ids=lambda value: str(value)[:30])
def test_what_cannot_be_right_is_refused(
    read: Read, tmp_path: Path, name: str, content: str | bytes, words: str, fields: dict[str, object]
) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InvalidPipeline) as raised:
        read("v", path=name, key="k", **fields)
    assert words in str(raised.value) and "lookups.l" in raised.value.what and raised.value.hint


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(read: Read, tmp_path: Path) -> None:
    rows = 50_000
    table = pa.table({"k": pa.array(range(rows)), "v": pa.array(["v" * 1000] * rows)})
    pq.write_table(table, tmp_path / "x.parquet", compression="zstd")
    assert (tmp_path / "x.parquet").stat().st_size < 1 << 20
    with pytest.raises(InvalidPipeline, match="larger than 1 MiB"):
        read("v", path="x.parquet", key="k", max_mb=1)


def test_values_that_their_type_does_not_have_are_refused(read: Read, tmp_path: Path) -> None:
    """Text would become a record that is not JSON."""
    buffers = [None, pa.py_buffer(b"\0\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xff\xfe")]
    pq.write_table(pa.table({"k": [1], "v": pa.Array.from_buffers(pa.string(), 1, buffers)}), tmp_path / "x.parquet")
    with pytest.raises(InvalidPipeline, match=r"column v: a text is not UTF-8"):
        read("v", path="x.parquet", key="k")


def test_where_files_may_lie(read: Read, tmp_path: Path) -> None:
    for path, words in (("none.csv", "does not exist"), ("../x.csv", "leads out of|does not exist"), (".", "folder")):
        with pytest.raises(InvalidPipeline, match=words):
            read("v", path=path, key="k", format="csv")
    (tmp_path / "x.csv").write_text("k,v\n1,a\n")
    assert read("v", path=str(tmp_path / "x.csv"), key="k").version.rows == 1
    (tmp_path / "x.csv").chmod(0o666)
    with pytest.raises(InvalidPipeline, match="every user"):
        read("v", path="x.csv", key="k")


def test_numbers_of_an_array_keep_all_digits(read: Read, tmp_path: Path) -> None:
    """DuckDB's casts of JSON make 9007199254740993.0 of an item 9007199254740992.0, and 1.10 becomes 1.1."""
    for name, text in (("a.json", '[{"k": 9007199254740993.0, "v": 1.10}]'), ("b.json", '{"k": 9007199254740993.0, "v": 1.10}')):
        (tmp_path / name).write_text(text)
        found = read("v", path=name, key="k", columns={"k": "BIGINT", "v": "VARCHAR"})
        assert found.table.to_pylist() == [{"k": 9007199254740993, "v": "1.10"}]
