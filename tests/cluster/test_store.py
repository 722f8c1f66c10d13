"""Rows from end to end through an object store: workers stage there, the table lies there, and the ways to it break.

The store's host holds objects as files, which is how the oracle reads the table: not by the store's own interface.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest

from tests.cluster.cluster import BUCKET, Cluster, start_store, wait
from tests.cluster.following import held, host_of
from tests.cluster.site import PROGRAM, Site
from tests.servers.s3 import SECRET, program
from tests.survival.landings import Delta

pytestmark = [
    pytest.mark.spark, pytest.mark.slow, pytest.mark.chaos,
    pytest.mark.skipif(program() is None, reason="no S3 server -> make s3"),
]  # fmt: skip

RECORDS, PAD = 1_500, 8_000
# Adds that many characters to each row, which no file format makes much smaller.
WIDER = """exec awk -v seed="$KPIPE_PARTITION" -v pad=PAD 'BEGIN { srand(seed) } {
  if (sub(/}$/, "")) {
    more = ""
    for (at = 0; at < pad; at += 4) more = more sprintf("%04x", rand() * 65535)
    print $0 ", \\"pad\\": \\"" more "\\"}"
  } else print
}'
""".replace("PAD", str(PAD))


class InStore(Delta):
    """A Delta table in the store, as the disk of the store's host has it."""

    def __init__(self, cluster: Cluster) -> None:
        self.place = uuid.uuid4().hex[:6]
        self.into = {"type": "delta", "database": f"s3://{BUCKET}/tables-{self.place}"}
        self.bucket = cluster["store"].folder / "data" / BUCKET

    def folder(self, home: Path, name: str) -> Path:
        return self.bucket / f"tables-{self.place}" / name

    @property
    def staging(self) -> str:
        """Where tasks leave their files."""
        return f"s3://{BUCKET}/staging-{self.place}"

    def staged(self) -> set[Path]:
        """What they have left there."""
        return {file for file in (self.bucket / f"staging-{self.place}").rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def stored(cluster: Cluster) -> InStore:
    return InStore(cluster)


@pytest.fixture(scope="module")
def differs(cluster: Cluster, stored: InStore) -> Mapping[str, Any]:
    return {"landing": stored, "staging": stored.staging, "into": stored.into, "variables": cluster.store}


def test_records_never_pass_the_driver(cluster: Cluster, caught_up: Site, stored: InStore) -> None:
    """Workers send them to the store, and the store copies them into the table; the driver hears of paths and hashes."""
    one, client, store = caught_up, cluster["client"], cluster["store"]
    # The run keeps the program that it began with: the wider one is a run of its own.
    one.stop()
    file = one.home / "program.sh"
    file.write_text(PROGRAM.format(folder=one.folder).replace("exec cat\n", WIDER))
    one.start("--follow", "--json")
    one.write()
    one.exact()
    one.forget()
    before = len(one.batches())
    held(one, records=RECORDS)
    driver, other = client.received(), store.received()
    one.release()
    wait(lambda: len(one.batches()) > before, "the batch")
    driver, other = client.received() - driver, store.received() - other
    assert other > RECORDS * PAD / 3, "most of what is random cannot be made smaller than half"
    assert driver < other / 5, (driver, other)
    one.exact()
    assert stored.staged() == set()


def test_a_secret_stays_in_memory(cluster: Cluster, caught_up: Site) -> None:
    """Of a batch at work: in no file of client and workers, no argument, no environment of a worker, and not on Spark's page."""
    one, word = caught_up, SECRET.encode()
    held(one)
    for host in (*cluster.workers, cluster["client"], cluster["master"]):
        for process in host.processes():
            with suppress(psutil.Error, OSError):  # it has ended since it was listed
                assert SECRET not in " ".join(process.cmdline()), process
                assert host.name == "client" or SECRET not in str(process.environ()), process
    places = [host.folder for host in (*cluster.workers, cluster["client"], cluster["master"])]
    files = [file for place in (*places, cluster.shared) for file in place.rglob("*") if file.is_file() and not file.is_symlink()]
    found = []
    for file in files:
        if "environment" not in str(file):  # packages: tens of thousands of files that were there before
            with suppress(FileNotFoundError):
                found += [file] if word in file.read_bytes() else []
    assert len(files) > 10 and found == []
    with cluster["client"].network():
        base = f"http://{cluster['client'].address}:4040/api/v1/applications"
        (application,) = json.load(urlopen(base, timeout=10))
        assert word not in urlopen(f"{base}/{application['id']}/environment", timeout=10).read()
    one.release()
    one.exact()


def test_a_worker_cut_from_the_store(cluster: Cluster, caught_up: Site, stored: InStore) -> None:
    """Its range is staged by another worker, and nothing that it may have left is taken with it."""
    one, store = caught_up, cluster["store"]
    told = held(one)
    victim = host_of(cluster, told)
    victim.cut(store)
    try:
        one.release()
        one.exact()
        moved = [begun for begun in one.told() if begun.attempt > 0]
        assert moved and moved[0].partition == 0, one.told()
        assert victim.name not in {begun.host for begun in moved}, one.told()
    finally:
        victim.mend(store)
    assert stored.staged() == set()


def test_the_driver_cut_from_the_store(cluster: Cluster, caught_up: Site) -> None:
    """Workers stage, and nobody can commit: the batch is read again when the way is there again."""
    one, client, store = caught_up, cluster["client"], cluster["store"]
    held(one)
    before = len(one.batches())
    client.cut(store)
    try:
        one.release()
        wait(lambda: not any(host.processes("program.sh") for host in cluster.workers), "the end of the programs")
        time.sleep(10)
        assert len(one.batches()) == before
    finally:
        client.mend(store)
    one.exact()


def test_the_store_killed_and_begun_again(cluster: Cluster, caught_up: Site, stored: InStore) -> None:
    """While tasks are about to stage. The run waits for it, and says why."""
    one, store = caught_up, cluster["store"]
    held(one)
    before = len(one.batches())
    assert store.kill("versitygw") == 1
    try:
        one.release()
        time.sleep(20)
        assert len(one.batches()) == before
    finally:
        start_store(cluster)
    one.exact()
    assert stored.staged() == set()


def test_transactions_while_the_way_comes_and_goes(cluster: Cluster, caught_up: Site) -> None:
    """A minute of records, while each worker in turn, then the driver, loses the store for some seconds."""
    one, store = caught_up, cluster["store"]
    with cluster["client"].network(), one.writer.steadily(60):
        for host in (*cluster.workers, cluster["client"], *cluster.workers):
            host.cut(store)
            time.sleep(4)
            host.mend(store)
            time.sleep(3)
    one.exact()
