"""Run all measurements: `python -m bench`, or `make bench`. Definitions: docs/explanation/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import traceback
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench import report
from bench.machine import facts
from bench.parts import (
    freshness,
    ledger,
    materialize,
    members,
    partitions,
    partitions_dagster,
    programs,
    recount,
    shapes,
    start,
    throughput,
)
from bench.stage import Stage, say, stage

FOLDER = Path(__file__).parent

Measure = Callable[[Stage, argparse.Namespace], dict[str, Any]]


def _drained(stage: Stage, given: argparse.Namespace) -> dict[str, Any]:
    """Measure `throughput` and `cold`, which alternate on one topic and share a result."""
    warm = throughput.WARM if "throughput" in given.only else ()
    cold = throughput.COLD if "cold" in given.only else ()
    return throughput.measure(stage, given.records, given.repeats, given.contenders, warm, cold)


def _partitions(stage: Stage, given: argparse.Namespace) -> dict[str, Any]:
    sizes = (10, 50) if given.quick else (10, 100, 1000)
    return {"runs": [*partitions.measure(stage, sizes, 5), *partitions_dagster.measure(sizes)]}


#: By the name of the result.
MEASURES: dict[str, Measure] = {
    "start": lambda at, given: start.measure(at, given.repeats),
    "materialize": lambda at, given: materialize.measure(at, given.repeats),
    "throughput": _drained,
    "tables": lambda at, given: throughput.measure(at, given.records, given.repeats, given.contenders, throughput.TABLES, ()),
    "programs": lambda at, given: programs.measure(at, given.program_records, 1 if given.quick else 3),
    "freshness": lambda at, given: freshness.measure(at, given.rate, given.seconds, given.contenders),
    "shapes": lambda at, given: shapes.measure(at, given.shapes),
    "memory": lambda at, given: shapes.memory(at, given.shapes),
    "members": lambda _, given: members.measure(1000 if given.quick else 10_000),
    "partitions": _partitions,
    "verify": lambda at, given: recount.measure(at, given.rows, 1000),
    "backlog": lambda at, given: shapes.backlog(at, given.backlog),
    "ledger": lambda at, given: ledger.measure(at, given.batches, given.every_batch),
}
PARTS = (*MEASURES, "cold")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add = parser.add_argument
    add("--only", type=_words, default=list(PARTS), metavar="PARTS", help=f"parts to run: {','.join(PARTS)}; default: all")
    add("--contenders", type=_words, default=[], metavar="NAMES", help="beginnings of names, such as kpipe,raw; default: all")
    add("--shapes", type=_words, default=[], metavar="NAMES", help="beginnings of shapes, such as 'one range'; default: all")
    add("--records", type=int, default=2_000_000, help="number of tweets in the topic of the throughput part (%(default)s)")
    add("--repeats", type=int, default=3, help="runs of each contender, command and click (%(default)s)")
    add("--rate", type=int, default=20_000, help="tweets a second in the freshness part (%(default)s)")
    add("--seconds", type=int, default=30, help="measured seconds of the freshness part (%(default)s)")
    add("--program-records", type=int, default=500_000, help="number of tweets in the programs part (%(default)s)")
    add("--rows", type=int, default=100_000_000, help="number of rows in the verify part (%(default)s)")
    add("--backlog", type=int, default=10_000_000, help="number of tweets in the backlog part (%(default)s)")
    add("--batches", type=int, default=10_000, help="number of batches in the ledger part (%(default)s)")
    add("--every-batch", action="store_true", help="commit each batch of the ledger part, instead of copying history")
    add("--home", type=Path, help="folder that keeps broker and topics for the next time; default: a temporary folder")
    add("--out", type=Path, help="folder of the results; default: bench/results, or bench/.trials if not everything is measured")
    add("--quick", action="store_true", help="small numbers, to check that everything works: its figures mean nothing")
    options = parser.parse_args()
    wrong = [part for part in options.only if part not in PARTS]
    if wrong:
        parser.error(f"--only: expected one of {', '.join(PARTS)}, found {wrong[0]}")
    if options.quick:
        options.records, options.repeats = min(options.records, 200_000), 1
        options.rate, options.seconds = min(options.rate, 5000), min(options.seconds, 10)
        options.backlog, options.batches = min(options.backlog, 300_000), min(options.batches, 300)
        options.program_records, options.rows = min(options.program_records, 20_000), min(options.rows, 1_000_000)
    partial = options.quick or options.contenders or options.shapes  # must not take the place of the full results
    options.out = options.out or FOLDER / (".trials" if partial else "results")
    return options


def main() -> None:
    """Measure, write results part by part, and write the page at the end. Exit status 1: a run failed or wrote wrong rows."""
    options = _options()
    for ending in (signal.SIGTERM, signal.SIGHUP):  # so that broker and contenders end with us
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    options.out.mkdir(parents=True, exist_ok=True)
    failed = False
    with stage(options.home, options.quick) as where:
        for name, measure in MEASURES.items():
            if name not in options.only and not (name == "throughput" and "cold" in options.only):
                continue
            machine, began = facts(), time.monotonic()
            say(name)
            result = _measured(measure, where, options)
            failed = failed or "failed" in result or any("failed" in run for run in result.get("runs", ()))
            _save(options.out / f"{name}.json", machine, time.monotonic() - began, result)
            report.write(options.out)
    say(f"{options.out / 'README.md'}{'; some run FAILED' if failed else ''}")
    sys.exit(1 if failed else 0)


def _measured(measure: Measure, where: Stage, options: argparse.Namespace) -> dict[str, Any]:
    """Return a part's result. A part that fails does not end the others: its result has the reason."""
    try:
        return measure(where, options)
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:300]}


def _save(file: Path, machine: dict[str, Any], seconds: float, result: dict[str, Any]) -> None:
    head = {
        "measured": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "took_s": round(seconds, 1),
        "machine": machine,
    }
    file.write_text(json.dumps({**head, **result}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
