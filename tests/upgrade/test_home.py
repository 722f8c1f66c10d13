"""Homes of every format are read, and older ones upgraded when they are written; those of later versions are refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kpipe.errors import FormatTooNew, KpipeError
from kpipe.ledger import format_version
from resources import home as home_module
from resources.home import Home
from tests.commandline import Kpipe
from tests.upgrade.stores import FORMATS, WRITTEN


@pytest.fixture(params=[pytest.param(number, id=f"format-{number}") for number in FORMATS])
def written(request: pytest.FixtureRequest) -> int:
    """The format that the home is in."""
    return int(request.param)


@pytest.fixture
def home(tmp_path: Path, written: int) -> Home:
    """A home as the version that wrote the format has left it."""
    shutil.copytree(WRITTEN / f"format-{written}" / "home", tmp_path / "home")
    for path in ((tmp_path / "home"), *(tmp_path / "home").rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return Home.at(tmp_path / "home")


def files(home: Home) -> dict[str, bytes]:
    return {str(path.relative_to(home.path)): path.read_bytes() for path in home.path.rglob("*") if path.is_file()}


def check(home: Home) -> None:
    """Assert that the home contains what `write_stores.write_home` has written."""
    assert home.check().names() == ("tweets",)
    pipeline = home.pipeline("tweets")
    assert (pipeline.into.key, pipeline.into.on_conflict, pipeline.source.start) == (["id"], "replace", "latest")
    assert pipeline.to_dict()["format"] == {
        "type": "csv", "fields": ["id", "text"], "delimiter": "|", "quote": '"', "null": "'; --",
    }  # fmt: skip
    seen = home.seen("tweets")
    assert (seen.uid, seen.seq) == ("0b5f9c1e-registration", 7)
    assert home.noted("tweets") == {"state": "error", "error": "it's \u2028 broken"}
    assert home.found("tweets") == ("web.a", "web.b")


def recorded(home: Home) -> str | None:
    file = home.state / "format_version"
    return file.read_text() if file.exists() else None


def test_a_home_is_read_without_a_write(home: Home, written: int) -> None:
    assert recorded(home) == (None if written == format_version.UNVERSIONED else f"{written}\n")
    before = files(home)
    check(home)
    assert files(home) == before


def test_a_home_is_upgraded_if_it_is_older_when_it_is_written(home: Home, written: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    for number in home_module.STEPS:
        monkeypatch.setitem(home_module.STEPS, number, lambda _, number=number: taken.append(number))
    before = files(home)
    for _ in range(2):
        home.make()
        check(home)
        assert taken == list(range(written, format_version.FORMAT_VERSION))
        assert files(home) == {**before, "state/format_version": f"{format_version.FORMAT_VERSION}\n".encode()}


def test_a_step_that_fails_is_taken_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Path] = []

    def step(folder: Path) -> None:
        taken.append(folder)
        if len(taken) == 1:
            raise OSError(28, "No space left on device")

    monkeypatch.setitem(home_module.STEPS, format_version.FORMAT_VERSION, step)
    monkeypatch.setattr(format_version, "FORMAT_VERSION", format_version.FORMAT_VERSION + 1)
    before = recorded(home)
    with pytest.raises(KpipeError, match="No space left"):
        home.make()
    assert recorded(home) == before
    home.make()
    home.make()
    assert taken == [home.path] * 2
    assert recorded(home) == f"{format_version.FORMAT_VERSION}\n"
    check(home)


def test_a_newer_home_is_refused_as_it_is(home: Home) -> None:
    pipeline = home.pipeline("tweets")
    home.make()
    newer = format_version.FORMAT_VERSION + 1
    (home.state / "format_version").write_text(f"{newer}\n")
    before = files(home)
    calls: list[Callable[[], Any]] = [
        home.check, home.make, home.names, lambda: home.pipeline("tweets"), lambda: home.seen("tweets"),
        lambda: home.save(pipeline),
    ]  # fmt: skip
    told = f"home {home.path}: written by a newer kpipe: expected format {newer - 1} or older, found {newer} -> upgrade kpipe"
    for call in calls:
        with pytest.raises(FormatTooNew) as caught:
            call()
        assert str(caught.value) == told
    for command in (["status"], ["sql", "SHOW PIPELINES"], ["run", "tweets"], ["verify", "tweets"]):
        done = Kpipe(home.path, "")(*command, status=1)
        assert done.stdout == ""
        assert done.stderr.strip().endswith(told) and done.stderr.count("\n") == 1
    assert files(home) == before


def test_a_number_that_is_none_is_damage(home: Home) -> None:
    home.make()
    (home.state / "format_version").write_text("one")
    with pytest.raises(KpipeError, match=r"format_version is damaged: .* -> restore it"):
        home.names()
