"""A run stages with the files of its start: what is edited while it waits is read by the next run, under another version."""

from __future__ import annotations

from pathlib import Path

import pytest

from kpipe.batch.batch import Batch, Committed, Piece, RangeReport
from kpipe.batch.host_stats import Work
from kpipe_assets.runs import runner
from kpipe_assets.runs.runner import Run
from resources.spark.driver.batch_runner import BatchRunner
from resources.spark.driver.definition_version import version
from resources.spark.task import range_task
from resources.spark.task.task_spec import JobSpec
from tests.resources.sources.runs import Bench


class _Here(BatchRunner):
    """Runs tasks in this process."""

    def run(self, batch: Batch, job: JobSpec, pool: str) -> list[RangeReport]:
        return [range_task.stage(job, Piece.of(step, step.range)) for step in batch.steps]

    def cancel(self) -> None: ...

    def work(self) -> Work:
        return Work()


def _program(path: Path, by: str) -> None:
    """Write a program that adds its name to each record; replaced as an editor does."""
    fresh = path.with_suffix(".new")
    fresh.write_text(f"""#!/bin/sh\nexec sed 's/}}$/, "by": "{by}"}}/'\n""")
    fresh.chmod(0o755)
    fresh.replace(path)


@pytest.fixture(autouse=True)
def any_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run read files into a table, as no definition may: it needs no broker."""
    monkeypatch.setattr(runner, "validate", lambda *_, **__: None)


def _run(bench: Bench) -> Run:
    return Run.real(bench.pipeline, bench.home, _Here)


def _by(bench: Bench) -> list[str]:
    import duckdb

    (file,) = bench.home.path.rglob("*.duckdb")
    with duckdb.connect(str(file), read_only=True) as connection:
        return [by for (by,) in connection.execute('SELECT "by" FROM t ORDER BY id').fetchall()]


@pytest.mark.parametrize("known", [False, True], ids=["new table", "table"])
def test_a_program_that_is_edited_before_the_first_batch(tmp_path: Path, known: bool) -> None:
    program = tmp_path / "program.sh"
    _program(program, "first")
    bench = Bench(tmp_path, transform={"program": str(program), "mode": "map"})
    done: list[Committed] = []
    if known:
        bench.write("a", {"id": 0})
        done += _run(bench).batches()
    before, run = version(bench.pipeline), _run(bench)
    bench.write("b", {"id": 1})
    _program(program, "second")
    done += run.batches()
    bench.write("c", {"id": 2})
    done += run.batches()
    after = version(bench.pipeline)
    bench.write("d", {"id": 3})
    done += _run(bench).batches()
    assert _by(bench) == [*["first"] * (2 + known), "second"]
    assert [one.commit.version for one in done] == [*[before] * (2 + known), after] and before != after
