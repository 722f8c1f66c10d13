"""Variables that another thread removes while the environment is copied."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kpipe_assets.dagster_server.instance import environment
from resources.environ import snapshot
from resources.home import Home
from resources.secret_references import output


class Vanishing(type(os.environ)):  # type: ignore[misc]
    """An environment in which DAGSTER_HOME is removed as soon as its name has been read."""

    def __getitem__(self, name: str) -> str:
        if name == "DAGSTER_HOME":
            raise KeyError(name)
        return str(super().__getitem__(name))


@pytest.fixture(autouse=True)
def vanishing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", "/elsewhere")
    given = os.environ
    monkeypatch.setattr(
        os, "environ", Vanishing(dict(given._data), given.encodekey, given.decodekey, given.encodevalue, given.decodevalue)
    )


def test_the_environment_is_copied_without_what_vanishes(tmp_path: Path) -> None:
    assert "DAGSTER_HOME" in list(os.environ)
    with pytest.raises(KeyError):
        dict(os.environ)
    assert snapshot() == {name: os.environ[name] for name in os.environ if name != "DAGSTER_HOME"}
    home = Home(tmp_path / "home")
    assert environment(home)["DAGSTER_HOME"] == str(home.dagster)


def test_a_command_for_a_secret_runs_meanwhile() -> None:
    assert output(["/bin/echo", "word"]) == "word"
