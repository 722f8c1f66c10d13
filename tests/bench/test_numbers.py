"""The benchmark's arithmetic, and that a wrong run cannot win."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import goals
from bench.meter import Meter
from bench.numbers import paired, percentile, slope, spread
from bench.topics import SHAPES, Topic, _placed, retweets_sum
from bench.verify import in_parquet

some = st.lists(st.floats(min_value=-1e6, max_value=1e6), min_size=1, max_size=50)


def test_ratios_are_taken_within_a_repeat_so_a_machine_that_slows_down_changes_none() -> None:
    ours, theirs = {0: [100.0], 1: [50.0], 2: [25.0]}, {0: [20.0], 1: [10.0], 2: [5.0]}
    ratio = paired(ours, theirs)
    assert ratio is not None and (ratio.median, ratio.low, ratio.high, ratio.count) == (5, 5, 5, 3)


def test_a_repeat_that_only_one_of_them_has_does_not_count() -> None:
    ratio = paired({0: [10.0, 30.0], 1: [99.0]}, {0: [10.0], 2: [1.0]})
    assert ratio is not None and (ratio.median, ratio.count) == (2, 1)
    assert paired({0: [1.0]}, {1: [1.0]}) is None
    assert spread([]) is None


@given(some)
def test_percentiles_lie_between_neighbours(values: list[float]) -> None:
    assert percentile(values, 0) == min(values)
    assert percentile(values, 100) == max(values)
    assert percentile(values, 50) == pytest.approx(statistics.median(values))
    assert percentile(values, 25) <= percentile(values, 75)


def test_percentiles_of_nothing_are_an_error() -> None:
    with pytest.raises(ValueError, match="0 values"):
        percentile([], 50)


def test_a_slope() -> None:
    assert slope([(0, 1), (10, 21), (20, 41)]) == pytest.approx(2)


def reached(runs: list[dict[str, Any]]) -> bool | None:
    goal = "staged, against Structured Streaming to Parquet"
    return next(one.reached for one in goals.verdicts({"throughput": {"runs": runs}}) if one.goal == goal)


def test_a_failed_run_reaches_no_goal() -> None:
    good = [{"name": "kpipe staged", "repeat": 0, "msg_s": 900}, {"name": "spark parquet", "repeat": 0, "msg_s": 100}]
    bad = [{"name": "kpipe staged", "repeat": 0, "failed": "wrong rows"}, good[1]]
    assert reached(good) is True
    assert reached(bad) is None


def rows(ids: list[int], folder: Path) -> list[Path]:
    table = pa.table({"id": ids, "retweets": [7] * len(ids), "score": [0.5] * len(ids)})
    pq.write_table(table, folder / "rows.parquet")
    return [folder / "rows.parquet"]


@pytest.mark.parametrize(
    ("ids", "wrong"), [([0, 1, 2], ""), ([0, 1], "rows"), ([0, 1, 1], "distinct"), ([0, 1, 3], "high"), ([0, 1, 2, 2], "rows")]
)
def test_rows_that_are_lost_doubled_or_others_are_noticed(ids: list[int], wrong: str, tmp_path: Path) -> None:
    problem = in_parquet(rows(ids, tmp_path)).problem(3, 21)
    assert problem.startswith(wrong) and bool(problem) == bool(wrong)


def test_each_shape_has_the_size_of_its_name() -> None:
    makers = {name: shape() for name, shape in SHAPES.items()}
    sizes = {name: statistics.mean(len(make(number)) for number in range(10**6, 10**6 + 500)) for name, make in makers.items()}
    assert sizes["tweets"] == pytest.approx(285, abs=5)
    assert sizes["small"] == pytest.approx(30, abs=1)
    assert sizes["large"] == pytest.approx(20_000, rel=0.01)
    assert retweets_sum(1) == 0


def test_a_skewed_topic_holds_its_share_in_partition_0() -> None:
    place = _placed(Topic("t", "tweets", 10_000, 4, skew=0.9))
    assert place is not None
    places = [place(number) for number in range(10_000)]
    assert places.count(0) == pytest.approx(9000, abs=100)
    assert set(places) == {0, 1, 2, 3}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_the_meter_counts_children_that_have_ended() -> None:
    work = "sum(range(10**7))"
    code = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {work!r}]); print(1, flush=True); time.sleep(30)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        with Meter(process.pid, period_s=0.05) as meter:
            assert process.stdout is not None and process.stdout.readline()
            time.sleep(0.1)
        assert meter.cpu_s >= 0.05
        assert meter.roles["driver"] > 1
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
