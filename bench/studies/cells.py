"""Measure what DuckDB alone takes to store a cell of a wide table, by the share of NULL: `python -m bench.studies.cells`.

The lower bound of what kpipe takes for sparse records with a column for each member: NULL cells count, too. One transaction, one
thread, 10,000 rows of BIGINT from Arrow, in a temporary file.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

_ROWS = 10_000


def measure(columns: int, share: float) -> tuple[float, float]:
    """Return the CPU nanoseconds for each cell of the INSERT, and of the COMMIT."""
    at = np.arange(_ROWS)
    arrays = [
        pa.array(at * 7 % 100_000, pa.int64(), mask=(name - at * 20) % columns >= columns * share) for name in range(columns)
    ]
    names = [f"member_{name:05d}" for name in range(columns)]
    with tempfile.TemporaryDirectory() as folder, duckdb.connect(Path(folder) / "cells.duckdb") as engine:
        engine.execute("SET threads = 1")
        engine.execute(f"CREATE TABLE cells ({', '.join(f'{name} BIGINT' for name in names)})")
        engine.register("made", pa.table(arrays, names=names))
        began = time.process_time()
        engine.execute("BEGIN")
        engine.execute("INSERT INTO cells SELECT * FROM made")
        inserted = time.process_time()
        engine.execute("COMMIT")
        cells = _ROWS * columns
        return (inserted - began) / cells * 1e9, (time.process_time() - inserted) / cells * 1e9


def main() -> None:
    """Print a line for each number of columns and share of values."""
    for columns in (20, 100, 1000, 2000):
        for share in (1.0, 20 / columns, 0.0):
            insert, commit = measure(columns, share)
            print(f"{columns:,} columns, {share:.0%} values: INSERT {insert:.1f}, COMMIT {commit:.1f} ns a cell", flush=True)


if __name__ == "__main__":
    main()
