"""Interrupted by Ctrl-C, SIGTERM or SIGKILL: what was created is removed, at once or by `--clean`."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError
from kpipe_assets.chaos import session
from kpipe_assets.chaos.processes import Run, runs_of
from kpipe_assets.chaos.report import as_text
from kpipe_assets.chaos.workspace import Workspace, unfinished
from resources.home import Home
from tests.kpipe_assets.chaos.conftest import Site
from tests.kpipe_assets.chaos.spark_free import ForkedRun


@pytest.fixture
def beside(site: Site) -> Path:
    """The folder of the real DuckDB file, in which copies have theirs."""
    folder = site.kpipe.home.parent / "place"
    folder.mkdir()
    site.define(into={"table": "orders", "database": str(folder / "x.duckdb")})
    return folder


def until(condition: Callable[[], Any], seconds: float = 300) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return found


@pytest.mark.broker
def test_ctrl_c_removes_the_copies_and_leaves_a_report(
    site: Site, beside: Path, chosen: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def start(name: str, *arguments: Any) -> ForkedRun:
        calls.append(name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return ForkedRun(name, *arguments)

    chosen()
    monkeypatch.setattr(Run, "of", start)
    found = site.chaos(seed=5)
    assert (found["verdict"], len(found["copies"])) == ("interrupted", 2)
    assert list(beside.iterdir()) == []
    assert list(as_text(found))[-1].startswith("interrupted; seed 5; report: ")
    assert unfinished(site.home, "orders") == []


@pytest.mark.broker
def test_after_sigkill_the_next_call_ends_its_runs_and_removes_its_copies(site: Site, beside: Path) -> None:
    process = site.kpipe.start("chaos", "orders")
    (copy,) = until(lambda: list(beside.glob("__kpipe_chaos_*_0")))
    prefix = copy.name.removesuffix("_0")
    for run in until(lambda: runs_of(prefix)):
        run.suspend()  # else it may have ended when it is looked for
    process.kill()
    process.communicate()
    assert runs_of(prefix), "its run is not its own process group, and goes on"
    warned = site.kpipe("chaos", "orders", "--plan").stderr
    assert "earlier copies exist" in warned and "kpipe chaos --clean orders" in warned
    cleaned = site.kpipe("chaos", "orders", "--clean")
    assert f"removed {copy}" in cleaned.stderr
    assert runs_of(prefix) == []
    assert list(beside.iterdir()) == []
    (manifest,) = [json.loads(path.read_text()) for path in site.home.chaos.glob("*/manifest.json")]
    assert manifest["cleaned"]


@pytest.mark.broker
def test_sigterm_is_like_ctrl_c(site: Site, beside: Path) -> None:
    process = site.kpipe.start("chaos", "orders", "--seed", "6")
    until(lambda: list(beside.glob("__kpipe_chaos_*_0/kpipe.duckdb")) or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "interrupted; seed 6; report: " in out
    assert list(beside.iterdir()) == []


@pytest.mark.broker
def test_the_plan_names_what_would_be_created_and_creates_nothing(site: Site, beside: Path) -> None:
    done = site.kpipe("chaos", "orders", "--plan", "--seed", "9", "--max-offsets", "10")
    assert f"reads:  10 offsets of {site.topic}" in done.stdout
    assert f"{beside}/__kpipe_chaos_" in done.stdout
    assert "never:  orders, ledger and dead letters of orders; topics; consumer groups" in done.stdout
    assert list(beside.iterdir()) == []
    assert not site.home.chaos.exists()


def definition(**into: Any) -> Pipeline:
    given = {"name": "orders", "source": {"brokers": "b:1", "topic": "t"}, "into": {"table": "orders", **into}}
    return Pipeline.model_validate(given)


def test_a_copy_in_use_is_not_removed(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "home")
    workspace, lines = Workspace.planned(home.make(), definition(), 1).make(), list[str]()
    with workspace.locked():
        assert session.clean(home, "orders", lines.append) == 0
        assert "in use by a running kpipe chaos" in lines[0]
        with pytest.raises(KpipeError, match="kpipe chaos is running"), workspace.locked():
            pass
    assert session.clean(home, "other", lines.append) == 0
    assert session.clean(home, "orders", lines.append) == 1
    assert session.clean(home, "orders", lines.append) == 0


def test_a_place_that_cannot_be_removed_does_not_keep_the_others(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "home")
    (tmp_path / "place").mkdir()
    workspace = Workspace.planned(home.make(), definition(database=str(tmp_path / "place" / "x.duckdb")), 1).make()
    names = [f"{workspace.copy_prefix}_{at}" for at in range(2)]
    for name in names:
        workspace.create_copy(name)
    mark = tmp_path / "place" / names[0] / "kpipe-chaos"
    mark.rename(mark.with_name("moved"))
    with pytest.raises(KpipeError, match="cannot be removed: Directory not empty"):
        session.clean(home, "orders", lambda _: None)
    assert [path.name for path in (tmp_path / "place").iterdir()] == names[:1]
    assert unfinished(home, "orders") == [workspace.path]
    mark.with_name("moved").rename(mark)
    assert session.clean(home, "orders", lambda _: None) == 1
    assert list((tmp_path / "place").iterdir()) == []


def test_literal_credentials_are_those_of_the_current_definition(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "home")
    original = definition(type="postgres", database="postgresql://u@h/d", credentials={"password": "hunter2"})
    home.save(original)
    made = Workspace.planned(home, original, 1).make()
    texts = [path.read_text() for path in made.path.rglob("*") if path.is_file()]
    assert not [text for text in texts if "hunter2" in text]
    assert Workspace.open(home, made.path).pipeline.into.credentials == {"password": "hunter2"}
    home.remove("orders")
    with pytest.raises(KpipeError, match="no pipeline 'orders'"):
        Workspace.open(home, made.path)


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "home")
    made = Workspace.planned(home.make(), definition(), 1).make()
    (made.path / "manifest.json").write_text("{")
    with pytest.raises(KpipeError, match=f"{made.path}: damaged"):
        Workspace.open(home, made.path)
    assert unfinished(home, "orders") == []
