"""Define kpipe's goals, as ratios to the systems that were measured beside it, and judge the results of a run by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.numbers import Spread, paired, spread
from bench.parts.start import BARE, COMMANDS, RUN

__all__ = ["WHY_NOT", "Verdict", "by_repeat", "verdicts"]

Run = Mapping[str, Any]

#: By goal: why it was not reached. Filled by hand after a whole run; shown only where the run missed the goal.
WHY_NOT: dict[str, str] = {
    "staged, against the raw loop in two processes": "1.6 µs of CPU a record, the raw loop 1.2; both use two cores",
    "into DuckDB, against the raw loop in two processes": "2.9 µs of CPU a record, the raw loop 1.2; both use two cores",
    "into Delta, against the raw loop in two processes": "1.6 µs of CPU a record, the raw loop 1.05; both use two cores",
    "into Iceberg, against the raw loop in two processes": "1.7 µs of CPU a record, the raw loop 1.05; both use two cores",
    "`cat` in the way, against nothing in the way (staged)": "`cat`, two pipes and the sample use the same two cores",
    "a Python echo in the way, against nothing in the way (staged)": "the program alone takes 0.9 µs a record of the same cores",
    "produce to queryable, interval 0: p50": "a batch takes 0.1 s: ledger, Spark's job, DuckDB's commit (ADR 43)",
    "produce to queryable, interval 0: p99": "a batch takes 0.1 s, and its records wait for the one before (ADR 43)",
    "CPU seconds for a minute of tweets, interval 0": "a batch costs some 0.1 s of CPU, whatever its size (ADR 43)",
    "CPU seconds for a minute of tweets, interval 1": "a batch costs some 0.1 s of CPU, whatever its size (ADR 43)",
    "a batch of 1,000 partitions": "each range starts a read and a decoder of its own",
    "a bounded Dagster run of one batch of 1,000 partitions": "Dagster's part is 1.4 s of CPU for 54 MB of events (ADR 31)",
    "memory while a UI with a waiting process is idle": "half of it is Spark's JVM (ADR 41)",
    "Arrow against lines: tweets made flat": "DuckDB's JSON takes over half of the time (ADR 38)",
    "Arrow against no program: records unchanged": "each record passes two pipes; without a program none (ADR 38)",
    "objects of 1,000 different columns, against stable ones": "absent columns cost time, too (ADR 40)",
    "objects of 2,000 new members, against stable ones": "absent columns cost time, too (ADR 40)",
}


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

    @property
    def why_not(self) -> str:
        """Why it is not reached; empty where it is, or where no reason is known yet."""
        return WHY_NOT.get(self.goal, "") if self.reached is False else ""


Ratio = tuple[str, str, str, float | None]
"""A goal, our contender, the other one, and the least ratio that is wanted."""

_THROUGHPUT: tuple[Ratio, ...] = (
    ("staged, against the raw loop in two processes", "kpipe staged", "raw x2", 0.75),
    ("into DuckDB, against the raw loop in two processes", "kpipe duckdb", "raw x2", 0.45),
    ("`cat` in the way, against nothing in the way (staged)", "kpipe staged cat", "kpipe staged", 0.92),
    ("a Python echo in the way, against nothing in the way (staged)", "kpipe staged echo", "kpipe staged", 0.85),
    ("`cat` in the way (staged), against Spark's own pipe", "kpipe staged cat", "spark pipe cat", 2.5),
    ("staged, against Structured Streaming to Parquet", "kpipe staged", "spark parquet", 4.0),
    ("staged, against Structured Streaming to Parquet with larger fetches", "kpipe staged", "spark parquet tuned", None),
    ("staged, against Kafka Connect to Iceberg", "kpipe staged", "connect iceberg", 4.0),
    ("into DuckDB, against Structured Streaming to Delta", "kpipe duckdb", "spark delta", 2.5),
    ("cold into DuckDB, against Structured Streaming cold to Parquet", "kpipe duckdb cold", "spark parquet cold", 2.0),
    ("cold into DuckDB, against dlt cold into DuckDB", "kpipe duckdb cold", "script dlt cold", None),
)
_TABLES: tuple[Ratio, ...] = (
    ("into Delta, against the raw loop in two processes", "kpipe delta", "raw x2", 0.65),
    ("into Iceberg, against the raw loop in two processes", "kpipe iceberg", "raw x2", 0.65),
    ("into Delta, against Structured Streaming to Delta", "kpipe delta", "spark delta", 3.5),
    ("into Iceberg, against Kafka Connect to Iceberg", "kpipe iceberg", "connect iceberg", 3.5),
    ("into PostgreSQL, against a bare COPY of the same rows", "kpipe postgres", "copy postgres", 0.8),
    ("into PostgreSQL, against Kafka Connect with Debezium's JDBC sink", "kpipe postgres", "connect postgres", None),
    ("into Delta, against Bento to Parquet", "kpipe delta", "bento parquet", None),
    ("into Delta, against Flink SQL to Parquet", "kpipe delta", "flink parquet", None),
    ("into Delta, against a script to Delta", "kpipe delta", "script delta", None),
)
_CPU_AT_ONCE_S, _CPU_EACH_SECOND_S = 49.8, 7.4
"""For 60 s of 20,000 tweets a second, measured on two cores on 2026-11-21: all at an interval of 0, and half at one of 1 s."""

_WIDE = ("300 columns", "1000 columns", "64 partitions", "1000 partitions", "1 GB of headers")
_AS_DEAR = 2.0
"""A byte of another shape may cost so many times a byte of tweets in four partitions."""


def verdicts(results: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """Judge the parts that have results, by the name of the part."""
    judges = {
        "start": _start, "materialize": _materialize, "throughput": lambda found: _ratios(found, _THROUGHPUT),
        "tables": lambda found: _ratios(found, _TABLES), "programs": _programs, "memory": _memory, "members": _members,
        "shapes": _shapes, "freshness": _freshness, "partitions": _partitions, "verify": _verify,
    }  # fmt: skip
    return [verdict for part, judge in judges.items() if part in results for verdict in judge(results[part])]


def by_repeat(runs: Sequence[Run], name: str, field: str = "msg_s") -> dict[int, list[float]]:
    """Return values of a contender's successful runs, by repeat."""
    found: dict[int, list[float]] = {}
    for run in _good(runs):
        if run["name"] == name:
            found.setdefault(run["repeat"], []).append(run[field])
    return found


def _good(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if "failed" not in run]


def _runs(result: Mapping[str, Any]) -> list[Run]:
    return _good(result.get("runs", ()))


def _at_most(goal: str, limit: float, unit: str, values: Sequence[float], digits: int = 2) -> Verdict:
    """Judge the median of some values."""
    found = spread(values)
    words = "not measured"
    if found is not None:
        words = f"{found.median:.{digits}f}{unit}"
        words += f" ({found.low:.{digits}f} to {found.high:.{digits}f})" if found.count > 1 else ""
    return Verdict(goal, f"≤ {limit:g}{unit}", words, None if found is None else found.median <= limit)


def _at_least(goal: str, wanted: float | None, ratio: Spread | None) -> Verdict:
    words = "not measured side by side" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    reached = None if ratio is None or wanted is None else ratio.median >= wanted
    return Verdict(goal, "" if wanted is None else f"≥ {wanted:g}", words, reached)


def _ratios(result: Mapping[str, Any], ratios: Sequence[Ratio]) -> Iterator[Verdict]:
    """Judge ratios of messages a second, paired by repeat."""
    runs = _runs(result)
    for goal, ours, theirs, wanted in ratios:
        yield _at_least(goal, wanted, paired(by_repeat(runs, ours), by_repeat(runs, theirs)))


def _start(result: Mapping[str, Any]) -> Iterator[Verdict]:
    runs = _runs(result)
    ratio = paired(by_repeat(runs, RUN, "seconds"), by_repeat(runs, BARE, "seconds"))
    goal = "`kpipe run` of 1,000 records, against a bare Spark context with one job"
    words = "not measured" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    yield Verdict(goal, "≤ 0.6", words, None if ratio is None else ratio.median <= 0.6)
    for name in COMMANDS:
        if name != RUN:
            yield _at_most(f"without Spark: `{name}`", 0.8, " s", _values(runs, name, "seconds"))


def _values(runs: Sequence[Run], name: str, field: str) -> list[float]:
    return [run[field] for run in runs if run["name"] == name]


def _materialize(result: Mapping[str, Any]) -> Iterator[Verdict]:
    runs = _runs(result)
    yield _at_most("Materialize in the UI, with a waiting process", 10, " s", _values(runs, "warm", "seconds"))
    yield _at_most("Materialize in the UI, without", 15, " s", _values(runs, "cold", "seconds"))
    yield _at_most("memory while a UI with a waiting process is idle", 300, " MB", _values(runs, "warm", "idle_mb"), 0)


def _programs(result: Mapping[str, Any]) -> Iterator[Verdict]:
    runs = _runs(result)
    for goal, slow, fast, wanted in (
        ("Arrow against lines: tweets made flat", "flatten, lines", "flatten, arrow", 5.0),
        ("Arrow against no program: records unchanged", "no program", "identity, arrow", 0.8),
    ):
        yield _at_least(goal, wanted, paired(by_repeat(runs, slow, "cpu_us"), by_repeat(runs, fast, "cpu_us")))


def _memory(result: Mapping[str, Any]) -> Iterator[Verdict]:
    runs = _runs(result)
    for name in ("20 kB records", "1 MB records"):
        found = [run["roles_mb"]["driver"] for run in runs if run["name"] == name]
        yield _at_most(f"the driver while 2 GB of {name} pass", 1000, " MB", found, 0)
    workers = [run["roles_mb"].get("worker", 0) for run in runs]
    yield _at_most("the largest worker while 2 GB pass", 600, " MB", [max(workers)] if workers else [], 0)
    if "engine_limit_mb" in result:
        share = result["engine_limit_mb"] / result["available_mb"]
        yield _at_most("DuckDB's default limit, of the memory of the machine or cgroup", 0.5, "", [share])


def _members(result: Mapping[str, Any]) -> Iterator[Verdict]:
    runs = _runs(result)
    for name, goal in (("1,000 columns", "1,000 different columns"), ("2,000 new members", "2,000 new members")):
        times = _values(runs, name, "times")
        yield _at_most(f"objects of {goal}, against stable ones", 2, " times", times)
        cost = {run["records"]: run["cpu_s"] for run in runs if run["name"] == name}
        growth = [cost[max(cost)] / cost[min(cost)]] if len(cost) > 1 else []
        yield _at_most(f"objects of {goal}: twice the records (linear)", 2.3, " times", growth)


def _shapes(result: Mapping[str, Any]) -> Iterator[Verdict]:
    cost = {run["name"]: run["cpu_s"] / run.get("bytes", run.get("value_bytes")) for run in _runs(result)}
    for name in _WIDE:
        found = [cost[name] / cost["4 partitions"]] if {name, "4 partitions"} <= cost.keys() else []
        yield _at_most(f"CPU time of a byte, against tweets in 4 partitions: {name}", _AS_DEAR, " times", found)


def _freshness(result: Mapping[str, Any]) -> Iterator[Verdict]:
    good = {run["name"]: run for run in _runs(result)}
    at_once, each_second = good.get("kpipe interval 0 s"), good.get("kpipe interval 1 s")
    other = good.get("spark trigger 1 s")
    for name, wanted in (("p50", 0.15), ("p99", 0.35)):
        goal = f"produce to queryable, interval 0: {name}"
        yield _at_most(goal, wanted, " s", [at_once[f"{name}_s"]] if at_once else [])
    for interval, run, wanted in ((0, at_once, _CPU_AT_ONCE_S), (1, each_second, _CPU_EACH_SECOND_S)):
        found = [run["cpu_s"] / result["seconds"] * 60] if run else []
        yield _at_most(f"CPU seconds for a minute of tweets, interval {interval}", wanted, "", found, 1)
    ratio = spread([other["cpu_s"] / each_second["cpu_s"]] if other and each_second else [])
    yield _at_least("CPU seconds of Structured Streaming at a 1 s trigger, of kpipe's", 1, ratio)


def _partitions(result: Mapping[str, Any]) -> Iterator[Verdict]:
    for name, goal, wanted in (
        ("a batch", "a batch of 1,000 partitions", 0.8),
        ("a Dagster run", "a bounded Dagster run of one batch of 1,000 partitions", 1.5),
    ):
        sizes = {run["partitions"]: run["seconds"] for run in _runs(result) if run["name"] == name}
        yield _at_most(goal, wanted, " s", [sizes[max(sizes)]] if sizes else [])


def _verify(result: Mapping[str, Any]) -> Iterator[Verdict]:
    runs = _runs(result)
    yield _at_most("verify of 100 million offsets: time", 30, " s", _values(runs, "verify", "seconds"), 1)
    yield _at_most("verify of 100 million offsets: memory", 500, " MB", _values(runs, "verify", "peak_mb"), 0)
