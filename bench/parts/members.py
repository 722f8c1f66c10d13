"""Measure the CPU time to decode objects of many different members, against the same bytes with stable ones.

Every record has 20 integers. With 20 names together they are stable; else each record has others of that many names. Names are
columns, or new to the table. Names that are columns cost by cells: NULLs are written, too (bench/studies/cells.py). Each figure
is the lesser of two runs, without Kafka and Spark.
"""

from __future__ import annotations

import time
from typing import Any

from bench.stage import say
from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from kpipe.schema.growth_limits import room
from resources.decode.block import Payloads
from resources.decode.factory import decoder
from resources.decode.growth_guard import Bound

_BLOCK, _REPEATS = 5000, 2


def _record(at: int, names: int) -> bytes:
    members = b", ".join(b'"member_%05d": %d' % ((at * 20 + k) % names, 10_000 + at * k % 90_000) for k in range(20))
    return b'{"id": %d, %b}' % (at + 10_000_000, members)


def _cpu_s(records: int, names: int, declared: bool) -> float:
    """Return the CPU seconds of decoding so many records."""
    columns = Columns.of({"id": "BIGINT", **({f"member_{at:05d}": "BIGINT" for at in range(names)} if declared else {})})
    made = [_record(at, names) for at in range(records)]
    blocks = [Payloads.of(made[at : at + _BLOCK]) for at in range(0, records, _BLOCK)]
    took = []
    for _ in range(_REPEATS):
        bound = Bound(columns, room=room("duckdb"), table=columns, destination="duckdb")
        decodes = decoder(Format(), columns, bound=bound)
        began = time.process_time()
        for block in blocks:
            decodes.decode(block)
        took.append(time.process_time() - began)
    return min(took)


def measure(records: int) -> dict[str, Any]:
    """Measure so many records and twice as many, with columns that are declared and with new ones."""
    runs = []
    for count in (records, 2 * records):
        for declared in (True, False):
            stable = _cpu_s(count, 20, declared)
            for names in (500, 1000 if declared else 2000):
                cpu_s = _cpu_s(count, names, declared)
                what = f"{names:,} {'columns' if declared else 'new members'}"
                times = round(cpu_s / stable, 2)
                runs.append(
                    {"name": what, "records": count, "cpu_s": round(cpu_s, 3), "stable_cpu_s": round(stable, 3), "times": times}
                )
                say(f"  {count:,} records, {what}: {cpu_s:.2f} CPU s, {times:.1f} times that of stable members")
    return {"runs": runs}
