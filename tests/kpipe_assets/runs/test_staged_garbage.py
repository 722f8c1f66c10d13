"""Staged files of attempts that were given up, while a run follows its topic for weeks."""

from __future__ import annotations

import os

import pytest

from kpipe.ingest.loop import Ingest
from kpipe_assets.runs import runner
from kpipe_assets.runs.runner import Run
from resources.spark.staging.staged_files import HORIZON_S
from tests.kpipe_assets.fakes import World


def test_a_run_that_follows_removes_what_was_given_up_long_ago(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_COLLECT_EVERY_S", -1.0)
    loop = Ingest(world.pipeline, world.topics, world.stager, world.destination, run_id="run-1", wait=lambda _: None)
    passes = Run(world.home, loop).passes(follow=True)
    next(passes)
    old, new = (world.home.staging / (name * 32) for name in "ab")
    for folder in (old, new):
        folder.mkdir()
        (folder / "1.parquet").touch()
    for path in (old, old / "1.parquet"):
        past = path.stat().st_mtime - HORIZON_S - 60
        os.utime(path, (past, past))
    next(passes)
    passes.close()
    assert not old.exists() and new.exists()
