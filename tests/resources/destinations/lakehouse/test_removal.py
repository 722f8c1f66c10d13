"""Removal of snapshots and files that nothing needs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.errors import AuditFailed
from kpipe.maintenance.plan import Limits
from resources.destinations.iceberg import Audit, AuditedDestination, IcebergLake, SQLite, removal
from resources.destinations.iceberg.transaction import OneAttempt
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.maintenance import new_files
from resources.destinations.lakehouse.maintenance.removal import Removal, Removed
from resources.testing.keyed import Write, begun, commit_of, contents
from resources.testing.place import batch, begin
from resources.testing.state import proof
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace
from tests.resources.destinations.maintained_tables import PLACES, RULE, filled, load, maintained, version

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.resources.destinations.lake_place"])
HOUR = 3600


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return PLACES[request.param](tmp_path)


def compacted(place: Any) -> Any:
    """A table of four files that have become one."""
    destination = filled(place)
    maintained(place)
    return destination


def removed(place: Any, hours: float, retention: float = HOUR) -> Removed:
    """Remove, with a clock that is so many hours ahead."""
    return Removal(place.lake(), retention, lambda _: None, time.time() + hours * HOUR).run()


def stored(place: Any) -> set[str]:
    return {name for name in place.lake().stored() if not name.endswith(".avro")}


def referenced(place: Any) -> set[str]:
    lake = place.lake()
    return {name for name in lake.referenced(lake.load()) if not name.endswith(".avro")}


def test_old_files_are_removed_after_the_retention_time(place: Any) -> None:
    destination = compacted(place)
    before, files = contents(place), stored(place)
    first = removed(place, 0)
    assert (first.expired, first.removed) == (0, 0) and stored(place) == files
    load(place, 40, [3, 99])
    assert removed(place, 0.5).removed == 0
    second = removed(place, 2)
    assert second.removed > 0 and stored(place) == referenced(place)
    assert contents(place) == {**before, 3: ("t40", None, 0, 40), 99: ("t41", None, 0, 41)} and proof(destination).ok
    load(place, 42, [4, 100])
    assert len(contents(place)) == len(before) + 2 and proof(destination).ok
    if isinstance(place, IcebergPlace):
        assert (second.expired, len(place.iceberg().metadata.snapshots)) == (6, 2)
        assert place.iceberg().inspect.files().num_rows  # every manifest is there


def test_files_of_a_failed_batch_are_removed_once_it_cannot_land(place: Any) -> None:
    destination = begun(place, RULE, 1)
    load(place, 0, [1, 2])
    commit = commit_of(place, destination.ledger()[1], [Write(0, 2, 2, "x"), Write(0, 3, 3, "y")], RULE)

    def fail(point: str) -> None:
        if point == "commit.before":
            raise OSError("the process is killed")

    failpoints.arm(fail)
    with pytest.raises(Exception, match="killed"):
        place.open(rule=RULE).commit(commit)
    failpoints.arm(None)
    orphans = stored(place) - referenced(place)
    assert orphans
    assert removed(place, 0).waiting >= len(orphans)
    removed(place, 9)
    assert orphans <= stored(place)  # the table has no later version: the batch could still land
    place.open(rule=RULE).commit(commit)
    removed(place, 9)
    assert stored(place) == referenced(place)
    assert contents(place) == {1: ("t0", None, 0, 0), 2: ("x", None, 0, 2), 3: ("y", None, 0, 3)} and proof(destination).ok


@pytest.mark.parametrize("keyed", [True, False])
def test_a_batch_that_sleeps_before_its_commit_loses_nothing(place: Any, keyed: bool) -> None:
    """It wakes up after its files were removed. Its commit is then overtaken, and the next attempt writes other files."""
    destination = place.open(rule=RULE) if keyed else place.open()
    destination.commit(begin("tweets", [0]))
    other = place.open(pipeline="other")
    other.commit(begin("other", [1]))
    slept = []

    def sleep(point: str) -> None:
        if point == "commit.before" and not slept:
            slept.append(1)
            failpoints.arm(None)
            removed(place, 0)
            removed(place, 9)  # nothing has been committed meanwhile
            other.commit(batch(place, other.ledger()[1], {1: 2}))
            removed(place, 18)
            removed(place, 27)

    failpoints.arm(sleep)
    if keyed:
        load(place, 0, [1, 2, 3])
    else:
        destination.commit(batch(place, destination.ledger()[1], {0: 3}))
    failpoints.arm(None)
    assert slept and len(place.rows()) == 5 and proof(destination).ok and proof(other).ok


def test_tagged_snapshots_keep_their_files(tmp_path: Path) -> None:
    place = IcebergPlace(tmp_path)
    begun(place, RULE, 1)
    load(place, 0, [1, 2, 3])
    tagged = place.iceberg().metadata.current_snapshot()
    assert tagged is not None
    with place.iceberg().manage_snapshots() as change:
        change.create_tag(tagged.snapshot_id, "monthly")
    for at in range(3, 9):
        load(place, at, [at % 3 + 1])
    place.open(rule=RULE).maintain(Limits(min_input_files=2), tmp_path / "scratch")  # type: ignore[attr-defined]
    found = removed(place, 9)
    assert found.expired and found.removed
    old = place.iceberg().scan(snapshot_id=tagged.snapshot_id).to_arrow()
    assert sorted(old["text"].to_pylist()) == ["t0", "t1", "t2"]
    assert len(contents(place)) == 3


def test_rows_on_an_audit_branch_keep_their_files(tmp_path: Path) -> None:
    place = IcebergPlace(tmp_path)
    lake = IcebergLake(LocalFolder(place.folder), "tweets", SQLite(place.folder), audit=Audit({"small": "id < 3"}))
    destination = AuditedDestination(lake, "tweets", "tweets", {}, (place.staging,))
    destination.commit(begin("tweets", [0]))
    destination.commit(batch(place, destination.ledger()[1], {0: 2}))
    with pytest.raises(AuditFailed):
        destination.commit(batch(place, destination.ledger()[1], {0: 5}))
    Removal(lake, HOUR, lambda _: None, time.time() + 2 * HOUR).run()
    Removal(lake, HOUR, lambda _: None, time.time() + 9 * HOUR).run()
    audited = destination.audited()
    assert audited is not None and audited.rows == 3 and len(place.rows()) == 2


def test_files_of_other_programs_stay(place: Any) -> None:
    compacted(place)
    folder = place.folder / ("default/tweets/data" if isinstance(place, IcebergPlace) else "tweets")
    for name in ("part-00000.parquet", "kpipe-notes.txt", "other.bin"):
        (folder / name).write_bytes(b"x")
    removed(place, 0)
    load(place, 40, [1])
    removed(place, 9)
    assert {"part-00000.parquet", "kpipe-notes.txt", "other.bin"} <= {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("point", ["maintain.expired", "maintain.removing"])
def test_a_removal_that_was_killed_is_finished_by_the_next(place: Any, point: str) -> None:
    destination = compacted(place)
    before = contents(place)
    removed(place, 0)

    def fail(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    failpoints.arm(fail)
    with pytest.raises(KeyboardInterrupt):
        removed(place, 2)
    failpoints.arm(None)
    assert contents(place) == before and proof(destination).ok
    removed(place, 3)
    load(place, 40, [1])
    removed(place, 9)
    assert stored(place) == referenced(place) and proof(destination).ok


@pytest.mark.parametrize("text", ['{"a": ["x", 1]}', "{"])
def test_damaged_notes_begin_the_time_again(place: Any, text: str) -> None:
    compacted(place)
    removed(place, 0)
    files = stored(place)
    lake = place.lake()
    lake.ledger.write("_maintenance/unreferenced.json", text.encode())
    load(place, 40, [1])
    Removal(lake, 3 * HOUR, lambda _: None, time.time() + HOUR).run()
    assert files <= stored(place)


def several(place: IcebergPlace) -> list[int]:
    """A table with several snapshots; return them."""
    begun(place, RULE, 1)
    for at in range(4):
        load(place, at, [at])
    return [snapshot.snapshot_id for snapshot in place.iceberg().metadata.snapshots]


@pytest.mark.parametrize("target", ["expire", "commit_transaction"])
def test_a_tag_that_is_set_meanwhile_keeps_its_snapshot(tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catalogues apply an expiry to their newest metadata, and remove branches and tags with their snapshots."""
    place = IcebergPlace(tmp_path)
    old = several(place)[1]
    owner: Any = removal if target == "expire" else OneAttempt
    original = getattr(owner, target)

    def tagged(*arguments: Any) -> Any:
        monkeypatch.undo()
        with place.iceberg().manage_snapshots() as change:
            change.create_tag(old, "monthly")
        return original(*arguments)

    monkeypatch.setattr(owner, target, tagged)
    assert removed(place, 2).expired == 0
    assert place.iceberg().metadata.refs["monthly"].snapshot_id == old
    assert removed(place, 3).expired
    assert place.iceberg().scan(snapshot_id=old).to_arrow()["text"].to_pylist() == ["t0"]


@pytest.mark.parametrize("target", ["expire", "commit_transaction"])
def test_a_second_removal_of_the_same_snapshots_does_nothing(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, found = IcebergPlace(tmp_path), list[Removed]()
    several(place)
    owner: Any = removal if target == "expire" else OneAttempt
    original = getattr(owner, target)

    def second(*arguments: Any) -> Any:
        monkeypatch.undo()
        found.append(removed(place, 2))
        return original(*arguments)

    monkeypatch.setattr(owner, target, second)
    assert removed(place, 2).expired == 0 and found[0].expired
    assert len(contents(place)) == 4


def test_files_that_were_restored_meanwhile_wait_again(tmp_path: Path) -> None:
    """Readers may have opened the table just before the files were replaced for the second time."""
    place = DeltaPlace(tmp_path)
    filled(place)
    before = referenced(place)
    early = version(place)
    maintained(place)
    removed(place, -9)
    place.delta().restore(early)
    assert before <= referenced(place)
    load(place, 40, [1])  # also without a maintenance that sees the restored files
    maintained(place)
    assert not before & referenced(place)
    removed(place, 0.5)
    assert before <= stored(place)
    removed(place, 2)
    assert not before & stored(place) and len(contents(place)) == 31


def test_files_wait_again_where_the_log_is_incomplete(tmp_path: Path) -> None:
    place = DeltaPlace(tmp_path)
    filled(place)
    before = referenced(place)
    maintained(place)
    removed(place, -9)
    for number in range(3):
        load(place, 40 + number, [1])
    place.delta().create_checkpoint()
    next((place.folder / "tweets" / "_delta_log").glob(f"*{version(place) - 1}.json")).unlink()
    removed(place, 0)
    assert before <= stored(place)
    removed(place, 2)
    assert not before & stored(place)


def test_a_snapshot_is_kept_after_a_rollback_and_back(tmp_path: Path) -> None:
    place = IcebergPlace(tmp_path)
    snapshots = several(place)
    time.sleep(0.01)
    before = int(time.time() * 1000)
    for number in (snapshots[1], snapshots[-1]):
        with place.iceberg().manage_snapshots() as change:
            change.set_current_snapshot(number)
    lake = place.lake()
    lake.expired(lake.load(), before)
    assert [snapshot.snapshot_id for snapshot in place.iceberg().metadata.snapshots] == snapshots[1:]
    lake.expired(lake.load(), int(time.time() * 1000) + 1)
    assert [snapshot.snapshot_id for snapshot in place.iceberg().metadata.snapshots] == snapshots[-1:]


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _killed(place: Any) -> None:
    vars(new_files)["os"] = SimpleNamespace(fsync=_die)
    maintained(place)


def test_temporary_files_of_killed_processes_are_removed(place: Any) -> None:
    destination = filled(place)
    before = contents(place)
    process = _processes.Process(target=_killed, args=(place,))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    folder = place.folder / ("default/tweets" if isinstance(place, IcebergPlace) else "tweets")
    if isinstance(place, DeltaPlace):
        (folder / "_delta_log" / f".{'a' * 32}.tmp").write_text("{}")  # killed in a commit
    (folder / ".notes.tmp").write_text("of somebody else")
    left = {path for path in folder.rglob(".*.tmp") if len(path.name) == 37}
    assert len(left) == 1 + isinstance(place, DeltaPlace)
    assert removed(place, 0).waiting
    load(place, 40, [1])
    assert all(path.exists() for path in left)
    removed(place, 9)
    assert [path.name for path in folder.rglob(".*.tmp")] == [".notes.tmp"]
    assert len(contents(place)) == len(before) and proof(destination).ok
