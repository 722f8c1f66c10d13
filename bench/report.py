"""Write a page from result files: tables, goals, plots. It is rewritten from the result files in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench import goals
from bench.numbers import spread
from bench.plot import Bar, bars, lines

__all__ = ["write"]

Run = Mapping[str, Any]

_GROUPS = {"kpipe": 0, "spark": 1, "connect": 2, "copy": 3, "raw": 4, "script": 5, "bento": 5, "flink": 6}
_MEMORY_MB = 600.0
_ROLES = ("worker", "driver", "jvm")


def write(folder: Path) -> Path:
    """Write README.md and plots beside the results; return the page."""
    results = {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}
    parts = [
        "# Results",
        "",
        "Look up what was measured; `python -m bench` writes this page ([method](../../docs/explanation/benchmarks.md)).",
        "",
        *_goals(results),
    ]
    for name, (title, section) in _SECTIONS.items():
        if name in results:
            result = results[name]
            body = [f"**The part failed:** {result['failed']}"] if "failed" in result else section(result, folder)
            parts += [f"## {title}", "", *body, "", *_measured(result), ""]
    page = folder / "README.md"
    page.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
    return page


def _goals(results: Mapping[str, Any]) -> Iterator[str]:
    verdicts = goals.verdicts(results)
    if verdicts:
        yield "## Goals"
        yield ""
        yield "Ratios are paired by repeat: the median, and the smallest and largest."
        yield ""
        yield from _table(
            ("goal", "wanted", "measured", "reached", "why not"),
            [(v.goal, v.wanted, v.found, {True: "yes", False: "**no**", None: "–"}[v.reached], v.why_not) for v in verdicts],
        )
        yield ""


def _throughput(result: Mapping[str, Any], folder: Path, plot: str = "throughput") -> Iterator[str]:
    topic = result["topic"]
    yield f"{topic['records']:,} tweets of {topic['value_bytes'] / topic['records']:.0f} bytes, {topic['partitions']} partitions."
    yield "`raw` keeps nothing; every other row was counted where it was left: rows, different ids, sums."
    yield ""
    table, drawn = [], []
    for name in dict.fromkeys(run["name"] for run in result["runs"]):
        good = [run for run in result["runs"] if run["name"] == name and "failed" not in run]
        failed = sum(run["name"] == name and "failed" in run for run in result["runs"])
        rates = spread(run["msg_s"] for run in good)
        if rates is None:
            table.append((name, f"0 of {failed}", "failed", "", "", "", "", ""))
            continue
        middle = {field: spread(run[field] for run in good) for field in ("mb_s", "seconds", "cpu_s", "peak_rss_mb")}
        numbers = {field: value.median for field, value in middle.items() if value}
        runs = f"{len(good)} of {len(good) + failed}" if failed else str(len(good))
        table.append(
            (
                name, runs, f"{rates.median:,.0f} ({rates.low:,.0f} to {rates.high:,.0f})", f"{numbers['mb_s']:,.0f}",
                f"{numbers['seconds']:.2f}", f"{numbers['cpu_s']:.1f}", f"{numbers['cpu_s'] / topic['records'] * 1e6:.2f}",
                f"{numbers['peak_rss_mb']:,.0f}",
            )
        )  # fmt: skip
        drawn.append(Bar(name, rates.median, rates.low, rates.high, _GROUPS[name.split()[0]]))
    yield from _table(("run", "n", "msg/s: median (min to max)", "MB/s", "s", "CPU s", "CPU µs a message", "peak RSS MB"), table)
    yield ""
    for name, reason in result.get("skipped", {}).items():
        yield f"**{name} was skipped:** {reason}"
        yield ""
    yield _plot(folder, plot, bars("Messages a second: median, smallest, largest", drawn))


def _freshness(result: Mapping[str, Any], folder: Path) -> Iterator[str]:
    yield f"{result['rate']:,} tweets/s for {result['seconds']} s, {result['partitions']} partitions: from produce to queryable."
    yield ""
    good = _good(result)
    yield from _table(
        ("run", "p50 s", "p90 s", "p99 s", "longest s", "batches", "CPU s", "window s", "peak RSS MB"),
        [
            (
                run["name"], f"{run['p50_s']:.2f}", f"{run['p90_s']:.2f}", f"{run['p99_s']:.2f}", f"{run['max_s']:.2f}",
                f"{run['batches']}", f"{run['cpu_s']:.1f}", f"{run['window_s']:.0f}", f"{run['peak_rss_mb']:,}",
            )
            for run in good
        ],
    )  # fmt: skip
    yield from _failed(result["runs"])
    yield ""
    series = {run["name"]: list(enumerate(run["percentiles_s"])) for run in good}
    yield _plot(folder, "freshness", lines("Produce to queryable", "percentile", "seconds", series))


def _shapes(result: Mapping[str, Any], folder: Path) -> Iterator[str]:
    yield "Into DuckDB, each in a fresh kpipe whose workers are up. Headers count as bytes."
    yield ""
    yield from _shape_table(result["runs"])
    yield ""
    rates = [Bar(run["name"], run["mb_s"], run["mb_s"], run["mb_s"]) for run in _good(result)]
    yield _plot(folder, "shapes", bars("Into DuckDB: MB/s by shape", rates))


def _memory(result: Mapping[str, Any], folder: Path) -> Iterator[str]:
    yield "2 GB into DuckDB, each in a fresh kpipe whose workers are up. `one range` is read by one worker, in one piece."
    yield f"DuckDB in the driver may use {result['engine_limit_mb']:,} of {result['available_mb']:,} MB by default."
    yield ""
    yield from _shape_table(result["runs"])
    yield ""
    sizes = [
        Bar(f"{run['name']}, {role}", size, size, size, at)
        for run in _good(result)
        for at, (role, size) in enumerate((role, run["roles_mb"].get(role, 0)) for role in ("worker", "driver"))
    ]
    yield _plot(folder, "memory", bars("Peak RSS in MB: largest worker, driver", sizes, (_MEMORY_MB, "goal")))


def _shape_table(runs: Sequence[Run]) -> Iterator[str]:
    head = ("shape", "records", "MB", "msg/s", "MB/s", "CPU s", "CPU s a GB", "worker MB", "driver MB", "JVM MB", "tree MB")
    yield from _table(head, [_shape(run) for run in runs if "failed" not in run])
    yield from _failed(runs)


def _shape(run: Run) -> tuple[str, ...]:
    roles, size = run["roles_mb"], _bytes(run)
    return (
        run["name"], f"{run['records']:,}", f"{size / 1e6:,.0f}", f"{run['msg_s']:,}", f"{run['mb_s']:,.0f}",
        f"{run['cpu_s']:.1f}", f"{run['cpu_s'] / size * 1e9:.1f}", *(f"{roles.get(role, 0):,}" for role in _ROLES),
        f"{run['peak_rss_mb']:,}",
    )  # fmt: skip


def _bytes(run: Run) -> int:
    return int(run.get("bytes", run.get("value_bytes")))  # results of before 2026-11-24 have no headers


def _backlog(result: Mapping[str, Any], folder: Path) -> Iterator[str]:
    yield from _failed(result["runs"])
    for run in result["runs"]:
        if "failed" in run:
            continue
        roles, counts = run["roles_mb"], len(run["batches"])
        yield (
            f"{run['records']:,} tweets ({_bytes(run) / 1e9:.1f} GB) in {run['seconds']:.1f} s: {run['msg_s']:,} msg/s,"
            f" {run['mb_s']:.0f} MB/s, {counts} batches, {run['cpu_s']:.0f} CPU s. Largest worker {roles.get('worker', 0)} MB,"
            f" driver {roles['driver']} MB, JVM {roles.get('jvm', 0)} MB."
        )
        yield ""
        points, rows = [(0.0, 0.0)], 0
        for seconds, count in run["batches"]:
            rows += count
            points.append((seconds, rows / 1e6))
        yield _plot(folder, "backlog", lines("A backlog drained", "seconds", "million rows", {"rows": points}))


def _ledger(result: Mapping[str, Any], folder: Path) -> Iterator[str]:
    made = "each committed" if result["every_batch_real"] else "most of them copied from the first, those timed committed"
    yield f"Four ranges and one row a batch, without Kafka and Spark; {result['batches']:,} batches, {made}."
    yield f"Growth by 1,000 batches: {result['growth_ms_per_1000']:.2f} ms, {result['growth_cpu_ms_per_1000']:.2f} ms of CPU."
    yield ""
    points = result["points"]
    yield from _table(
        ("batches before", "ms", "p95 ms", "CPU ms", "a run's first, ms"),
        [(f"{p['batches']:,}", *(f"{p[name]:.1f}" for name in ("ms", "p95_ms", "cpu_ms", "start_ms"))) for p in points],
    )
    yield ""
    series = {text: [(p["batches"], p[name]) for p in points] for text, name in (("elapsed", "ms"), ("CPU", "cpu_ms"))}
    yield _plot(folder, "ledger", lines("Milliseconds of a batch", "batches in the ledger", "ms", series, log=True))


def _start(result: Mapping[str, Any], _: Path) -> Iterator[str]:
    yield "From the start of the process to its end; CPU of all that it started. Median (smallest to largest)."
    yield ""
    yield from _medians(result, "command", {"s": ("seconds", 2), "CPU s": ("cpu_s", 2)})


def _materialize(result: Mapping[str, Any], _: Path) -> Iterator[str]:
    yield "1,000 records, from the click to success; `warm` has a process that waits for the next run, `cold` has none."
    yield ""
    yield from _medians(result, "UI", {"s": ("seconds", 2), "CPU s": ("cpu_s", 2), "MB idle": ("idle_mb", 0)})
    yield ""
    runs = _good(result)
    names, phases = list(dict.fromkeys(run["name"] for run in runs)), list(runs[0]["phases"])
    rows = []
    for phase in phases:
        row = [phase]
        for name in names:
            for field in ("seconds", "cpu_s"):
                found = spread(run["phases"][phase][field] for run in runs if run["name"] == name)
                row.append("" if found is None else f"{found.median:.2f}")
        rows.append(row)
    yield from _table(("phase", *(f"{name}: {unit}" for name in names for unit in ("s", "CPU s"))), rows)


def _programs(result: Mapping[str, Any], _: Path) -> Iterator[str]:
    yield f"CPU time of task and program together; {result['records']:,} tweets of 480 bytes, from memory to staged files."
    yield ""
    yield from _medians(result, "program", {"CPU µs a record": ("cpu_us", 2)})


def _medians(result: Mapping[str, Any], head: str, fields: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    """Yield a table of medians, with the smallest and the largest, of the runs of each name."""
    runs, rows = _good(result), []
    for name in dict.fromkeys(run["name"] for run in runs):
        row = [name]
        for field, digits in fields.values():
            found = spread(run[field] for run in runs if run["name"] == name)
            assert found is not None
            row.append(f"{found.median:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})")
        rows.append(row)
    yield from _table((head, *fields), rows)


def _members(result: Mapping[str, Any], _: Path) -> Iterator[str]:
    yield "Decoding alone, 20 members a record; beside it the same bytes with the same 20 members in each record."
    yield ""
    yield from _table(
        ("different members", "records", "CPU s", "stable, CPU s", "times"),
        [
            (run["name"], f"{run['records']:,}", f"{run['cpu_s']:.2f}", f"{run['stable_cpu_s']:.2f}", f"{run['times']:.1f}")
            for run in _good(result)
        ],
    )


def _partitions(result: Mapping[str, Any], _: Path) -> Iterator[str]:
    yield "One record in each partition. The CPU of `kpipe run` is that of driver, JVM and workers; Dagster's is without Spark."
    yield ""
    runs = _good(result)
    yield from _table(
        ("run", "partitions", "s", "CPU s"),
        [
            (run["name"], f"{run['partitions']:,}", f"{run['seconds']:.2f}",
             f"{sum(run.get(field, 0) for field in ('cpu_s', 'driver_cpu_s', 'jvm_cpu_s', 'workers_cpu_s')):.2f}")
            for run in runs
        ],
    )  # fmt: skip


def _verify(result: Mapping[str, Any], _: Path) -> Iterator[str]:
    for run in _good(result):
        yield (
            f"{run['rows']:,} rows in {run['ranges']:,} ranges: {run['seconds']:.1f} s, {run['cpu_s']:.1f} CPU s,"
            f" {run['peak_mb']} MB, {run['before_mb']} of them before the recount."
        )


def _good(result: Mapping[str, Any]) -> list[Run]:
    return [run for run in result["runs"] if "failed" not in run]


def _failed(runs: Sequence[Run]) -> Iterator[str]:
    for run in runs:
        if "failed" in run:
            yield ""
            yield f"**{run['name']} failed:** {run['failed']}"


def _measured(result: Mapping[str, Any]) -> Iterator[str]:
    facts = result["machine"]
    peers = ", ".join(f"{name} {version}" for name, version in facts["peers"].items())
    names = ("kafka", "librdkafka", "pyspark", "pyarrow", "duckdb", "python", "java")
    yield (
        f"<sub>{result['measured']}, in {result['took_s']:.0f} s; kpipe {facts['kpipe']}; {facts['processor']}, {facts['cores']}"
        f" cores, {facts['memory_gb']} GB, {facts['system']}, load before {facts['load_before']};"
        f" {', '.join(f'{name} {facts[name]}' for name in names)}; peers: {peers}</sub>"
    )


def _plot(folder: Path, name: str, svg: str) -> str:
    (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
    return f"![{name}]({name}.svg)"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


_SECTIONS: dict[str, tuple[str, Callable[[Mapping[str, Any], Path], Iterator[str]]]] = {
    "start": ("From cold", _start),
    "materialize": ("Materialize in the UI", _materialize),
    "throughput": ("Throughput", _throughput),
    "tables": ("Into tables of lakes and databases", partial(_throughput, plot="tables")),
    "programs": ("Programs by Arrow", _programs),
    "freshness": ("Freshness", _freshness),
    "shapes": ("Shapes", _shapes),
    "memory": ("Memory", _memory),
    "members": ("Different members", _members),
    "partitions": ("Many partitions", _partitions),
    "verify": ("Verify", _verify),
    "backlog": ("Backlog", _backlog),
    "ledger": ("Cost of a batch as the ledger grows", _ledger),
}
