"""The cluster of a session: the one of `make cluster` if it runs, else one of its own that ends with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kpipe.errors import KpipeError
from resources.java import JavaHome
from resources.spark.cluster import python_environment
from resources.spark.cluster.python_environment import Packed
from tests.archives import unpack
from tests.cluster.cluster import Cluster, build, default_base, find, wait
from tests.cluster.following import executors
from tests.cluster.hosts import Network, obstacle
from tests.cluster.site import Site, idle

# Reads until this end of the pipe closes, which it does however pytest ends, and takes the cluster down then.
WATCHDOG = """
import sys
from pathlib import Path
from tests.cluster.hosts import Network
sys.stdin.read()
Network(Path(sys.argv[1])).down()
"""


@pytest.fixture(scope="session")
def cluster(java: JavaHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that runs."""
    why = obstacle()
    if why:
        pytest.skip(f"no hosts can be made here: {why}")
    running = find(default_base())
    if running is not None:
        yield running
        return
    base = tmp_path_factory.mktemp("cluster") / "c"
    root = Path(__file__).parent.parent.parent
    guard = [sys.executable, "-c", WATCHDOG, str(base)]
    watchdog = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True, cwd=root)
    try:
        yield build(base)
    finally:
        Network(base).down()
        watchdog.communicate(timeout=60)


@pytest.fixture(scope="session")
def packed(cluster: Cluster) -> Packed:
    """The environment as `kpipe environment` makes it, once for all."""
    folder = cluster["client"].folder
    try:
        return python_environment.packed(folder) or python_environment.pack(folder)
    except KpipeError:  # packages have changed since
        return python_environment.pack(folder)


@pytest.fixture(scope="session")
def python(cluster: Cluster, packed: Packed) -> Path:
    """The same, unpacked once where all workers see it: runs start without unpacking it on each."""
    place = cluster.shared / f"environment-{packed.holds}"
    if not place.exists():
        unpack(packed.path, place, "tar")
    return place / "bin" / "python3"


@pytest.fixture(scope="module")
def site(cluster: Cluster, python: Path) -> Iterator[Callable[..., Site]]:
    """`site(name)`: a pipeline of that name on a home and a topic of its own. Its runs end with the module."""
    made: list[Site] = []

    def make(name: str, **fields: object) -> Site:
        found = Site.made(cluster, name, python, **fields)
        made.append(found)
        return found

    yield make
    for one in made:
        with suppress(ProcessLookupError):
            one.close()


@pytest.fixture(scope="module")
def differs() -> Mapping[str, Any]:
    """What a module's `following` has that others have not: arguments of `Site.made`."""
    return {}


@pytest.fixture(scope="module")
def following(cluster: Cluster, site: Callable[..., Site], differs: Mapping[str, Any]) -> Iterator[Site]:
    """A run that has read something, and waits for more."""
    one = site("steady", **{"batch": {"interval_ms": 300, "max_retries": 8}, **differs})
    one.write()
    one.start("--follow", "--json")
    one.exact()
    yield one
    one.release()
    one.stop()
    assert "Traceback" not in one.said()
    assert idle(cluster) == []


@pytest.fixture
def caught_up(following: Site) -> Iterator[Site]:
    """The same, with all workers there and nothing to do."""
    following.cluster.wait_for_workers()
    wait(lambda: executors(following.cluster) == 3, "three executors")
    following.exact()
    following.forget()
    yield following
    following.release()
