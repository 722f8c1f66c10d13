"""Define kpipe's goals, as ratios to the systems that were measured beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.numbers import Spread, paired

__all__ = ["Verdict", "by_repeat", "freshness", "memory", "tables", "throughput"]

Run = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """A goal and what was measured.

    Attributes:
        goal: in words.
        wanted: what would reach it, in words.
        found: what was measured, in words.
        reached: whether it is; None where it was not measured.
    """

    goal: str
    wanted: str
    found: str
    reached: bool | None


_RATIOS: tuple[tuple[str, str, str, float | None], ...] = (
    ("staged, against Structured Streaming to Parquet", "kpipe staged", "spark parquet", 4.0),
    ("staged, against Structured Streaming to Parquet with larger fetches", "kpipe staged", "spark parquet tuned", None),
    ("staged, against Kafka Connect to Iceberg", "kpipe staged", "connect iceberg", 4.0),
    ("staged, against the raw loop in two processes", "kpipe staged", "raw x2", 0.75),
    ("into DuckDB, against the raw loop in two processes", "kpipe duckdb", "raw x2", 0.45),
    ("into DuckDB, against Structured Streaming to Delta", "kpipe duckdb", "spark delta", 2.5),
    ("cold into DuckDB, against Structured Streaming cold to Parquet", "kpipe duckdb cold", "spark parquet cold", 2.0),
    ("`cat` in the way, against nothing in the way (staged)", "kpipe staged cat", "kpipe staged", 0.92),
    ("a Python echo in the way, against nothing in the way (staged)", "kpipe staged echo", "kpipe staged", 0.85),
    ("`cat` in the way (staged), against Spark's own pipe", "kpipe staged cat", "spark pipe cat", 2.5),
)
_TABLES: tuple[tuple[str, str, str, float | None], ...] = (
    ("into Delta, against Structured Streaming to Delta", "kpipe delta", "spark delta", 3.5),
    ("into Delta, against the raw loop in two processes", "kpipe delta", "raw x2", 0.65),
    ("into Iceberg, against the raw loop in two processes", "kpipe iceberg", "raw x2", 0.65),
    ("into Iceberg, against Kafka Connect to Iceberg", "kpipe iceberg", "connect iceberg", 3.5),
    ("into PostgreSQL, against a bare COPY of the same rows", "kpipe postgres", "copy postgres", 0.8),
    ("into PostgreSQL, against Kafka Connect with Debezium's JDBC sink", "kpipe postgres", "connect postgres", None),
    ("into Delta, against Bento to Parquet", "kpipe delta", "bento parquet", None),
    ("into Delta, against a script to Delta", "kpipe delta", "script delta", None),
)


_CPU_S = 7.4
"""Half of the CPU seconds of 60 s of 20,000 tweets a second and 5 s of rest, measured on two cores on 2026-11-21 (14.8)."""


def by_repeat(runs: Sequence[Run], name: str, field: str = "msg_s") -> dict[int, list[float]]:
    """Return values of a contender's successful runs, by repeat."""
    found: dict[int, list[float]] = {}
    for run in runs:
        if run["name"] == name and "failed" not in run:
            found.setdefault(run["repeat"], []).append(run[field])
    return found


def throughput(runs: Sequence[Run]) -> list[Verdict]:
    """Return ratios of messages a second, paired by repeat."""
    return _ratios(runs, _RATIOS)


def tables(runs: Sequence[Run]) -> list[Verdict]:
    """Return the same ratios for destinations that other contenders load, too."""
    return _ratios(runs, _TABLES)


def _ratios(runs: Sequence[Run], pairs: Sequence[tuple[str, str, str, float | None]]) -> list[Verdict]:
    verdicts = []
    for goal, ours, theirs, wanted in pairs:
        ratio = paired(by_repeat(runs, ours), by_repeat(runs, theirs))
        reached = None if ratio is None or wanted is None else ratio.median >= wanted
        verdicts.append(Verdict(goal, "" if wanted is None else f"≥ {wanted:g}", _words(ratio), reached))
    return verdicts


def freshness(runs: Sequence[Run]) -> list[Verdict]:
    """Return latency without a pause between batches, and the cost with one of a second."""
    good = {run["name"]: run for run in runs if "failed" not in run}
    at_once, each_second = good.get("kpipe interval 0 s"), good.get("kpipe interval 1 s")
    other = good.get("spark trigger 1 s")
    verdicts = [
        Verdict(
            f"produce to queryable, interval 0: {name}",
            f"< {wanted:g} s",
            f"{at_once[f'{name}_s']:.2f} s" if at_once else "not measured",
            at_once[f"{name}_s"] < wanted if at_once else None,
        )
        for name, wanted in (("p50", 0.15), ("p99", 0.35))
    ]
    verdicts.append(
        Verdict(
            "CPU seconds at a 1 s interval, in 65 s",
            f"< {_CPU_S:g}",
            f"{each_second['cpu_s']:.1f}" if each_second else "not measured",
            each_second["cpu_s"] < _CPU_S if each_second else None,
        )
    )
    both = each_second is not None and other is not None
    verdicts.append(
        Verdict(
            "CPU seconds at a 1 s interval, against Structured Streaming",
            "fewer",
            f"{each_second['cpu_s']:.1f} to {other['cpu_s']:.1f}" if each_second and other else "not measured",
            each_second["cpu_s"] < other["cpu_s"] if each_second and other and both else None,
        )
    )
    return verdicts


def memory(runs: Sequence[Run]) -> list[Verdict]:
    """Return the memory of the largest worker for one range of 2 GB."""
    found = [run["roles_mb"].get("worker", 0) for run in runs if run["name"].startswith("2 GB range") and "failed" not in run]
    words = f"{max(found)} MB" if found else "not measured"
    return [Verdict("a worker while one range of 2 GB passes", "< 600 MB", words, max(found) < 600 if found else None)]


def _words(ratio: Spread | None) -> str:
    if ratio is None:
        return "not measured side by side"
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
