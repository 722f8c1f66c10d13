"""A disk that fails under a DuckDB file: errors of writing and syncing, short writes, a torn log; and what is synced when."""

from __future__ import annotations

import errno
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError
from resources.testing.place import batch, begin
from resources.testing.state import loaded, positions, proof
from tests.faults.badio import failing, library, watched
from tests.resources.destinations.place import DuckDBPlace

# Commits one batch after the other in one process, as a run does, each up to five times; says what came of it.
COMMITS = """
import pickle, sys
from pathlib import Path
from kpipe.errors import KpipeError
from resources.destinations.duckdb import DuckDBEngine
from resources.destinations.sql.destination import SqlDestination
from resources.destinations.sql.engine import TargetTable
path, staging, recorded = sys.argv[1:]
destination = SqlDestination(DuckDBEngine(Path(path), (Path(staging),), 2), "tweets", [TargetTable("tweets")])
for commit in pickle.loads(Path(recorded).read_bytes()):
    for _ in range(5):
        try:
            print("landed", destination.commit(commit).seq, flush=True)
            break
        except KpipeError as error:
            print(type(error).__name__, repr(str(error)), flush=True)
"""


@pytest.fixture
def place(tmp_path: Path) -> DuckDBPlace:
    return DuckDBPlace(tmp_path)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("shim"))


def commits(place: DuckDBPlace, ends: Sequence[int]) -> list[Commit]:
    """Batches that follow each other, planned ahead."""
    made, ledger = [], place.open().ledger()[1]
    for end in ends:
        made.append(batch(place, ledger, {0: end}, dead=[(0, end - 1)]))
        ledger = ledger.after(made[-1].changes)
    return made


def run(place: DuckDBPlace, batches: Sequence[Commit], environment: dict[str, str], status: int | None = 0) -> list[str]:
    """What came of them in a process of its own."""
    recorded = place.staging / "commits.pickle"
    recorded.write_bytes(pickle.dumps(list(batches)))
    done = subprocess.run(
        [sys.executable, "-c", COMMITS, str(place.path), str(place.staging), str(recorded)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert status is None or done.returncode == status, done.stdout + done.stderr
    return done.stdout.splitlines()


def check(place: DuckDBPlace, told: list[str]) -> None:
    """The file holds exactly what was said to have landed, and everything that follows goes well."""
    destination = place.open()
    assert proof(destination).ok
    landed = [int(line.split()[1]) for line in told if line.startswith("landed")]
    assert destination.ledger()[1].seq == max(landed, default=2), told
    assert len(place.rows()) == 15 + sum(row["rows_inserted"] for row in destination.view("batches_summary") if row["seq"] > 2)
    destination.commit(batch(place, destination.ledger()[1], {0: 40}))
    assert positions(destination)[0] == 40 and proof(destination).ok


# A commit: write and sync of the log, twice (the second time it is to be emptied), eleven writes into the file, sync,
# the file's head, sync.
FEW = [("write", 1), ("write", 6), ("write", 14), ("fsync", 1), ("fsync", 3), ("fsync", 4)]
ALL = [("write", n) for n in range(1, 31)] + [("fsync", n) for n in range(1, 9)] + [("truncate", 1), ("truncate", 2)]


def faults() -> list[object]:
    chaos = [pytest.param(call, nth, times, marks=pytest.mark.chaos) for call, nth in ALL for times in (1, 3, 1000)]
    return [*((call, nth, 3) for call, nth in FEW), *chaos]


@pytest.mark.parametrize(("call", "nth", "times"), faults())
def test_disk_that_fails_once_or_for_good(place: DuckDBPlace, shim: Path, call: str, nth: int, times: int) -> None:
    """A run goes on by itself when the disk does; what was told as landed is there, what was told as failed is not."""
    loaded(place)
    told = run(place, commits(place, [12, 15, 17]), failing(shim, call, errno.EIO, "kpipe.duckdb", nth, times))
    assert [line.split()[0] for line in told if line.startswith("landed")] == ["landed"] * len(
        re.findall("landed", " ".join(told))
    )
    if times <= 3:
        assert [line for line in told if line.startswith("landed")] == ["landed 3", "landed 4", "landed 5"]
    check(place, told)


def test_disk_that_fails_is_told(place: DuckDBPlace, shim: Path) -> None:
    loaded(place)
    told = run(place, commits(place, [12]), failing(shim, "write", errno.EIO, ".wal", times=1000))
    assert len(told) == 5
    assert all(re.match(r"DestinationError .*Input/output error.*nothing was written; run it again", line) for line in told)
    check(place, told)


@pytest.mark.parametrize("nth", [1, 6, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(2, 28) if n != 6)])
def test_short_writes_are_gone_on_with(place: DuckDBPlace, shim: Path, nth: int) -> None:
    loaded(place)
    told = run(place, commits(place, [12, 15]), failing(shim, "write", 0, "kpipe.duckdb", nth, 4))
    assert told == ["landed 3", "landed 4"]
    check(place, told)


def test_full_disk_that_gets_room_again(place: DuckDBPlace, shim: Path) -> None:
    loaded(place)
    told = run(place, commits(place, [12, 15]), failing(shim, "write", errno.ENOSPC, "kpipe.duckdb", 1, 2))
    assert [line.split()[0] for line in told] == ["DestinationError", "DestinationError", "landed", "landed"]
    assert "No space left on device" in told[0]
    check(place, told)


STAGED = """
import sys, uuid
from dataclasses import replace
from pathlib import Path
import pyarrow as pa
from kpipe.batch.batch import Counts, TableWrite
from kpipe.ledger.ledger import Step
from resources.destinations.duckdb import DuckDBEngine
from resources.destinations.sql.destination import SqlDestination
from resources.destinations.sql.engine import TargetTable
from resources.spark.staging.staged_files import StagingWriter
from kpipe.testing.commits import commit_to
from resources.testing.place import COLUMNS, begin
path, staging = map(Path, sys.argv[1:])
destination = SqlDestination(DuckDBEngine(path, (staging,), 2), "tweets", [TargetTable("tweets")])
destination.commit(begin("tweets", [0]))
(lane,) = destination.ledger()[1].lanes.values()
batch, step = uuid.uuid4().hex, Step(lane, 5)
writer = StagingWriter(staging / batch)
rows = {"id": range(5), "text": ["x"] * 5, "_kafka_partition": pa.array([0] * 5, pa.int32()), "_kafka_offset": range(5)}
writer.write(pa.table({name: pa.array(values) for name, values in rows.items()}))
file = writer.finish()
destination.commit(
    commit_to(
        TableWrite(columns=COLUMNS, files=(file,)), {lane.key: Counts(5, 5)},
        id=batch, pipeline="tweets", changes=(step.change,), steps=(step,),
    )
)
"""


def test_what_is_synced_before_what(place: DuckDBPlace, shim: Path, tmp_path: Path) -> None:
    """Power may go at any moment: the staged file and its folders are on the disk before the commit's record is begun, and
    that is synced before anybody hears of it."""
    log = tmp_path / "calls"
    done = subprocess.run(
        [sys.executable, "-c", STAGED, str(place.path), str(place.staging)],
        env={**os.environ, **watched(shim, log, str(tmp_path))},
        cwd=Path(__file__).resolve().parents[4],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert proof(place.open()).ok and len(place.rows()) == 5
    calls = re.sub(r"[0-9a-f]{32}", "ID", log.read_text().replace(str(tmp_path), "")).splitlines()
    wal = "/data/kpipe.duckdb.wal"
    first_file, last_file = calls.index("write /staging/ID/ID.parquet"), _last(calls, "write /staging/ID/ID.parquet")
    synced = calls.index("fsync /staging/ID/ID.parquet")
    assert last_file < synced < calls.index("fsync /staging/ID") < calls.index("fsync /staging")
    # The file itself was made aside, whole, and its folder is synced before the first commit.
    assert calls.index("write /data/.kpipe.duckdb.ID") < calls.index("fsync /data/.kpipe.duckdb.ID") < calls.index("fsync /data")
    assert calls.index("fsync /data") < calls.index(f"write {wal}") < calls.index(f"fsync {wal}") < first_file
    after = calls[calls.index("fsync /staging") :]
    assert after.index(f"write {wal}") < after.index(f"fsync {wal}") < after.index("write /data/kpipe.duckdb")
    assert _last(after, "write /data/kpipe.duckdb") < _last(after, "fsync /data/kpipe.duckdb")
    assert not [call for call in calls if "parquet" in call and calls.index(call) > calls.index("fsync /staging")]


def _last(calls: Sequence[str], call: str) -> int:
    return len(calls) - 1 - list(reversed(calls)).index(call)


KILLED = """
import os, pickle, signal, sys
from pathlib import Path
from kpipe import failpoints as faults
from resources.destinations.duckdb import DuckDBEngine
from resources.destinations.sql.destination import SqlDestination
from resources.destinations.sql.engine import TargetTable
path, staging, recorded = sys.argv[1:]
faults.arm(lambda point: os.kill(os.getpid(), signal.SIGKILL) if point == "commit.after" else None)
for commit in pickle.loads(Path(recorded).read_bytes()):
    SqlDestination(DuckDBEngine(Path(path), (Path(staging),), 2), "tweets", [TargetTable("tweets")]).commit(commit)
"""


def test_torn_log_is_an_error_or_ends_at_a_whole_commit_and_is_never_removed(place: DuckDBPlace, tmp_path: Path) -> None:
    """Cut off by any number of bytes: DuckDB goes back to the last whole commit, ledger and rows together, or says no."""
    loaded(place)
    (commit,) = commits(place, [14])
    recorded = place.staging / "commits.pickle"
    recorded.write_bytes(pickle.dumps([commit]))
    subprocess.run([sys.executable, "-c", KILLED, str(place.path), str(place.staging), str(recorded)], check=False)
    wal = Path(f"{place.path}.wal")
    whole, file = wal.read_bytes(), place.path.read_bytes()
    seen = set()
    for cut in sorted({0, 1, 2, 8, 9, 100, len(whole) // 3, len(whole) // 2, len(whole) - 20, len(whole) - 1}):
        torn = DuckDBPlace(_fresh(tmp_path / f"cut-{cut}"))
        torn.path.write_bytes(file)
        log = Path(f"{torn.path}.wal")
        log.write_bytes(whole[: len(whole) - cut])
        try:
            found = positions(torn.open())
        except DestinationError as error:
            assert "write-ahead log cannot be replayed" in str(error) and "keep kpipe.duckdb.wal" in str(error)
            with pytest.raises(DestinationError, match="cannot be replayed"):
                torn.open().commit(commit)
            assert log.read_bytes() == whole[: len(whole) - cut]
            seen.add("refused")
            continue
        assert proof(torn.open()).ok
        assert found == ({0: 14, 1: 5} if not cut else {0: 10, 1: 5}) and len(torn.rows()) == (18 if not cut else 15)
        seen.add("replayed" if not cut else "went back")
        # Gone back, it is what a restored backup is: the home notices (state/NAME.json), the batch lands once more.
        shutil.copytree(place.staging, torn.staging, dirs_exist_ok=True)
    assert "replayed" in seen and len(seen) > 1


def _fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_first_commit_on_a_disk_that_fails_leaves_nothing_in_the_way(place: DuckDBPlace, shim: Path) -> None:
    told = run(place, [begin("tweets", [0])], failing(shim, "write", errno.EIO, "kpipe.duckdb", 1, 2))
    assert told[0].startswith("DestinationError 'cannot create ") and told[-1] == "landed 1"
    assert positions(place.open()) == {0: 0} and proof(place.open()).ok
    assert [file.name for file in place.path.parent.iterdir()] == ["kpipe.duckdb"]


@pytest.mark.parametrize("nth", [1, 3, 5, *(pytest.param(n, marks=pytest.mark.chaos) for n in (2, 4, *range(6, 40)))])
@pytest.mark.parametrize("first", [True, False])
def test_killed_at_each_write(place: DuckDBPlace, shim: Path, first: bool, nth: int) -> None:
    """Finer than crash-points: between the writes of a file that DuckDB makes, of its log, and of what empties the log."""
    if not first:
        loaded(place)
    batches = [begin("tweets", [0, 1])] if first else commits(place, [12, 15])
    told = run(place, batches, failing(shim, "write", -1, "kpipe.duckdb", nth), status=None)
    assert not told or told[-1].startswith("landed")
    before = place.open().ledger()[1].seq
    assert before >= max([int(line.split()[1]) for line in told], default=0 if first else 2)
    if before < (1 if first else 2) + len(batches) * (not first):
        run(place, batches, {})
    assert proof(place.open()).ok and place.open().ledger()[1].seq == (1 if first else 4)
    assert len(place.rows()) == (0 if first else 18)
