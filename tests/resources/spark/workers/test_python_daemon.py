"""The daemon that Python workers are forked from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from resources.java import JavaHome
from resources.spark.workers.python_daemon import unzipped

# Threads of libraries whose handlers make a fork safe (pthread_atfork(3)): jemalloc's background thread.
SAFE = {"jemalloc_bg_thd"}

THREADS = """
import gc, os, sys, threading
from resources.spark.workers.python_daemon import preload
preload()
tasks = os.listdir("/proc/self/task")
names = {open(f"/proc/self/task/{task}/comm").read().strip() for task in tasks if int(task) != os.getpid()}
print(threading.active_count(), gc.isenabled(), gc.get_freeze_count() > 100_000, *sorted(names))
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc lists threads")
def test_no_thread_runs_before_workers_are_forked() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS")}
    done = subprocess.run([sys.executable, "-c", THREADS], env=environ, capture_output=True, text=True, timeout=300, check=True)
    first, second = done.stdout.splitlines()
    python, enabled, frozen, *names = first.split()
    assert (python, enabled, frozen) == ("1", "True", "True")
    assert set(names) <= SAFE
    loaded = set(second.split())
    assert {"duckdb", "pyarrow", "confluent_kafka", "pyspark"} <= loaded
    assert not {"dagster", "pandas", "rich", "lark", "psutil"} & loaded


def test_pyspark_is_imported_from_its_folder_only_if_its_zip_is_of_that_installation(tmp_path: Path) -> None:
    site, library = tmp_path / "site", tmp_path / "site" / "pyspark" / "python" / "lib"
    library.mkdir(parents=True)
    zips = [str(library / "pyspark.zip"), str(library / "py4j-0.10-src.zip")]
    elsewhere = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-0.10-src.zip"]
    assert unzipped([*zips, "", str(site)]) == [*zips, "", str(site)], "nothing is installed there"
    for name in ("pyspark", "py4j"):
        (site / name).mkdir(exist_ok=True)
        (site / name / "__init__.py").touch()
    assert unzipped([*zips, "", str(site)]) == ["", str(site)]
    assert unzipped([*zips, ""]) == [*zips, ""], "an interpreter that does not find it there"
    assert unzipped([*elsewhere, "", str(site)]) == [*elsewhere, "", str(site)]
    assert unzipped(["pyspark.zip", "/pyspark.zip"]) == ["pyspark.zip", "/pyspark.zip"]


IN_WORKERS = """
import gc, os, sys, time
from pathlib import Path
from resources.spark.jvm import session
meeting = Path(sys.argv[2])  # of both workers: one may do both tasks before the other has started
context = session.start(Path(sys.argv[1]), "local[2]")
def look(items):
    (meeting / str(os.getpid())).touch()
    until = time.monotonic() + 300
    while len(os.listdir(meeting)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    list(items)
    before = "resources.spark.task.range_task" in sys.modules  # before the task imports anything of kpipe's
    import duckdb, pyarrow.compute
    one = pyarrow.compute.sum(pyarrow.array(range(100_000))).as_py()
    with duckdb.connect() as connection:
        (two,) = connection.execute("SELECT sum(range) FROM range(100000)").fetchone()
    zipped = [name for name, module in list(sys.modules.items()) if ".zip" in str(getattr(module, "__file__", ""))]
    return [(os.getpid(), before, gc.get_freeze_count() > 100_000, one == two == sum(range(100_000)), zipped == [])]
found = context.parallelize(range(4), 2).mapPartitions(look).collect()
print(len({pid for pid, *_ in found}), {tuple(rest) for _, *rest in found})
"""


@pytest.mark.spark
def test_workers_have_what_tasks_need_and_it_works_after_the_fork(tmp_path: Path, java: JavaHome) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "JAVA_HOME": str(java.path)}
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", IN_WORKERS, str(tmp_path / "home"), str(meeting)],
        env=environ, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "2 {(True, True, True, True)}", done.stderr
