"""What an audit writes: only into a folder of its own, without passwords; and what a report says that continues."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kpipe.audit.outcomes import State
from kpipe.definition.pipeline import Source
from kpipe.errors import InvalidPipeline
from resources.audit import run as audit
from resources.audit.table_address import TableAddress
from tests.resources.audit.test_run import fakes, write

SOURCE = Source(brokers="b", topic="t")
GOOD = [(0, at) for at in range(20)]


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes(monkeypatch, [[State.VALUE] * 20, [State.VALUE] * 5, []])


def group(patch: pytest.MonkeyPatch, offsets: Mapping[int, int]) -> None:
    patch.setattr(audit.TopicAdmin, "group_offsets", lambda *_: dict(offsets), raising=False)


@pytest.mark.parametrize("name", ["rows.parquet", "checks.sql", "notes.txt"])
def test_a_folder_of_other_files_is_left_alone(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / name).write_text("precious")
    with pytest.raises(InvalidPipeline, match="contains files, and no report"):
        audit.run(audit.Request(SOURCE, write(tmp_path, GOOD)), folder)
    assert [path.name for path in folder.iterdir()] == [name]
    assert (folder / name).read_text() == "precious"


def test_another_database_with_the_name_of_a_report_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    with duckdb.connect(str(folder / "report.duckdb")) as connection:
        connection.execute("CREATE TABLE precious AS SELECT 1")
    with pytest.raises(InvalidPipeline, match="not the report of an audit"):
        audit.run(audit.Request(SOURCE, write(tmp_path, GOOD)), folder)
    with duckdb.connect(str(folder / "report.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("precious",)]


@pytest.mark.parametrize("below", [".", "report", "a/b"])
def test_a_report_is_not_written_into_the_table(tmp_path: Path, below: str) -> None:
    """The next audit would take its file of rows for rows of the table."""
    table = write(tmp_path, GOOD)
    before = sorted(Path(table.database).rglob("*"))
    with pytest.raises(InvalidPipeline, match="inside the folder of the table"):
        audit.run(audit.Request(SOURCE, table), Path(table.database) / below)
    assert sorted(Path(table.database).rglob("*")) == before


@pytest.mark.parametrize(
    ("kind", "database", "catalog"),
    [
        ("postgres", "postgresql://u:hunter2@h/d", None),
        ("postgres", "postgresql://u@h/d?password=hunter2", None),
        ("postgres", "host=h dbname=d password=hunter2", None),
        ("mysql", "mysql://u:hunter2@h/d", None),
        ("delta", "s3://key:hunter2@bucket/t", None),
        ("iceberg", "s3://key:hunter2@bucket/v1.metadata.json", None),
        ("iceberg", "/lake", "postgresql://u:hunter2@h/d"),
        ("iceberg", "/lake", "https://u:hunter2@h/d"),
    ],
)
def test_no_report_is_begun_for_an_address_with_a_password(tmp_path: Path, kind: str, database: str, catalog: str | None) -> None:
    pytest.importorskip({"postgres": "psycopg", "mysql": "pymysql", "delta": "deltalake", "iceberg": "pyiceberg"}[kind])
    with pytest.raises(InvalidPipeline) as found:
        audit.run(audit.Request(SOURCE, TableAddress(kind, database, "t", catalog=catalog)), tmp_path / "report")
    assert "hunter2" not in str(found.value)
    assert not list(tmp_path.iterdir())


def test_a_partition_that_the_group_never_committed_is_not_left_out_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group(monkeypatch, {0: 20})
    table = write(tmp_path, GOOD)
    summary, *_ = audit.run(audit.Request(SOURCE, table, group="g"), tmp_path / "report")
    assert [problem.partition(":")[0] for problem in summary.problems()] == ["partition 1"]
    chosen = audit.Request(SOURCE, table, group="g", partitions=frozenset({0, 2}))  # nothing was ever written to 2
    assert audit.run(chosen, tmp_path / "chosen")[0].ok
    group(monkeypatch, {0: 20, 1: 0})  # its offset 0: the loader has begun, and claims nothing
    assert audit.run(audit.Request(SOURCE, table, group="g"), tmp_path / "begun")[0].ok


def test_a_report_that_continues_says_when_the_table_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = audit.Request(SOURCE, write(tmp_path, GOOD), partitions=frozenset({0}))
    heard: list[str] = []

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(audit.TopicLog, "states", stopped)
        with pytest.raises(KeyboardInterrupt):
            audit.run(request, tmp_path / "report", heard.append)
    assert heard == ["reading the table"]
    _, _, facts = audit.run(request, tmp_path / "report", heard.append)
    assert heard[1] == f"continuing with the rows that were read at {facts['read']}"
    with monkeypatch.context() as patch:
        patch.setattr(audit.TopicLog, "states", stopped)
        with pytest.raises(KeyboardInterrupt):
            audit.run(request, tmp_path / "again")
    (tmp_path / "again" / "rows.parquet").unlink()
    with pytest.raises(InvalidPipeline, match=r"rows\.parquet: the file is missing"):
        audit.run(request, tmp_path / "again")


def test_the_identity_of_a_request_has_everything_but_secrets_and_counts(tmp_path: Path) -> None:
    table = TableAddress("postgres", "postgresql://u@h/d", "t", credentials={"password": "{{ env('PG') }}"})
    one = audit.Request(SOURCE, table)
    assert "PG" not in str(one.identity())
    for change in (
        {"isolation": "read_uncommitted"},
        {"skips_tombstones": True},
        {"partitions": frozenset({1})},
        {"declared": "x"},
    ):
        assert audit.Request(SOURCE, table, **change).identity() != one.identity()  # type: ignore[arg-type]
