"""Killed and failed at every point of the way: what is visible then is exact, and so is what the next run makes of it.

Without a JVM (small.py), so that every point is tried each time; test_spark.py does it with Spark.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kpipe import failpoints
from kpipe.errors import InvalidPipeline
from kpipe.failpoints import AUDITED, BY_TOPIC, DIVIDED, LETTERS, MAINTAINED, POINTS
from tests.survival.site import Site, passes

#: Where a failure is tried each time; elsewhere in `make chaos`.
SAMPLE = (
    "plan.frozen",
    "read.end",
    "tx.eof",
    "stage.fsync",
    "collect.all",
    "commit.data",
    "commit.after",
    "readback",
    "gc.unlink",
)


@pytest.fixture(scope="module")
def old(site: Callable[..., Site]) -> Site:
    """A pipeline that has run before: every case goes on with what the one before it left."""
    made = site("old")
    made.writer.round(90)
    made.exact()
    return made


@pytest.mark.parametrize("point", POINTS)
def test_killed_in_the_middle(old: Site, point: str) -> None:
    old.writer.round(90)
    process = old.small(f"{point}:{passes(point)}:kill")
    status, said = process.end()
    assert status == -signal.SIGKILL, said
    assert old.processes() == []
    assert old.oracle.problems(ended=False) == []
    old.exact()


@pytest.mark.parametrize("point", [pytest.param(p, marks=[] if p in SAMPLE else pytest.mark.chaos) for p in POINTS])
def test_failed_in_the_middle(old: Site, point: str) -> None:
    """A defect, at any point: an error, or none where the batch had landed; never half a batch, and no file removed."""
    old.writer.plain(90)
    known = old.staging
    failpoints.arm(failpoints.Fault(f"{point}:{passes(point)}:raise"))
    if point == "commit.after":
        old.go_on()  # the answer got lost behind COMMIT: the ledger was read back, and the batch is there
    else:
        with pytest.raises(Exception, match=point):
            old.go_on()
    failpoints.arm(None)
    assert known <= old.staging
    assert old.oracle.problems(ended=False) == []
    # Before that, the task removes the file that it has not finished: one task writes the ranges of a small batch.
    if POINTS.index("collect.all") <= POINTS.index(point) < POINTS.index("commit.after"):
        assert len(old.staging - known) == 1, "the files of the batch that failed are gone"
    old.exact()


@pytest.mark.chaos
@pytest.mark.parametrize("point", POINTS)
def test_killed_in_the_first_run(site: Callable[..., Site], point: str) -> None:
    """No database, no ledger, no table yet."""
    new = site("first")
    new.writer.round(90)
    status, said = new.small(f"{point}:1:kill").end()
    assert status == -signal.SIGKILL, said
    assert new.oracle.problems(ended=False) == []
    new.exact()
    assert new.processes() == []


def test_what_they_left_is_collected_by_age(old: Site) -> None:
    """A day later; what is younger stays."""
    batches = sorted(old.staging)
    assert len(batches) > 10
    day = time.time() - 25 * 3600
    for name in batches[1:]:
        folder = old.kpipe.home / "staging" / name
        for path in (*folder.iterdir(), folder):
            os.utime(path, (day, day))
    # Those of the kills may be gone already where they took minutes: of each run, later ones remove what is old.
    for name in ("younger", "older"):
        (old.kpipe.home / "state" / f"{old.name}.0{name}.run").write_text("1")
    marks = sorted((old.kpipe.home / "state").glob("*.run"))
    assert len(marks) > 1
    os.utime(marks[0])
    for path in marks[1:]:
        os.utime(path, (day, day))
    old.go_on()
    assert old.staging == {batches[0]}
    assert list((old.kpipe.home / "state").glob("*.run")) == marks[:1]


def test_the_page_names_every_point() -> None:
    text = (Path(__file__).parent.parent.parent / "docs" / "explanation" / "reliability.md").read_text()
    table = text[text.index("<!-- points") :]
    assert tuple(re.findall(r"^\| `([a-z_.]+)` \|", table[: table.index("##")], re.MULTILINE)) == POINTS


def test_every_point_is_in_the_code_once() -> None:
    """Those of a commit once for databases, lakes, topics, dead letters that are tried again, clearing, and exchanged tables.

    Those of a read once for topics, and once for files and tables; those of the topic of dead letters once.
    """
    root = Path(__file__).parent.parent.parent
    files = {path for name in ("kpipe", "transforms", "resources") for path in (root / name).rglob("*.py")}
    lakes = {path for path in files if {"lakehouse", "delta", "iceberg"} & set(path.parts)}
    topics = {path for path in files if path.parts[-3:-1] == ("destinations", "kafka_sink")}
    other = {name: {path for path in files if path.name == f"{name}.py"} for name in ("clearing", "exchange", "splits")}
    replays = {path for path in files if path.name == "dead_letter_retry.py"}
    assert sorted(_reached(files.difference(lakes, topics, replays, *other.values()))) == sorted([*POINTS, *LETTERS])
    own = [point for point in POINTS if point.startswith("commit.") or point == "readback"]
    for family, more in ((lakes, (*AUDITED, *DIVIDED, *BY_TOPIC, *MAINTAINED)), (topics, ())):
        assert sorted(_reached(family)) == sorted([*own, *more])
    assert all(set(_reached(family)) <= set(POINTS) for family in other.values())
    assert set(_reached(replays)) < set(POINTS) and len(set(_reached(replays))) == len(_reached(replays)) > 0


def _reached(files: Iterable[Path]) -> list[str]:
    code = "\n".join(path.read_text() for path in files)
    return re.findall(r'failpoint\("([\w.]+)"\)', code) + [f"commit.{name}" for name in re.findall(r'enter\("(\w+)"\)', code)]


@pytest.mark.parametrize(
    "text", ["commit.befor:1:kill", "commit.before", "commit.before:0:kill", "commit.before:x:kill", "gc.scan:1:burn"]
)
def test_what_would_never_strike_is_refused(text: str) -> None:
    with pytest.raises(InvalidPipeline, match=r"points: plan\.ledger"):
        failpoints.Fault(text)
