"""DuckLake with the installed DuckDB, which no extension may fit; and its own tests, with a DuckDB that one fits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError, NotAvailable
from resources.destinations import open_destination
from resources.destinations.ducklake import extension
from resources.destinations.ducklake.catalog import file_catalog
from resources.destinations.ducklake.server_lake import _short

ROOT = Path(__file__).parents[3]
#: `make ducklake`: DuckDB and its extensions of one version (requirements-ducklake.lock).
PAIR = ROOT / ".venv" / "share" / "ducklake"


def pipeline(**into: Any) -> Pipeline:
    into = {"type": "ducklake", "table": "t", **into}
    return Pipeline.model_validate({"name": "p", "source": {"brokers": "b:1", "topic": "t"}, "into": into})


@pytest.fixture
def home(tmp_path: Path) -> Any:
    return SimpleNamespace(data=tmp_path / "data", roots=(str(tmp_path),))


def test_without_an_extension_of_this_version_the_error_names_both(
    home: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = tmp_path / "package"
    (packaged / "v1.4.4").mkdir(parents=True)
    (packaged / "v1.4.4" / "ducklake.duckdb_extension").touch()
    monkeypatch.setattr(extension, "_folder", lambda name: packaged)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NotAvailable) as refused:
        open_destination(pipeline(), home)
    expected = f"DuckDB's extension ducklake: expected one for DuckDB {duckdb.__version__}, found 1.4.4"
    assert expected in str(refused.value) and "kpipe[ducklake]" in str(refused.value)
    # One that `INSTALL ducklake` has put there.
    (platform,) = duckdb.execute("PRAGMA platform").fetchone() or ("",)
    own = tmp_path / ".duckdb" / "extensions" / f"v{duckdb.__version__}" / platform / "ducklake.duckdb_extension"
    own.parent.mkdir(parents=True)
    own.touch()
    assert open_destination(pipeline(), home).describe() == f"DuckLake {home.data}/ducklake.duckdb, table t"


@pytest.mark.parametrize(
    ("into", "words"),
    [
        ({"database": "s3://bucket/lake"}, "into.database s3:// is not available for ducklake"),
        ({"credentials": {"catalog.password": "{{ env('X') }}"}}, "a catalog in a file needs no credentials"),
        ({"catalog": "duckdb:"}, "no path of a file"),
        ({"catalog": "sqlite::memory:"}, "no path of a file"),
        ({"catalog": "postgresql://u@h/d", "credentials": {"password": "{{ env('X') }}"}}, "password is not a credential"),
        ({"catalog": "postgresql://u@h/d?options=-cstatement_timeout%3D1"}, "options: expected -csearch_path=SCHEMA"),
        ({"catalog": "postgresql://u@h/d?options=-csearch_path%3Da,b"}, "options: expected -csearch_path=SCHEMA"),
    ],
)
def test_places_that_are_refused(home: Any, into: dict[str, Any], words: str) -> None:
    with pytest.raises(KpipeError, match=re.escape(words)):
        open_destination(pipeline(**into), home)


@pytest.mark.parametrize(
    "into",
    [
        {"catalog": "https://catalog"},
        {"catalog": "mysql://u@h/d"},
        {"catalog": "postgresql://u:secret@h/d"},
        {"type": "iceberg", "catalog": "sqlite:/a"},
        {"type": "delta", "catalog": "duckdb:/a"},
        {"namespace": "x"},
    ],
)
def test_catalogs_of_other_types_are_refused(into: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"catalog|namespace") as refused:
        pipeline(**into)
    assert "secret" not in str(refused.value).replace("contains a secret", "").replace("move secrets", "")


def test_addresses_of_files() -> None:
    assert file_catalog("postgresql://u@h/d") is None
    found = file_catalog("sqlite:/a/it's here.db")
    assert found is not None and found.sqlite and str(found.path) == "/a/it's here.db"


def test_messages_of_a_server_have_no_statement_and_no_secret() -> None:
    failed = "Failed to commit: Failed to execute query"
    text = f"{failed} \"UPDATE x SET min_value = 'canary';\nUPDATE y\": ERROR:  deadlock detected (pw)"
    assert _short(text, ["pw"]) == "Failed to commit: Failed to execute query: ERROR:  deadlock detected (***)"


_FILES = [
    *sorted((Path(__file__).parent / "ducklake").glob("test_*.py")),
    ROOT / "tests/kpipe_assets/end_to_end/destinations/test_ducklake.py",
]

_LONG = {"test_combinations"}  # without a test for `make test`


def _run(tests: list[Path], *arguments: str) -> None:
    if not (PAIR / ".installed").exists():
        pytest.skip("no DuckDB with DuckLake -> make ducklake")
    paths = [str(PAIR), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, tests), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0 and passed is not None and int(passed[1]) > 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("tests", [file for file in _FILES if file.stem not in _LONG], ids=lambda path: path.stem)
def test_its_tests_pass(tests: Path) -> None:
    _run([tests])


@pytest.mark.chaos
def test_its_long_tests_pass() -> None:
    _run(_FILES, "-m", "chaos")
