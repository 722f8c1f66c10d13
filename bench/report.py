"""Write a page from result files: tables, goals, plots. It is rewritten from the result files in a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import goals
from bench.numbers import spread
from bench.plot import Bar, bars, lines

__all__ = ["write"]

Run = Mapping[str, Any]

_GROUPS = {"kpipe": 0, "spark": 1, "connect": 2, "copy": 3, "raw": 4, "script": 5, "bento": 5}
_MEMORY_MB = 600.0


def write(folder: Path) -> Path:
    """Write README.md and plots beside the results; return the page."""
    results = {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}
    parts = [
        "# Results",
        "",
        "Look up what was measured; `python -m bench` writes this page ([method](../../docs/explanation/benchmarks.md)).",
        "",
    ]
    parts += _goals(results)
    for name, section in (
        ("throughput", lambda result, at: _throughput(result, at, "throughput")),
        ("tables", lambda result, at: _throughput(result, at, "tables")),
        ("freshness", _freshness),
        ("shapes", _shapes),
        ("backlog", _backlog),
        ("ledger", _ledger),
    ):
        if name in results:
            parts += [*section(results[name], folder), "", *_measured(results[name]), ""]
    page = folder / "README.md"
    page.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
    return page


def _goals(results: Mapping[str, Any]) -> Iterator[str]:
    verdicts = [
        *(goals.throughput(results["throughput"]["runs"]) if "throughput" in results else ()),
        *(goals.tables(results["tables"]["runs"]) if "tables" in results else ()),
        *(goals.freshness(results["freshness"]["runs"]) if "freshness" in results else ()),
        *(goals.memory(results["shapes"]["runs"]) if "shapes" in results else ()),
    ]
    if verdicts:
        yield "## Goals"
        yield ""
        yield "Ratios are paired by repeat: the median, and the smallest and largest."
        yield ""
        yield from _table(
            ("goal", "wanted", "measured", "reached"),
            [(v.goal, v.wanted, v.found, {True: "yes", False: "**no**", None: "–"}[v.reached]) for v in verdicts],
        )
        yield ""


def _throughput(result: Mapping[str, Any], folder: Path, name: str) -> Iterator[str]:
    topic, plot = result["topic"], name
    yield {"throughput": "## Throughput", "tables": "## Into tables of lakes and databases"}[name]
    yield ""
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
    yield "## Freshness"
    yield ""
    yield f"{result['rate']:,} tweets/s for {result['seconds']} s, {result['partitions']} partitions: from produce to queryable."
    yield ""
    good = [run for run in result["runs"] if "failed" not in run]
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
    yield "## Shapes"
    yield ""
    yield "Into DuckDB, each in a fresh kpipe whose workers are up. A `2 GB range` is read by one worker, in one piece."
    yield ""
    good = [run for run in result["runs"] if "failed" not in run]
    yield from _table(
        ("shape", "records", "MB", "msg/s", "MB/s", "CPU s", "worker MB", "driver MB", "JVM MB", "tree MB"),
        [_shape(run) for run in good],
    )
    yield from _failed(result["runs"])
    yield ""
    rates = [Bar(run["name"], run["mb_s"], run["mb_s"], run["mb_s"]) for run in good]
    yield _plot(folder, "shapes", bars("Into DuckDB: MB/s by shape", rates))
    yield ""
    sizes = [
        Bar(f"{run['name']}, {role}", size, size, size, at)
        for run in good
        for at, (role, size) in enumerate((role, run["roles_mb"].get(role, 0)) for role in ("worker", "driver"))
    ]
    yield _plot(folder, "memory", bars("Peak RSS in MB: largest worker, driver", sizes, (_MEMORY_MB, "goal")))


def _shape(run: Run) -> tuple[str, ...]:
    roles = run["roles_mb"]
    return (
        run["name"], f"{run['records']:,}", f"{run['value_bytes'] / 1e6:,.0f}", f"{run['msg_s']:,}", f"{run['mb_s']:,.0f}",
        f"{run['cpu_s']:.1f}", *(f"{roles.get(role, 0):,}" for role in ("worker", "driver", "jvm")), f"{run['peak_rss_mb']:,}",
    )  # fmt: skip


def _backlog(result: Mapping[str, Any], folder: Path) -> Iterator[str]:
    yield "## Backlog"
    yield ""
    yield from _failed(result["runs"])
    for run in result["runs"]:
        if "failed" in run:
            continue
        roles, counts = run["roles_mb"], len(run["batches"])
        yield (
            f"{run['records']:,} tweets ({run['value_bytes'] / 1e9:.1f} GB) in {run['seconds']:.1f} s: {run['msg_s']:,} msg/s,"
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
    yield "## Cost of a batch as the ledger grows"
    yield ""
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
