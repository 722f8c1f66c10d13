"""Times of Parquet's INT96, as Spark writes them unless told otherwise: exact, or refused."""

from __future__ import annotations

import io
import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.errors import ReadFailed
from kpipe.offsets import Range
from resources.sources.files.content import Facts
from resources.sources.files.parquet_rows import read_rows

FAR = pa.array([datetime(9999, 12, 31), datetime(1, 1, 1), None, datetime(2024, 1, 2, 3, 4, 5, 6)], pa.timestamp("us"))
FINE = pa.array([None, None, None, 1_700_000_000_123_456_789], pa.timestamp("ns"))


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data, self.facts = data, Facts(len(data), "x")

    def read(self, start: int, end: int) -> bytes:
        return self._data[start:end]


def _read(times: pa.Array, repeat: int = 1, **options: Any) -> list[Any]:
    table = pa.table({
        "a": times, "s.t": pa.StructArray.from_arrays([times], names=["x.y"]), "b": pa.array(range(len(times))),
        "l": pa.ListArray.from_arrays(list(range(len(times) + 1)), times),
    })  # fmt: skip
    out = io.BytesIO()
    pq.write_table(pa.concat_tables([table] * repeat), out, use_deprecated_int96_timestamps=True, **options)
    found = read_rows("f", _Bytes(out.getvalue()), Range(0, repeat * len(times)))
    return [json.loads(line) for block in found for line in block.column("line").to_pylist()]


def test_times_of_any_year_are_exact_at_any_depth() -> None:
    texts = ["9999-12-31T00:00:00.000000", "0001-01-01T00:00:00.000000", None, "2024-01-02T03:04:05.000006"]
    expected = [{"a": text, "s.t": {"x.y": text}, "b": at, "l": [text]} for at, text in enumerate(texts)]
    assert _read(FAR) == expected
    assert _read(FAR, 1000, row_group_size=700) == expected * 1000


@pytest.mark.parametrize("repeat", [1, 1000])
def test_times_that_microseconds_do_not_have_are_refused(repeat: int) -> None:
    with pytest.raises(ReadFailed, match="file f: column 'a': a time is finer than microseconds"):
        _read(FINE, repeat)
