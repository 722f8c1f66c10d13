"""What tests ask of a run that follows its topic while hosts and links are taken from it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

from tests.cluster.cluster import Cluster
from tests.cluster.hosts import Host
from tests.cluster.site import PARTITIONS, Site, Told

#: In the command lines of Spark's Python workers: `spark.python.daemon.module` of kpipe's sessions.
PYTHON_WORKERS = "resources.spark.workers.python_daemon"


def executors(cluster: Cluster) -> int:
    """How many the driver has, by its own page: a batch is shared out over those."""
    with cluster["client"].network():
        try:
            page = f"http://{cluster['client'].address}:4040/api/v1/applications"
            with urlopen(page, timeout=10) as answer:
                (application,) = json.load(answer)
            with urlopen(f"{page}/{application['id']}/executors", timeout=10) as answer:
                return sum(1 for one in json.load(answer) if one["isActive"] and one["id"] != "driver")
        except (OSError, ValueError):  # it is not there yet
            return 0


@contextmanager
def asleep(one: Site) -> Iterator[None]:
    """What is written inside is of one batch: the run is stopped meanwhile. It was caught up, and waited anyway."""
    drivers = one.cluster["client"].processes("kpipe_assets.cli", one.name)
    assert len(drivers) == 1, drivers
    drivers[0].suspend()
    try:
        yield
    finally:
        drivers[0].resume()
        one.started[-1].send_signal(signal.SIGCONT)  # `nsenter` stops with what it runs, and does not go on with it


def held(one: Site, attempt: int | None = 0, records: int = 90) -> list[Told]:
    """A batch in whose middle all three programs wait."""
    one.hold(attempt=attempt)
    with asleep(one):
        one.write(records)
    told = one.at_work()
    assert {begun.partition for begun in told} == set(range(PARTITIONS)), told
    return told


def host_of(cluster: Cluster, told: list[Told], partition: int = 0) -> Host:
    """Where the first program of that partition runs."""
    return cluster[next(begun.host for begun in told if begun.partition == partition)]
