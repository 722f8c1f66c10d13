"""What a megabyte costs by the shape of the records, and what memory driver and workers take.

    .venv/bin/python -m bench.cost                       # all shapes; up to 2 GB each
    .venv/bin/python -m bench.cost --scale 0.02          # a check that everything runs; ignore its figures
    .venv/bin/python -m bench.cost --shapes "20 kB;1 MB"

Headers count as bytes. CPU seconds and peak RSS come from the process tree, as in `python -m bench --only shapes`.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

from bench.shapes import COSTS, run_all
from bench.stage import stage

_FIELDS = ("shape", "records", "mb", "cpu_s", "cpu_s_per_mb", "driver_mb", "worker_mb", "jvm_mb", "seconds")


def _row(run: dict[str, Any]) -> dict[str, Any]:
    size = (run["value_bytes"] + run["records"] * COSTS[run["name"]].topic.header_bytes) / 1e6
    roles = run["roles_mb"]
    return {
        "shape": run["name"], "records": run["records"], "mb": round(size), "cpu_s": run["cpu_s"],
        "cpu_s_per_mb": round(run["cpu_s"] / size, 4), "driver_mb": roles["driver"], "worker_mb": roles.get("worker", 0),
        "jvm_mb": roles.get("jvm", 0), "seconds": run["seconds"],
    }  # fmt: skip


def main() -> None:
    """Measure, and print a line of CSV for each shape. Exit status 1 if a run failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__)
    parser.add_argument("--scale", type=float, default=1, help="share of the records (%(default)s)")
    parser.add_argument("--shapes", default="", help="beginnings of names, separated by semicolons; all by default")
    parser.add_argument("--home", type=Path, help="keep broker and topics there for the next time")
    options = parser.parse_args()
    chosen = [name.strip() for name in options.shapes.split(";") if name.strip()]
    with stage(options.home, quick=False) as where:
        runs = run_all(where, COSTS, chosen, options.scale)
    out = csv.DictWriter(sys.stdout, _FIELDS, lineterminator="\n")
    out.writeheader()
    out.writerows(_row(run) for run in runs if "failed" not in run)
    sys.exit(1 if any("failed" in run for run in runs) else 0)


if __name__ == "__main__":
    main()
