"""Time runs whose records hold very many members: `python -m bench.studies.columns [CASE...]`.

Each case loads 10,000 ordinary records and the hostile ones in one run, through the planning, task and destination code in this
process, into DuckDB, and then 100 ordinary records more. The ratio is to the same run without hostile records.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resources.home import Home
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.several import Bench

_ORDINARY = 10_000

CASES: dict[str, list[dict[str, Any]]] = {
    "ordinary": [],
    "20,000 members in a record": [{"id": 0, **{f"m{at}": at for at in range(20_000)}}],
    "2,000 new keys in an object": [{"id": at, "o": {f"k{at}": at}} for at in range(2_000)],
    "2,000 new keys in an object of a table": [{"id": at, "known": {f"k{at}": at}} for at in range(2_000)],
    "1,700 members in a record": [{"id": 0, **{f"m{at}": at for at in range(1_700)}}],
    "3,000 objects of one name each": [{"id": 0, "items": [{f"n{at}": at} for at in range(3_000)]}],
}


def run(hostile: Sequence[dict[str, Any]]) -> tuple[float, float, int]:
    """Return the seconds of the run, those of the next batch, and the table's columns."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(
            DuckDBPlace(Path(folder)), Home.at(Path(folder) / "home"),
            select=None, also=[], columns={}, into={"table": "t"},
        )  # fmt: skip
        bench.topics.produce(0, {"id": 0, "name": "n", "known": {"a": 1}})
        bench.run()
        ordinary = [{"id": at, "name": f"n{at}", "known": {"a": at}} for at in range(_ORDINARY)]
        bench.topics.produce(0, *ordinary[: _ORDINARY // 2], *hostile, *ordinary[_ORDINARY // 2 :])
        began = time.monotonic()
        bench.run()
        middle = time.monotonic()
        bench.topics.produce(0, *ordinary[:100])
        bench.run()
        end = time.monotonic()
        (columns,) = bench.sql("SELECT count(*) FROM information_schema.columns WHERE table_name = 't'")[0]
        return middle - began, end - middle, columns


def main() -> None:
    """Print a line for each case."""
    run([])  # whatever is loaded, or compiled, once
    plain = run([])[0]
    for name in sys.argv[1:] or CASES:
        first, then, columns = run(CASES[name])
        print(f"{name}: {first:.2f} s ({first / plain:.1f} times), the next batch {then:.2f} s, {columns:,} columns", flush=True)


if __name__ == "__main__":
    main()
