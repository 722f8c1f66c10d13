"""When a pipeline of the service starts, ends and starts again, over threads that do what the test says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kpipe.errors import KpipeError, OffsetsLost
from kpipe_assets.runs.backoff import Backoff
from kpipe_assets.runs.stop_requests import ask
from kpipe_assets.service import keeper as module
from kpipe_assets.service.keeper import Keeper, Version
from resources.home import Home

ONE: Version = (1, 1, 1)
TWO: Version = (2, 2, 2)


class Thread:
    """A pipeline's thread, driven by the test."""

    def __init__(self) -> None:
        self.alive, self.error, self.asked, self.cancelled = True, None, False, False
        self.began, self.batches, self.silent = 0.0, 0, 0.0

    def start(self) -> None: ...

    def is_alive(self) -> bool:
        return self.alive

    def end(self) -> None:
        self.asked = True

    def cancel(self) -> None:
        self.cancelled = True

    def silent_s(self) -> float:
        return self.silent

    def stack(self) -> str:
        return "in a loop"

    def die(self, error: BaseException | None = None) -> None:
        self.alive, self.error = False, error  # type: ignore[assignment]


class Site:
    """A keeper, its clock and its threads."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.threads, self.lines, self.now = Home.at(folder).make(), list[Thread](), list[str](), 1000.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        self.keeper = Keeper(self.home, "p", self._make, lambda text, _="": self.lines.append(text), Backoff(10, 600))  # type: ignore[arg-type]

    def _make(self, name: str) -> Thread:
        assert name == "p"
        self.threads.append(Thread())
        self.threads[-1].began = self.now
        return self.threads[-1]

    def fail(self, error: BaseException) -> None:
        self.threads[-1].die(error)
        self.keeper.look(ONE)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_a_thread_starts_and_ends_with_the_switch(site: Site) -> None:
    assert not site.keeper.look(None) and not site.threads
    assert site.keeper.look(ONE) and site.keeper.look(ONE) and len(site.threads) == 1
    assert site.keeper.look(None) and site.threads[0].asked, "it is kept until it has ended"
    site.threads[0].die()
    assert not site.keeper.look(None) and len(site.threads) == 1


def test_an_edited_definition_ends_the_thread_and_starts_the_next_one(site: Site) -> None:
    site.keeper.look(ONE)
    site.keeper.look(TWO)
    assert site.threads[0].asked and len(site.threads) == 1, "never two threads of one pipeline"
    site.threads[0].die()
    site.keeper.look(TWO)
    assert len(site.threads) == 2 and not site.threads[1].asked


def test_failures_wait_longer_each_time_and_are_recorded(site: Site) -> None:
    site.keeper.look(ONE)
    starts = []
    for _ in range(9):
        site.fail(KpipeError("no"))
        begun = site.now
        while site.keeper.thread is None:
            site.now += 0.5
            site.keeper.look(ONE)
        starts.append(round(site.now - begun))
    assert starts == [0, 10, 20, 40, 80, 160, 320, 600, 600]
    assert site.home.noted("p") == {"state": "error", "error": "no"}
    site.now += 601
    site.fail(KpipeError("late"))
    assert site.keeper.thread is not None, "a run that lasted is no failure to start"


@pytest.mark.parametrize("how", ["edited", "started", "stopped"])
def test_a_waiting_pipeline_starts_at_once_for_an_operator(site: Site, how: str) -> None:
    site.keeper.look(ONE)
    site.fail(OffsetsLost("gone"))
    site.fail(OffsetsLost("gone"))
    assert site.keeper.thread is None and site.home.noted("p")["state"] == "needs_operator"
    site.keeper.look(ONE)
    assert site.keeper.thread is None
    if how == "stopped":
        assert not site.keeper.look(None)
        return
    if how == "started":
        site.home.note("p", "stopped")
    site.keeper.look(TWO if how == "edited" else ONE)
    assert site.keeper.thread is not None


def test_a_batch_that_fails_after_the_stop_leaves_the_pipeline_stopped(site: Site) -> None:
    site.keeper.look(ONE)
    assert site.keeper.look(None)
    site.home.note("p", "error", "no")  # as the run does
    site.threads[0].die(KpipeError("no"))
    assert not site.keeper.look(None)
    assert site.home.noted("p") == {"state": "stopped", "error": "no"}
    assert site.keeper.look(ONE) and len(site.threads) == 2, "it starts at once"


def test_a_defect_ends_one_thread_and_is_recorded(site: Site) -> None:
    site.keeper.look(ONE)
    site.fail(ZeroDivisionError())
    assert site.home.noted("p") == {"state": "error", "error": "ZeroDivisionError"} and len(site.threads) == 2


def test_a_cancelled_stop_discards_the_batch(site: Site) -> None:
    ask(site.home, "p", "cancel")
    site.keeper.look(ONE)
    site.keeper.look(None)
    assert site.threads[0].asked and not site.threads[0].cancelled, "an older request"
    ask(site.home, "p", "cancel")
    site.keeper.look(None)
    assert site.threads[0].cancelled


def test_a_thread_that_hangs_is_reported_once(site: Site) -> None:
    site.keeper.look(ONE)
    site.threads[0].silent = 301.0
    site.keeper.look(ONE)
    site.keeper.look(ONE)
    assert [line for line in site.lines if "no progress" in line and "in a loop" in line] == [site.lines[-1]]
    assert site.keeper.thread is not None
    site.threads[0].silent = 0.0
    site.keeper.look(ONE)
    assert site.lines[-1] == "makes progress again"
