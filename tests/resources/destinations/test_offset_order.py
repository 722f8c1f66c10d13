"""Staged rows are read in the order of their offsets, whatever files and row groups they lie in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resources.destinations import offset_order
from resources.destinations.offset_order import OffsetOrder, Origin
from resources.destinations.staged_file_check import Proven

_Row = tuple[str, int, int | None]  # topic, partition, offset


def file(path: Path, rows: Sequence[_Row], group: int = 7, topics: bool = True) -> Proven:
    """A staged file in row groups of that size."""
    names = ["_kafka_topic", "_kafka_partition", "_kafka_offset", "value"]
    kinds = [pa.string(), pa.int32(), pa.int64(), pa.string()]
    columns = [*(zip(*rows, strict=True) if rows else ([], [], [])), [f"{path.name} {n}" for n in range(len(rows))]]
    table = pa.table([pa.array(list(c), k) for c, k in zip(columns, kinds, strict=True)], names)
    table = table if topics else table.drop_columns(["_kafka_topic"])
    pq.write_table(table, path, row_group_size=group)
    return Proven(str(path), len(rows), 0, tuple(table.column_names), ())


def read(order: OffsetOrder, origin: Origin) -> list[tuple[str, int | None, str]]:
    """File, offset and value of each row of a partition."""
    return [
        (Path(found.path).name, row["_kafka_offset"], row["value"])
        for found, table in order.blocks(origin)
        for row in table.to_pylist()
    ]


@pytest.mark.parametrize("seed", range(20))
def test_any_layout_gives_offsets_in_order_and_every_row_once(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are cut into pieces, pieces are dealt to files in any order, and a record may give several rows."""
    draw = random.Random(seed)
    monkeypatch.setattr(offset_order, "_INDEXED", draw.choice([1, 3, 64]))
    monkeypatch.setattr(offset_order, "_CACHED", draw.choice([0, 1 << 20]))
    files: list[list[_Row]] = [[] for _ in range(draw.randint(1, 4))]
    pieces = []
    for origin in ((topic, number) for topic in ("a", "b") for number in range(draw.randint(1, 3))):
        offsets = sorted(draw.choices(range(50), k=draw.randint(0, 60)))
        cuts = sorted(draw.choices(range(51), k=draw.randint(0, 5)))
        for start, end in zip([0, *cuts], [*cuts, 51], strict=True):
            pieces.append([(*origin, offset) for offset in offsets if start <= offset < end])
    draw.shuffle(pieces)
    for piece in pieces:
        draw.choice(files).extend(piece)
    made = [file(tmp_path / f"{n}", rows, draw.randint(1, 30)) for n, rows in enumerate(files)]
    order = OffsetOrder(made, draw.randint(1, 9), draw.choice([None, 1, 100]))
    given = [(row, f"{n} {at}") for n, rows in enumerate(files) for at, row in enumerate(rows)]
    assert set(order.origins) == {row[:2] for row, _ in given}
    for origin in order.origins:
        expected = sorted(((row[2], value) for row, value in given if row[:2] == origin), key=lambda item: item[0] or 0)
        assert [(offset, value) for _, offset, value in read(order, origin)] == expected


def test_of_two_rows_of_one_offset_that_of_the_earlier_file_is_first(tmp_path: Path) -> None:
    files = [file(tmp_path / name, [("a", 0, n) for n in (1, 3, 5)]) for name in ("deletes", "rows")]
    found = [(name, offset) for name, offset, _ in read(OffsetOrder(files, 10, None), ("a", 0))]
    assert found == [(name, offset) for offset in (1, 3, 5) for name in ("deletes", "rows")]


def test_rows_without_offset_or_topic_keep_their_places(tmp_path: Path) -> None:
    files = [file(tmp_path / str(n), [("", 0, None)] * 5 + [("", 1, None)] * 2, 3, topics=False) for n in range(2)]
    order = OffsetOrder(files, 2, None)
    assert order.origins == [("", 0), ("", 1)]
    assert [value for *_, value in read(order, ("", 0))] == [f"{n} {at}" for n in range(2) for at in range(5)]


def test_a_file_of_many_ranges_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading partitions as the files hold them decodes each row group once, however many ranges lie in it."""
    decoded: list[int] = []
    real = pq.ParquetFile.read_row_group
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", lambda self, n: decoded.append(n) or real(self, n))
    order = OffsetOrder([file(tmp_path / "0", [("", n, at) for n in range(300) for at in range(2)], 100, topics=False)], 10, None)
    assert sum(len(read(order, origin)) for origin in order.origins) == 600
    assert decoded == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("shared", [False, True])
def test_large_rows_are_read_in_blocks_of_limited_bytes(tmp_path: Path, shared: bool) -> None:
    """Arrow fills a batch across row groups: without a limit of bytes, these 64 rows of 1 MiB are one block."""
    rows = 64
    topics = ["a"] * rows if not shared else ["a"] * (rows - 1) + ["b"]
    columns = [topics, [0] * rows, range(rows), ["x" * (1 << 20)] * rows]
    names = ["_kafka_topic", "_kafka_partition", "_kafka_offset", "value"]
    pq.write_table(pa.table([pa.array(list(column)) for column in columns], names), tmp_path / "0", row_group_size=16)
    order = OffsetOrder([Proven(str(tmp_path / "0"), rows, 0, tuple(names), ())], 4096, 4 << 20)
    blocks = [table for _, table in order.blocks(("a", 0))]
    assert sum(table.num_rows for table in blocks) == topics.count("a")
    assert max(table.nbytes for table in blocks) < 5 << 20
