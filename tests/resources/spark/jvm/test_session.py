"""How Spark's session starts, in a process of its own: without Python after a fork, and again after a start that failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from resources.java import JavaHome
from resources.spark.jvm.session import started

pytestmark = pytest.mark.spark

_KILLED_ONCE = """
from pathlib import Path
import pyspark.core.context as context
from kpipe.errors import KpipeError
from resources.spark.jvm.session import start

launch, jvms = context.launch_gateway, []

def launched(conf=None, popen_kwargs=None):
    gateway = launch(conf, popen_kwargs)
    jvms.append(gateway.proc)
    if len(jvms) == 1:
        gateway.proc.kill()  # its gateway has answered, and there is no context yet
        gateway.proc.wait()
    return gateway

context.launch_gateway = launched
try:
    start(Path({home!r}), "local[1]")
    raise AssertionError("Spark cannot have started")
except KpipeError as error:
    print("failed:", error.what)
assert start(Path({home!r}), "local[1]").parallelize([1, 2], 1).sum() == 3
print("jvms:", len(jvms))
"""
_CAREFUL = """
import signal
from pathlib import Path
import pyspark.java_gateway as java_gateway
from resources.spark.jvm.session import start

popen, given = java_gateway.Popen, []
java_gateway.Popen = lambda command, **more: given.append(more) or popen(command, **more)
process = start(Path({home!r}), "local[1]")._gateway.proc
folder = Path(f"/proc/{{process.pid}}")
(ignored,) = [line.split()[1] for line in (folder / "status").read_text().splitlines() if line.startswith("SigIgn")]
ignores_sigint = bool(int(ignored, 16) & 1 << signal.SIGINT - 1)
print("preexec_fn" in given[0], (folder / "comm").read_text().strip(), ignores_sigint)
"""


def _run(code: str, folder: Path, java: JavaHome) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code.format(home=str(folder / "home"))],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "JAVA_HOME": str(java.path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pyspark_may_be_imported_by_another_thread_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", ModuleType("pyspark"))  # as it is at the begin of its import
    assert not started()


def test_a_jvm_that_dies_while_it_starts_is_replaced_by_the_next_start(tmp_path: Path, java: JavaHome) -> None:
    said = _run(_KILLED_ONCE, tmp_path, java).splitlines()
    failure = said[0].removeprefix("failed: Spark does not start: ")
    assert failure != said[0] and not failure.endswith(": "), "the reason is named"
    assert said[1] == "jvms: 2"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_jvm_starts_without_python_after_the_fork_and_ignores_sigint(tmp_path: Path, java: JavaHome) -> None:
    """A copy of a process whose threads are in DuckDB or librdkafka may crash before it becomes a JVM."""
    assert _run(_CAREFUL, tmp_path, java).split() == ["False", "java", "True"]
