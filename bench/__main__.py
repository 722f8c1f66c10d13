"""Run all measurements: `python -m bench`, or `make bench`. Definitions: docs/explanation/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench import freshness, ledger, report, shapes, throughput
from bench.machine import facts
from bench.stage import Stage, say, stage

PARTS = ("throughput", "cold", "tables", "freshness", "shapes", "backlog", "ledger")
FOLDER = Path(__file__).parent


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add = parser.add_argument
    add("--only", type=_words, default=list(PARTS), metavar="PARTS", help=f"parts to run: {','.join(PARTS)}; default: all")
    add("--contenders", type=_words, default=[], metavar="NAMES", help="beginnings of names, such as kpipe,raw; default: all")
    add("--shapes", type=_words, default=[], metavar="NAMES", help="beginnings of shapes, such as 'one range'; default: all")
    add("--records", type=int, default=2_000_000, help="number of tweets in the topic of the throughput part (%(default)s)")
    add("--repeats", type=int, default=3, help="runs of each contender in the throughput part (%(default)s)")
    add("--rate", type=int, default=20_000, help="tweets a second in the freshness part (%(default)s)")
    add("--seconds", type=int, default=60, help="measured seconds of the freshness part (%(default)s)")
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
        for name, measure in _measurements(options).items():
            machine, began = facts(), time.monotonic()
            say(name)
            result = measure(where)
            failed = failed or any("failed" in run for run in result.get("runs", ()))
            _save(options.out / f"{name}.json", machine, time.monotonic() - began, result)
            report.write(options.out)
    say(f"{options.out / 'README.md'}{'; some run FAILED' if failed else ''}")
    sys.exit(1 if failed else 0)


def _measurements(options: argparse.Namespace) -> dict[str, Callable[[Stage], dict[str, Any]]]:
    """Return measurements by result name; `throughput` and `cold` alternate on one topic and share one."""
    only, chosen = options.only, options.contenders
    known: dict[str, tuple[bool, Callable[[Stage], dict[str, Any]]]] = {
        "throughput": (
            "throughput" in only or "cold" in only,
            lambda at: throughput.measure(
                at,
                options.records,
                options.repeats,
                chosen,
                throughput.WARM if "throughput" in only else (),
                throughput.COLD if "cold" in only else (),
            ),
        ),
        "tables": (
            "tables" in only,
            lambda at: throughput.measure(at, options.records, options.repeats, chosen, throughput.TABLES, ()),
        ),
        "freshness": ("freshness" in only, lambda at: freshness.measure(at, options.rate, options.seconds, chosen)),
        "shapes": ("shapes" in only, lambda at: shapes.measure(at, options.shapes)),
        "backlog": ("backlog" in only, lambda at: shapes.backlog(at, options.backlog)),
        "ledger": ("ledger" in only, lambda at: ledger.measure(at, options.batches, options.every_batch)),
    }
    return {name: measure for name, (wanted, measure) in known.items() if wanted}


def _save(file: Path, machine: dict[str, Any], seconds: float, result: dict[str, Any]) -> None:
    head = {
        "measured": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "took_s": round(seconds, 1),
        "machine": machine,
    }
    file.write_text(json.dumps({**head, **result}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
