"""Copies under faults: proven if kpipe and the pipeline are correct, not proven with the reason if one is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kpipe.errors import KpipeError
from kpipe_assets.chaos import campaign
from kpipe_assets.chaos.faults import Fault
from kpipe_assets.chaos.report import as_text
from tests.kpipe_assets.chaos.conftest import RECORDS, Site
from tests.survival.small import run

pytestmark = pytest.mark.broker

KILLED = Fault(1, "kill at a failpoint", point="commit.before", nth=3)
FAILED = Fault(2, "fail at a failpoint", point="commit.after", nth=2)
OVERTAKEN = Fault(3, "stop at a failpoint", point="collect.all", nth=2, seconds=20)
"""Two runs: the first one awakes when the second one has committed, and then tries to."""

#: One JSON row for each record.
SAME = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line)\n"
#: Rows with a number that differs for each process.
RANDOM = """
import os, sys, json
for line in sys.stdin:
    try:
        row = json.loads(line)
    except ValueError:
        row = {}
    print(json.dumps({**row, "lucky": os.getpid()}))
"""
#: One row more for each start of the program. The file contains a byte for each start.
COUNTS = """
import sys
with open({file!r}, "ab") as starts:
    starts.write(b"x")
    starts.flush()
    number = starts.tell()
for line in sys.stdin:
    for _ in range(number):
        sys.stdout.write(line)
"""


@pytest.fixture(autouse=True)
def _one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over after the first round."""
    rounds = iter((False, True))
    monkeypatch.setattr(campaign.Campaign, "is_over", lambda self, _: next(rounds, True))


def findings(found: dict[str, Any]) -> list[str]:
    return [finding["kind"] for finding in found["findings"]]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_correct_pipeline_is_proven_and_nothing_of_it_changes(site: Site, chosen: Callable[..., None]) -> None:
    site.define(transform={"program": site.program(SAME)}, metadata=["topic"])
    assert list(run(site.kpipe.home, "orders")), "a real table and its ledger"
    chosen(KILLED, FAILED)
    before = {name: files(site.home.path / name) for name in ("pipelines", "data", "staging")}
    found = site.chaos()
    assert (found["verdict"], found["findings"]) == ("proven", [])
    assert [copy["disturbed"] for copy in found["copies"]] == [False, True]
    for copy in found["copies"]:
        assert copy["verify"]["span"] == found["offsets"] == 2 * RECORDS
        assert copy["verify"]["ok"]
        assert (copy["verify"]["dead_letters"], copy["verify"]["filtered"]) == (2, 2)
        assert [(item["verdict"], item["without_row"]) for item in copy["audits"].values()] == [("explained", 4)]
        assert not copy["kept"]
    killed, failed = found["faults"]
    assert killed["runs"][0]["status"] == -9
    assert killed["runs"][0]["batches"] < 3
    assert (killed["hit"], failed["hit"]) == (True, False)
    assert (failed["point"], failed["runs"][0]["status"]) == ("commit.after", 0), "the commit was read back, and the run went on"
    assert {name: files(site.home.path / name) for name in before} == before
    left = sorted(path.name for path in Path(found["folder"]).iterdir())
    assert left == ["audits", "definition.yaml", "lock", "manifest.json", "report.json", "runs"]
    assert json.loads((Path(found["folder"]) / "report.json").read_text()) == json.loads(json.dumps(found, default=str))
    text = list(as_text(found))
    assert text[-1].startswith(
        "proven: 1 copy of 48 offsets loaded under faults, each equal to the undisturbed copy; seed 1; report:"
    )
    assert any("writes: " in line and found["folder"] in line for line in site.plan)


@pytest.mark.chaos
def test_a_run_that_is_overtaken_is_fenced(site: Site, chosen: Callable[..., None]) -> None:
    site.define()
    chosen(OVERTAKEN)
    found = site.chaos()
    assert found["verdict"] == "proven"
    first, second = found["faults"][0]["runs"]
    assert first["status"] == 1
    assert "another run committed first" in first["message"]
    assert second["batches"]


@pytest.mark.chaos
def test_a_program_that_is_not_deterministic_is_found_and_named(site: Site, chosen: Callable[..., None]) -> None:
    site.define(transform={"program": site.program(RANDOM)}, columns={"lucky": "BIGINT"})
    chosen(KILLED)
    found = site.chaos()
    assert (found["verdict"], findings(found)) == ("not proven", ["not_deterministic"])
    (finding,) = found["findings"]
    assert "two undisturbed copies of the same offsets differ, so the faults are not the cause" in finding["text"]
    assert finding["samples"][0]["columns"] == ["lucky"]
    assert finding["samples"][0]["rows"] == [1, 1]
    assert all(copy["verify"]["ok"] for copy in found["copies"]), "each copy is consistent in itself"
    text = "\n".join(as_text(found))
    assert "The pipeline is not deterministic" in text
    assert "columns lucky" in text


def test_a_program_that_writes_another_number_of_rows_on_each_try(site: Site, chosen: Callable[..., None]) -> None:
    program = site.program(COUNTS.format(file=str(site.kpipe.home.parent / "starts")))
    site.define(transform={"program": program, "mode": "flatmap"})
    chosen(KILLED)
    found = site.chaos()
    assert findings(found) == ["not_deterministic"]
    assert "partition 0: rows: expected" in found["findings"][0]["text"]
    assert "table orders: expected" in found["findings"][0]["text"]
    assert all(copy["not_audited"] == "rows of a program with mode: flatmap do not name their record" for copy in found["copies"])


def test_a_kpipe_that_loses_a_record_where_a_run_resumes(
    site: Site, chosen: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy's own ledger is consistent, so verify does not notice; audit and undisturbed copy do."""
    monkeypatch.setenv("KPIPE_DEFECT", "skip at resume")
    site.define()
    chosen(KILLED)
    found = site.chaos()
    assert (found["verdict"], set(findings(found))) == ("not proven", {"not_proven", "differs"})
    undisturbed, copy = found["copies"][:2]
    assert undisturbed["verify"]["gaps"] == 0
    assert copy["verify"]["ok"] and copy["verify"]["gaps"] > 0
    assert any("audit of" in problem and "record without a row" in problem for problem in copy["problems"]), copy["problems"]


@pytest.mark.chaos
def test_a_kpipe_that_does_not_fence_runs(site: Site, chosen: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPIPE_DEFECT", "no fencing")
    site.define()
    chosen(OVERTAKEN)
    found = site.chaos()
    assert (found["verdict"], set(findings(found))) == ("not proven", {"failed"})
    assert any("an operator must decide" in finding["text"] for finding in found["findings"])


def test_a_pipeline_that_fails_without_faults_is_no_finding(site: Site, chosen: Callable[..., None]) -> None:
    site.define(errors={"parse": "fail"})
    chosen(KILLED)
    with pytest.raises(KpipeError, match=r"without faults, copy __kpipe_chaos_.*not JSON"):
        site.chaos()
    (folder,) = site.home.chaos.iterdir()
    assert json.loads((folder / "manifest.json").read_text())["cleaned"]
    assert not (folder / "home").exists()


def test_kept_copies_can_be_queried_and_are_removed_on_demand(site: Site, chosen: Callable[..., None]) -> None:
    site.define(into={"table": "orders", "database": str(site.kpipe.home.parent / "lake.duckdb")})
    chosen(KILLED)
    (found,) = site.kpipe.json("chaos", "orders", "--seed", "7", "--keep")
    assert found["seed"] == 7
    assert [copy["kept"] for copy in found["copies"]] == [True, True]
    for copy in found["copies"]:
        with duckdb.connect(f"{copy['place']}/kpipe.duckdb", read_only=True) as connection:
            assert connection.execute(f"SELECT count(*) FROM {copy['tables']['orders']}").fetchone() == (2 * RECORDS - 4,)
        proof = site.kpipe.json("verify", copy["name"], KPIPE_HOME=f"{found['folder']}/home")
        assert proof[0]["ok"]
    assert site.kpipe.json("chaos", "orders", "--clean") == [{"event": "clean", "pipeline": "orders", "removed": 1}]
    assert not list(site.kpipe.home.parent.glob("__kpipe_chaos_*"))
    assert site.kpipe("chaos", "orders", "--clean").stdout == "orders: nothing to remove\n"
