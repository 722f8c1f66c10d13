"""Fixtures for every test: a home of their own, Java, one real Kafka per session, topics."""

from __future__ import annotations

import gc
import os
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from kpipe import failpoints
from kpipe.errors import KpipeError, NotAvailable
from resources.dev_broker import broker as dev_broker
from resources.dev_broker import kafka_node
from resources.dev_broker.broker import LocalBroker
from resources.java import JavaHome, find_java
from resources.spark.jvm import class_archive
from tests import crossed, file_times, hangs, ports
from tests.apicurio import Apicurio, installed
from tests.cases import Selection
from tests.registry import LocalRegistry
from tests.servers import kafka_archive
from tests.servers.azure import AzureServer
from tests.servers.brokers import running
from tests.servers.gcs import GcsServer
from tests.servers.mariadb import MariaServer
from tests.servers.mysql import MySQLServer
from tests.servers.postgres import PostgresServer
from tests.servers.rest import RestServer
from tests.servers.s3 import S3Server

# A test of these marks, or with these fixtures, takes as long as so many others, roughly.
_COSTS = {"slow": 60, "spark": 40, "heavy": 20, "broker": 10}
_COSTS_OF_FIXTURES = {"site": 40, "place": 10, "brokers": 10, "mariadb": 10, "mysql": 10, "postgres": 10}

# `make install` makes one archive for all homes. Where it could not, tests must not make one for each of theirs.
if not class_archive.installed().is_dir():
    os.environ[class_archive.SWITCH] = "0"

# A test's broker lives for a minute or two: compiling little starts it with 3.4 seconds of CPU in place of 5.4.
kafka_node.JVM = (*kafka_node.JVM, "-XX:TieredStopAtLevel=1", *kafka_archive.options())
# Beside three test processes, a start has taken minutes, and the metadata of a new topic tens of seconds.
dev_broker.START_SECONDS, dev_broker.ADMIN_SECONDS, kafka_node.FORMAT_SECONDS = 600.0, 300.0, 600.0
# Tests wait for compaction, which would look for something to do every 15 s.
kafka_node.PROPERTIES += "log.cleaner.backoff.ms=1000\n"

# Of all tests, in whatever folder and order: the same examples in each run, so that a run says whether the code has changed.
# `make chaos` runs three times as many (`full`), `HYPOTHESIS_PROFILE=thorough` makes long runs over new ones. No deadline: a busy
# machine makes single examples slow.
_calm = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}
settings.register_profile("quick", max_examples=50, stateful_step_count=50, derandomize=True, **_calm)
settings.register_profile("full", max_examples=150, stateful_step_count=50, derandomize=True, **_calm)
settings.register_profile("fast", max_examples=10, stateful_step_count=20, derandomize=True, **_calm)
settings.register_profile("thorough", max_examples=5000, stateful_step_count=100, **_calm)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

collect_ignore = ["example_destination"]  # a package of its own, with tests of its own: see tests/example.py

# `--fast`: these files and folders, without these marks and these fixtures, and one case in so many of these files.
_FAST_PATHS = (
    *("kpipe", "simulation", "transforms", "resources/decode", "resources/duckdb_engine", "resources/native"),
    *("test_architecture.py", "test_docs.py", "test_wheel.py"),
)
_NOT_FAST_MARKS = {"broker", "chaos", "heavy", "slow", "spark"}
_NOT_FAST_FIXTURES = {
    "apicurio", "azure", "gcs", "java", "mariadb", "mysql",
    "postgres", "rest", "running_broker", "s3", "store_server",
}  # fmt: skip
_CLUSTER = "tests/cluster/"
_BY_KIND = "tests/survival/test_everywhere.py"
_SEARCHES = ("tests/combinations/test_mutants.py", "tests/simulation/test_mutants.py", "tests/survival/test_power_cuts.py")
_FAST_SAMPLES = {
    "test_against_mariadb.py": 20,
    "test_binding.py": 5,
    "test_json_arguments.py": 5,
    "test_manual_examples.py": 5,
    "test_simulation.py": 3,
    "test_times.py": 5,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--fast`, which `make test-fast` passes."""
    parser.addoption(
        "--fast", action="store_true", help="run only unit tests: no Java, Kafka, Spark, database, browser or network"
    )
    parser.addoption("--case", metavar="TEXT", help="of tests that run many cases, run those whose name contains TEXT")


def pytest_configure(config: pytest.Config) -> None:
    """Name tests that hang; list long files; sample crossed parameters; under `--fast`, reduce examples and large tables."""
    config.pluginmanager.register(hangs)
    config.pluginmanager.register(crossed)
    config.pluginmanager.register(file_times)
    Selection.containing = config.getoption("case")
    Selection.one_in = _FAST_SAMPLES if config.getoption("fast") else {}
    if config.getoption("fast") and "HYPOTHESIS_PROFILE" not in os.environ:
        settings.load_profile("fast")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files and folders outside `_FAST_PATHS` under `--fast`."""
    if not config.getoption("fast"):
        return None
    fast = [Path(__file__).parent / path for path in _FAST_PATHS]
    inside = any(collection_path.is_relative_to(path) or path.is_relative_to(collection_path) for path in fast)
    return None if inside else True


def _is_fast(item: pytest.Item) -> bool:
    """Return whether `--fast` runs this test. A hash of its id selects the samples, the same ones in every run."""
    if {mark.name for mark in item.iter_markers()} & _NOT_FAST_MARKS:
        return False
    if set(getattr(item, "fixturenames", ())) & _NOT_FAST_FIXTURES:
        return False
    is_case = hasattr(item, "callspec")
    return not is_case or zlib.crc32(item.nodeid.encode()) % _FAST_SAMPLES.get(item.path.name, 1) == 0


@pytest.hookimpl(trylast=True)  # behind what leaves tests out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect under `--fast`; start the longest files first, so that no process runs one alone at the end."""
    if config.getoption("fast"):
        config.hook.pytest_deselected(items=[item for item in items if not _is_fast(item)])
        items[:] = [item for item in items if _is_fast(item)]
    weights: Counter[Path] = Counter()
    for path, minutes in {(item.path, mark.args[0]) for item in items for mark in item.iter_markers("minutes")}:
        weights[path] += 1000 * minutes
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        cases = len(getattr(getattr(item, "obj", None), "cases", ()))  # of each_case
        costs = [cost for name, cost in _COSTS.items() if name in marks]
        costs += [cost for name, cost in _COSTS_OF_FIXTURES.items() if name in getattr(item, "fixturenames", ())]
        weights[item.path] += max([1, cases // 25, *costs])
    items.sort(key=lambda item: -weights[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Divide the tests by files, except for these.

    - Tests of a cluster run in one process: each process would start brokers and workers of its own.
    - Searches that take minutes and share nothing run in all processes: a single one would take an hour for them.
    - Crash points run in a process for each destination: those of one share a pipeline.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(_CLUSTER):
                return _CLUSTER
            if nodeid.startswith(_BY_KIND):
                return "-".join((_BY_KIND, *nodeid.partition("[")[2].split("-")[:1]))
            return nodeid if nodeid.startswith(_SEARCHES) else super()._split_scope(nodeid)

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect no garbage while modules and tests are made: there is hardly any, and each search goes through all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exclude modules and tests from garbage collection: they live as long as the process, and are a million objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes what the person at the keyboard has set up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KPIPE_HOME", str(tmp_path_factory.mktemp("home")))
        for name in ("DAGSTER_HOME", failpoints.VARIABLE):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(autouse=True)
def _no_fault() -> Iterator[None]:
    """What a test armed ends with it."""
    failpoints.arm(None)
    yield
    failpoints.arm(None)


@pytest.fixture(scope="session")
def java() -> JavaHome:
    """The Java of this machine or of `make install`."""
    try:
        return find_java()
    except NotAvailable as none:
        pytest.skip(str(none))


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """A port that nobody listens on now; never 9092, which is left to the person at the keyboard."""
    return ports.free_port


@pytest.fixture
def running_broker() -> Iterator[Callable[..., LocalBroker]]:
    """Start the broker of a folder (`start`'s arguments after it); it is stopped after the test, even if pytest is killed."""
    with ExitStack() as stack:
        yield lambda folder, port=None: stack.enter_context(running(folder, port))


@pytest.fixture(scope="session")
def kafka_broker(java: JavaHome, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """One real Kafka for the whole session; tests that stop or break it take `running_broker` and a folder of their own.

    KPIPE_TEST_BROKER: the folder of one that runs already, for a session inside of a session.
    """
    if "KPIPE_TEST_BROKER" in os.environ:
        yield LocalBroker(Path(os.environ["KPIPE_TEST_BROKER"]))
        return
    with running(tmp_path_factory.mktemp("kafka") / "broker", free_port()) as broker:
        yield broker


@pytest.fixture(scope="session")
def brokers(kafka_broker: LocalBroker) -> str:
    """`host:port` of `kafka_broker`, for `bootstrap.servers`."""
    address = kafka_broker.status().brokers
    assert address is not None
    return address


@pytest.fixture
def topic(kafka_broker: LocalBroker) -> Iterator[Callable[..., str]]:
    """`topic(partitions=3, **{"cleanup.policy": "compact"})` makes a topic of a name never used before and returns it.

    All of them are deleted after the test.
    """
    made: list[str] = []

    def make(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        kafka_broker.create_topic(name, partitions, config)
        made.append(name)
        return name

    yield make
    for name in made:
        with suppress(KpipeError):  # the test may have deleted it
            kafka_broker.delete_topic(name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL server of the session."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real object store of the session."""
    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    """An emulator of Google Cloud Storage of the session."""
    with GcsServer() as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[AzureServer]:
    """An emulator of Azure Blob Storage of the session."""
    with AzureServer() as server:
        yield server


@pytest.fixture(scope="session")
def rest() -> Iterator[RestServer]:
    """A real REST catalogue of the session."""
    with RestServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaServer]:
    """A real MariaDB server of the session."""
    with MariaServer() as server:
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySQLServer]:
    """A real MySQL server of the session."""
    with MySQLServer() as server:
        yield server


@pytest.fixture(scope="session")
def apicurio() -> Iterator[str]:
    """Address of a real schema registry; empty where there is none."""
    if not installed() or os.environ.get("KPIPE_TEST_REGISTRY"):
        yield ""
        return
    with Apicurio() as registry:
        yield registry.url


@pytest.fixture
def local_registry() -> Iterator[LocalRegistry]:
    """A schema registry that can be told to misbehave."""
    registry = LocalRegistry()
    yield registry
    registry.stop()


@pytest.fixture
def registry_url(apicurio: str, local_registry: LocalRegistry) -> str:
    """Address of a registry: the one that KPIPE_TEST_REGISTRY names, else Apicurio (`make registry`), else a stand-in."""
    return os.environ.get("KPIPE_TEST_REGISTRY") or apicurio or local_registry.url
