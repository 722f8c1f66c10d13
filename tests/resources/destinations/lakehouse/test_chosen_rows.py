"""Single rows of a Parquet file by position."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resources.destinations.lakehouse import chosen_rows as module
from resources.destinations.lakehouse.chosen_rows import chosen_rows


def test_any_positions_give_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS", 7)
    chance, path = random.Random(5), tmp_path / "a.parquet"
    with pq.ParquetWriter(path, pa.schema([("n", pa.int64()), ("text", pa.string())])) as out:
        for first in range(0, 100, 25):
            numbers = list(range(first, first + 25))
            out.write_table(pa.table({"n": numbers, "text": [f"t{n}" for n in numbers]}))
    for count in (0, 1, 2, 13, 50, 100):
        places = sorted(chance.sample(range(100), count))
        with pq.ParquetFile(path) as source:
            found = [text for batch in chosen_rows(source, ["text"], np.array(places)) for text in batch["text"].to_pylist()]
            rows = [len(batch) for batch in chosen_rows(source, [], np.array([*places, 100, 101]))]
        assert found == [f"t{place}" for place in places] and sum(rows) == count and all(number <= 7 for number in rows)


def test_row_groups_without_such_rows_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, pa.schema([("text", pa.string())]), compression="none") as out:
        for first in range(3):
            out.write_table(pa.table({"text": [f"text {first} {at}" for at in range(10)]}))
    with pq.ParquetFile(path) as source:
        ends = [source.metadata.row_group(at).column(0) for at in range(3)]
        starts = [end.dictionary_page_offset or end.data_page_offset for end in ends]
    data = bytearray(path.read_bytes())
    for at in (0, 2):
        data[starts[at] : starts[at] + 20] = b"\xff" * 20
    path.write_bytes(data)
    with pq.ParquetFile(path) as source:
        (batch,) = chosen_rows(source, ["text"], np.array([11, 19]))
        assert batch["text"].to_pylist() == ["text 1 1", "text 1 9"]
        with pytest.raises(OSError):
            list(chosen_rows(source, ["text"], np.array([1])))
