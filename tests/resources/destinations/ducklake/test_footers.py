"""Bounds in the footers of staged files. Needs no DuckLake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.errors import SchemaConflict
from resources.destinations.ducklake.footers import check_texts
from resources.destinations.staged_file_check import Proven

LONG, NUL = "z" * 5000, "a\x00b"


def checked(tmp_path: Path, values: list[Any], kind: pa.DataType) -> None:
    path = tmp_path / "staged.parquet"
    pq.write_table(pa.table({"text": pa.array(values, kind)}), path)
    check_texts("t", [Proven(str(path), len(values), path.stat().st_size, ("text",), ())])


@pytest.mark.parametrize(
    ("wrap", "kind"),
    [
        (lambda text: text, pa.string()),
        (lambda text: [None, text], pa.list_(pa.string())),
        (lambda text: {"n": 1, "s": text}, pa.struct([("n", pa.int64()), ("s", pa.string())])),
        (lambda text: [("k", text)], pa.map_(pa.string(), pa.string())),
    ],
    ids=["text", "list", "struct", "map"],
)
def test_a_long_text_does_not_hide_one_with_nul(tmp_path: Path, wrap: Any, kind: pa.DataType) -> None:
    """The footer has no greatest value then, but the least one, which DuckLake stores."""
    checked(tmp_path, [wrap("a"), wrap(LONG), None], kind)
    checked(tmp_path, [wrap(LONG), wrap("b\\u0000")], kind)
    checked(tmp_path, [None, None], kind)
    for values in ([NUL, LONG], [LONG, NUL, LONG], [NUL, "z"], [NUL]):
        with pytest.raises(SchemaConflict, match="a text contains the character NUL"):
            checked(tmp_path, list(map(wrap, values)), kind)
