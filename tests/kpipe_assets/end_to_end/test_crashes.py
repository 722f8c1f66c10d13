"""Killed anywhere, run twice at once: every record once, and nothing left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

pytestmark = pytest.mark.spark

KILLS = 5  # at random moments; tests/survival kills at every point
PROGRAM = "#!/bin/sh\nexec cat\n"


@contextmanager
def steady_producer(brokers: str, topic: str, partitions: int, a_second: int) -> Iterator[list[int]]:
    """Write ids, transactions that commit and some that abort among them; the list holds the ids that were committed."""
    committed: list[int] = []
    end = threading.Event()

    def work() -> None:
        settings = {
            "bootstrap.servers": brokers,
            "transactional.id": f"steady-{topic}",
            "transaction.timeout.ms": 600_000,
            "linger.ms": 5,
        }
        producer = Producer(settings)
        producer.init_transactions(120)
        number, chance = 0, random.Random(7)
        while not end.is_set():
            ids = range(number, number + a_second // 5)
            number = ids.stop
            producer.begin_transaction()
            for item in ids:
                producer.produce(topic, json.dumps({"id": item, "text": "é" * (item % 50)}), partition=item % partitions)
            if chance.random() < 0.2:
                producer.flush(120)
                producer.abort_transaction(120)
            else:
                producer.commit_transaction(120)
                committed.extend(ids)
            end.wait(0.2)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield committed
    finally:
        end.set()
        thread.join(300)


def kill_group(process: Any) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(300)
    process.stdout.close()
    process.stderr.close()


def no_process_left(kpipe: Any, within: float = 300) -> None:
    """The JVM, its workers and the programs notice that their parent is gone, and go."""
    assert kpipe.left_behind(within) == []


def exact(kpipe: Any, name: str, expected: list[int]) -> None:
    """Count, distinct and checksum of the ids, and the proof."""
    found = kpipe.sql(f"SELECT count(*), count(DISTINCT id), sum(id) FROM {name}")
    assert found == [(len(expected), len(set(expected)), sum(expected))]
    proof = kpipe.json("verify", name)[0]
    assert proof["ok"], proof["problems"]
    assert proof["rows"] == len(expected)


@pytest.mark.chaos  # every run kills at chosen points: tests/survival
def test_killed_at_random_moments_while_a_producer_keeps_writing(kpipe: Any, topic: Any, brokers: str, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # shown when it fails
    chance = random.Random(seed)
    name = topic(3)
    program = tmp_path / "cat.sh"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    kpipe.define("killed", name, batch={"max_offsets_per_partition": 150, "interval_ms": 50}, transform={"program": str(program)})
    with steady_producer(brokers, name, 3, 2000) as committed:
        while not committed:
            time.sleep(0.05)
        batches = kills_after_a_batch = 0
        for _ in range(KILLS):
            process = kpipe.start("run", "killed", "--follow", "--json")
            # The first line says that it is at work; from there on any moment is as good as any other.
            if process.stdout.readline().startswith('{"event": "batch"'):
                kills_after_a_batch += 1
            time.sleep(chance.uniform(0, 0.6))
            kill_group(process)
            no_process_left(kpipe)
    assert kills_after_a_batch == KILLS
    last = kpipe.json("run", "killed")[-1]
    batches = kpipe.sql("SELECT count(DISTINCT batch_id) FROM kpipe_batches")[0][0]
    assert batches > KILLS and last["status"] == "caught_up"
    exact(kpipe, "killed", committed)


def test_killed_before_its_first_commit(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(2)
    write(name, [json.dumps({"id": n}) for n in range(100)])
    kpipe.define("early", name)
    for seconds in (0.3, 1.5, 3.0):
        process = kpipe.start("run", "early")
        time.sleep(seconds)
        kill_group(process)
        no_process_left(kpipe)
    kpipe("run", "early")
    exact(kpipe, "early", list(range(100)))


@pytest.mark.chaos  # each run, without a JVM: tests/survival/test_races.py
def test_of_two_runs_at_once_one_is_fenced_and_rows_are_exact(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> None:
    name = topic(2)
    write(name, ['{"id": -1}'])
    kpipe.define("twice", name)
    kpipe("run", "twice")
    for partition in range(2):
        write(name, [json.dumps({"id": 10_000 * partition + n}) for n in range(4000)], partition)  # enough for two tasks
    # Both plan before either can commit: the program waits until both tasks of both runs are there.
    program = tmp_path / "meet.sh"
    program.write_text(
        f"#!/bin/sh\ntouch {tmp_path}/here-$$\nfor i in $(seq 6000); do\n"
        f"  [ $(ls {tmp_path} | grep -c here-) -ge {2 * 2} ] && break\n  sleep 0.1\ndone\nexec cat\n"
    )
    program.chmod(0o755)
    kpipe.define("twice", name, transform={"program": str(program), "idle_timeout_s": 900})
    runs = [kpipe.start("run", "twice", "--json") for _ in range(2)]
    ends = [run.communicate(timeout=600) for run in runs]
    statuses = sorted(run.returncode for run in runs)
    assert statuses == [0, 1], ends
    loser = ends[[run.returncode for run in runs].index(1)]
    assert "expected" in loser[1] and "another run committed first" in loser[1]
    assert json.loads(loser[0].splitlines()[-1])["status"] == "error"
    exact(kpipe, "twice", [-1, *(10_000 * p + n for p in range(2) for n in range(4000))])
    no_process_left(kpipe)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.chaos), signal.SIGTERM])
def test_a_signal_finishes_the_batch_and_leaves_no_process(kpipe: Any, topic: Any, write: Any, number: int) -> None:
    name = topic(1)
    write(name, [json.dumps({"id": n}) for n in range(50)])
    kpipe.define("polite", name)
    process = kpipe.start("run", "polite", "--follow", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["rows"] == 50
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["status"] == "stopped"
    assert "Traceback" not in err
    no_process_left(kpipe)
    exact(kpipe, "polite", list(range(50)))
    assert kpipe.json("status", "polite")[0]["state"] == "stopped"
