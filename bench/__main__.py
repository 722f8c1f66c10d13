"""One command for all measurements: `python -m bench`, or `make bench`. docs/benchmarks.md says what they are."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import throughput
from bench.machine import facts
from bench.stage import stage


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--contenders", default="")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    with stage(options.home, options.quick) as where:
        chosen = [word for word in options.contenders.split(",") if word]
        print(facts())
        throughput.measure(where, options.records, options.repeats, chosen)


if __name__ == "__main__":
    main()
