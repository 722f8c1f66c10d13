"""A thousand commits into one table of PostgreSQL: the last ones cost what the first ones did, here and on the server."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import psutil
import pytest

from resources.testing.place import batch
from resources.testing.state import begun, proof
from tests.resources.destinations.postgres_place import PostgresPlace
from tests.servers.postgres import PostgresServer

COMMITS, WINDOW = 1000, 100


def served(server: PostgresServer) -> float:
    """CPU seconds of all connections that have ended."""
    assert server.process is not None
    times = psutil.Process(server.process.pid).cpu_times()
    return float(times.children_user + times.children_system)


@pytest.mark.chaos
def test_a_thousand_commits(postgres: PostgresServer, tmp_path: Path) -> None:
    place = PostgresPlace(tmp_path, postgres)
    destination = begun(place, 3)
    ledger, windows = destination.ledger()[1], []
    for at in range(0, COMMITS, WINDOW):
        spent, before = [], served(postgres)
        for end in range(at + 1, at + WINDOW + 1):
            commit = batch(place, ledger, {0: end, 1: end, 2: end})
            ledger = ledger.after(commit.changes)
            began = time.process_time(), time.perf_counter()
            assert destination.commit(commit).seq == end + 1
            spent.append((time.process_time() - began[0], time.perf_counter() - began[1]))
            assert len(destination.unpublished(1)) == 1
        cpu, wall = (median(values) * 1e3 for values in zip(*spent, strict=True))
        server = (served(postgres) - before) / WINDOW * 1e3
        windows.append(cpu + server)
        print(f"commits {at:4} to {at + WINDOW:4}: CPU {cpu:5.1f} ms, of the server {server:5.1f} ms, wall {wall:5.1f} ms")
    assert proof(destination).ok and len(place.rows()) == 3 * COMMITS
    assert windows[-1] < 3 * windows[1], f"a commit takes {windows[-1]:.0f} ms of CPU, it took {windows[1]:.0f} ms"
