"""Another project's package under one of kpipe's import names: kpipe does not import beside it, and the error names both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
_CODE = "import sys; sys.path.insert(int(sys.argv[1]), sys.argv[2]); {}import kpipe_assets; print('imported')"


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    known = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env={**known, **environ}, capture_output=True, text=True, timeout=600, check=False
    )


def package(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    return folder / name


@pytest.mark.parametrize("first", ["", "import {name}; "], ids=["fresh", "imported"])
@pytest.mark.parametrize("name", ["resources", "transforms"])
def test_one_that_comes_first_is_named(tmp_path: Path, name: str, first: str) -> None:
    theirs = package(tmp_path, name)
    done = run("-c", _CODE.format(first.format(name=name)), "0", str(tmp_path))
    assert done.stdout == ""
    (last,) = done.stderr.splitlines()[-1:]
    assert last.startswith(f"ImportError: package {name}: expected kpipe's in {ROOT / name}, found {theirs} -> ")
    assert "an environment of its own" in last and "code location" in last


@pytest.mark.parametrize("file", ["resources/__init__.py", "transforms/__init__.py", "transforms.py"])
def test_one_that_kpipes_would_hide_is_named(tmp_path: Path, file: str) -> None:
    theirs = tmp_path / file
    name = file.partition("/")[0].removesuffix(".py")
    theirs.parent.mkdir(exist_ok=True)
    theirs.touch()
    done = run("-c", _CODE.format(""), "99", str(tmp_path))
    assert done.stdout == ""
    (last,) = done.stderr.splitlines()[-1:]
    assert last.startswith(f"ImportError: package {name}: kpipe's in {ROOT / name} hides the one in {theirs} -> ")


def test_folders_of_programs_and_other_copies_of_kpipe_are_not_other_packages(tmp_path: Path) -> None:
    (tmp_path / "transforms").mkdir()
    (tmp_path / "transforms" / "flatten.py").touch()
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("kpipe", "resources", "transforms"):
        package(copy, name)
    for folder in (tmp_path, copy):
        assert run("-c", _CODE.format(""), "99", str(folder)).stdout == "imported\n"


def test_the_command_names_it(tmp_path: Path) -> None:
    theirs = package(tmp_path, "resources")
    done = run("-m", "kpipe_assets.cli", "--version", PYTHONPATH=str(tmp_path))
    assert done.returncode != 0
    assert f"kpipe's in {ROOT / 'resources'} hides the one in {theirs}" in done.stderr.splitlines()[-1]


@pytest.mark.heavy
def test_a_code_location_of_dagster_names_it(tmp_path: Path) -> None:
    theirs = package(tmp_path, "resources")
    words = ("-m", "dagster", "definitions", "validate", "-m", "kpipe_assets.definitions", "-d", str(tmp_path))
    done = run(*words, DAGSTER_HOME=str(tmp_path), PYTHONPATH=str(ROOT))
    assert done.returncode != 0
    assert str(theirs) in done.stderr + done.stdout and "an environment of its own" in done.stderr + done.stdout
