"""Measure batches of 1,000 upserts into an Iceberg table over many commits, with and without maintenance.

    .venv/bin/python -m bench.studies.maintenance [ROWS] [COMMITS] [EVERY,EVERY]

Each table has ROWS rows at first. `kpipe maintain` runs after each EVERY batches; 0: never. Prints a line for the first ten
batches, and for each tenth of all: median seconds of a commit, of wall-clock time and of CPU; then those of all maintenance.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from bench.studies.upserts import SMALL, Kpipe, ids, rows

_FIRST, _PARTS = 10, 10


def measured(folder: Path, size: int, commits: int, every: int) -> None:
    """Measure one table; `every` 0: without maintenance."""
    chance, made = np.random.default_rng(1), Kpipe(folder)
    made.apply(made.prepared(rows(np.arange(size), 0)))
    loaded, known, spent, used = size, size, 0.0, 0.0
    taken: list[tuple[float, float]] = []
    for number in range(1, commits + 1):
        commit = made.prepared(rows(ids(chance, known, SMALL), loaded))
        wall, cpu = time.perf_counter(), time.process_time()
        made.apply(commit)
        taken.append((time.perf_counter() - wall, time.process_time() - cpu))
        loaded, known = loaded + SMALL, known + SMALL // 2
        if every and number % every == 0:
            wall, cpu = time.perf_counter(), time.process_time()
            made.maintain()
            spent, used = spent + time.perf_counter() - wall, used + time.process_time() - cpu
        if number == _FIRST or number * _PARTS % commits < _PARTS:
            walls, cpus = zip(*taken, strict=True)
            print(f"every {every:5} commit {number:6,} {median(walls):9.3f} s {median(cpus):9.3f} s CPU", flush=True)
            taken.clear()
    print(f"every {every:5} maintenance {spent:9.1f} s {used:9.1f} s CPU", flush=True)
    made.check()


def main() -> None:
    """Measure a table with maintenance, then one without."""
    size, commits, turns = (*sys.argv[1:4], *("1000000", "1000", "50,0")[len(sys.argv) - 1 :])
    for every in turns.split(","):
        with tempfile.TemporaryDirectory() as folder:
            measured(Path(folder), int(size), int(commits), int(every))


if __name__ == "__main__":
    main()
