"""Destinations of other packages: how kpipe finds them, and that its suite holds theirs to the contract."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import NotAvailable
from resources.destinations import open_destination
from resources.home import Home
from tests.example import install


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("example"))


def suite(target: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The package's own tests, as its author runs them."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "tests", *arguments],
        cwd=target, env={**os.environ, "PYTHONPATH": str(target)}, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip


SAMPLE = "rows_and_offsets or zombie or widened or (test_killed and before)"


@pytest.mark.parametrize(
    "chosen", [pytest.param(["-k", SAMPLE], id="sample"),
               pytest.param([], id="whole", marks=pytest.mark.chaos)],
)  # fmt: skip
def test_the_example_passes(installed: Path, chosen: list[str]) -> None:
    done = suite(installed, *chosen)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout


@dataclass(frozen=True)
class Broken:
    """The example with one thing broken, and the tests that must see it."""

    old: str
    new: str
    seen_by: str


BROKEN = {
    "it does not compare": Broken(
        '"UPDATE state SET version = version + 1, columns = ? WHERE version = ?"',
        '"UPDATE state SET version = version + 1, columns = ? WHERE version >= ? OR true"',
        "test_stopped_then_overtaken_then_awake[commit.before]",
    ),
    "it forgets a file": Broken("for file in brought]", "for file in brought[1:]]", "test_rows_and_offsets_come_together"),
    "it shows rows before the commit": Broken(
        "        return bring(self._folder, wanted, schema, commit, staged)\n",
        "        found = bring(self._folder, wanted, schema, commit, staged)\n"
        "        with self._catalogue() as catalogue:\n"
        '            catalogue.executemany("INSERT OR IGNORE INTO files VALUES (?)", [(file.name,) for file in found])\n'
        "        return found\n",
        "test_failure_before_landing_changes_nothing_and_the_retry_lands",
    ),
    "it remembers what it saw": Broken(
        "        return State(found[0], Columns.of(json.loads(found[1])), known, files)\n",
        '        self._known = getattr(self, "_known", None) or State(found[0], Columns.of(json.loads(found[1])), known, files)\n'
        "        return self._known\n",
        "test_zombie_is_fenced",
    ),
    "it leaves new columns out": Broken("grown(known, widening(", "known or grown(known, widening(", "test_table_is_widened"),
    "it counts what is there twice as once": Broken(
        '        return pa.concat_tables([wanted.empty_table(), *files], promote_options="default")\n',
        '        return pa.concat_tables([wanted.empty_table(), *files], promote_options="default")'
        ".group_by(list(names)).aggregate([])\n",
        "test_doubled_row_is_found_even_when_another_was_deleted",
    ),
    "it lands in two steps": Broken(
        '            catalogue.execute(\n                "INSERT OR REPLACE INTO pointers',
        '            catalogue.execute("COMMIT")\n'
        '            __import__("kpipe.failpoints").failpoints.failpoint("commit.after")\n'
        '            catalogue.execute("BEGIN")\n'
        '            catalogue.execute(\n                "INSERT OR REPLACE INTO pointers',
        "test_killed[commit.after]",
    ),
}  # fmt: skip
QUICK = ("it forgets a file", "it remembers what it saw")


@pytest.mark.parametrize("what", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.chaos) for name in BROKEN])
def test_the_suite_notices(installed: Path, tmp_path: Path, what: str) -> None:
    broken = BROKEN[what]
    target = tmp_path / "installed"
    shutil.copytree(installed, target, ignore=shutil.ignore_patterns("__pycache__"))
    path = target / "kpipe_shelf" / "shelf.py"
    text = path.read_text()
    assert broken.old in text, f"{what!r} no longer fits the example"
    path.write_text(text.replace(broken.old, broken.new))
    name, _, case = broken.seen_by.partition("[")
    done = suite(target, "-k", name + (f" and {case.rstrip(']').split('.')[1]}" if case else ""))
    assert done.returncode == 1, done.stdout
    assert f"::{broken.seen_by}" in done.stdout[done.stdout.index("short test summary") :], done.stdout


# -- how it is found


def pipeline(kind: str) -> Pipeline:
    return Pipeline.model_validate(
        {"name": "p", "source": {"brokers": "b:1", "topic": "t"}, "into": {"type": kind, "table": "t"}}
    )


def offered(folder: Path, package: str, value: str, code: str = "") -> None:
    """A package that offers `theirs`, as pip would leave it."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[kpipe.destinations]\ntheirs = {value}\n")
    if code:
        (folder / f"{package}.py").write_text(code)


def test_into_type_opens_what_a_package_offers(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(installed))
    found = open_destination(pipeline("shelf"), Home.at(tmp_path / "home"))
    assert found.describe() == f"Shelf {tmp_path / 'home' / 'data' / 'shelf' / 't'}, table t"
    assert found.ledger()[0] == "" and found.columns() is None


@pytest.mark.parametrize(
    ("package", "value", "code", "message"),
    [
        ("no_module", "no_such_module:open", "", r"no_module \(no_such_module:open\) cannot be loaded: ModuleNot"),
        ("falls_over", "falls_over:open", "raise RuntimeError('boom')", r"falls_over .* cannot be loaded: RuntimeError: boom"),
        ("no_name", "no_name:open", "x = 1", r"no_name .* cannot be loaded: AttributeError"),
        ("no_function", "no_function:open", "open = 1", r"is int, not a function"),
        ("half", "half:Half", "class Half:\n    def __init__(self, *_): ...\n    def commit(self, c): ...",
         r"returned Half without .*ledger, .*recount"),
    ],
)  # fmt: skip
def test_a_package_that_is_not_right_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, value: str, code: str, message: str
) -> None:
    offered(tmp_path / "site", package, value, code)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with pytest.raises(NotAvailable, match=message):
        open_destination(pipeline("theirs"), Home.at(tmp_path / "home"))


def test_two_packages_that_offer_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("one", "two"):
        offered(tmp_path / package, package, f"{package}:open")
        monkeypatch.syspath_prepend(str(tmp_path / package))
    with pytest.raises(NotAvailable, match=r"two packages offer it: .*one.*") as caught:
        open_destination(pipeline("theirs"), Home.at(tmp_path / "home"))
    assert "two (two:open)" in str(caught.value)
    with pytest.raises(NotAvailable, match=r"'paper' is not available.*use one of: .*duckdb.*theirs"):
        open_destination(pipeline("paper"), Home.at(tmp_path / "home"))


def test_no_package_takes_a_type_of_kpipes_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offered(tmp_path / "site", "usurper", "usurper:open", "def open(pipeline, home):\n    raise AssertionError")
    entry = tmp_path / "site" / "usurper-1.0.dist-info" / "entry_points.txt"
    entry.write_text(entry.read_text().replace("theirs", "duckdb"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert open_destination(pipeline("duckdb"), Home.at(tmp_path / "home")).describe().startswith("DuckDB ")
