"""The demo as a new user meets it."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kpipe_assets.commands.demo import commands_folder
from kpipe_assets.example.topic import ABORTED, offsets_of
from kpipe_assets.example.tweets import PARTITIONS, tweet

pytestmark = pytest.mark.spark


@pytest.fixture
def stopped(kpipe: Any) -> Any:
    """The command line; its broker is stopped afterwards."""
    yield kpipe
    kpipe.outside("broker", "stop", status=None)


def test_from_nothing_to_proof_and_again(stopped: Any) -> None:
    first = stopped.outside("demo", "--records", "6000")
    for words in ("Apache Kafka", "6,000 records on 4 partitions", "caught up", "proven: ", "kpipe broker stop"):
        assert words in first.stdout, first.stdout
    rows = stopped.sql("SELECT count(*), count(DISTINCT id), count(DISTINCT (_kafka_partition, _kafka_offset)) FROM tweets")
    assert rows == [(6000, 6000, 6000)]
    assert stopped.json("verify", "tweets")[0]["gaps"] == ABORTED + 2 * PARTITIONS
    again = stopped.outside("demo", "--records", "6000")
    assert "no records written" in again.stdout and "nothing new" in again.stdout and "proven: " in again.stdout
    assert stopped.sql("SELECT count(*) FROM tweets") == [(6000,)]
    assert stopped.json("broker", "status")[0]["running"] is True
    stopped.outside("broker", "stop")
    assert stopped.left_behind() == []


@pytest.mark.chaos
def test_ctrl_c_at_any_moment_leaves_no_process_and_the_next_demo_goes_on(stopped: Any) -> None:
    process = stopped.start("demo", "--records", "30000")
    assert process.stdout.readline().startswith("1. Kafka")  # before that it is Python that is interrupted
    time.sleep(random.choice((0.5, random.uniform(2, 9))))
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert process.returncode in (0, 130), (out, err)
    assert "Traceback" not in err, err
    if process.returncode:
        assert stopped.left_behind() == []
    stopped.outside("demo", "--records", "30000")
    bad = sum(1 for n in range(30000) if not (tweet(n).value or b"").startswith(b'{"id":1'))
    assert stopped.sql("SELECT count(*), count(DISTINCT id) FROM tweets") == [(30000 - bad, 30000 - bad)]
    assert stopped.json("verify", "tweets")[0]["ok"]


def test_the_commands_that_it_prints_can_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an environment in the current folder, elsewhere, and activated."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "environment" / "bin"
    folder.mkdir(parents=True)
    (folder / "kpipe").touch(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    assert commands_folder() == "environment/bin/"
    monkeypatch.chdir(folder)
    assert commands_folder() == "./"
    monkeypatch.chdir("/")
    monkeypatch.setattr(sys, "executable", "/opt/other/bin/python")
    assert commands_folder() == "opt/other/bin/"
    monkeypatch.chdir(tmp_path)
    assert commands_folder() == "/opt/other/bin/"
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(folder))
    assert commands_folder() == ""


def test_tweets_are_the_same_every_time_and_hold_what_real_topics_hold() -> None:
    some = [tweet(n) for n in range(25000)]
    assert some[:300] == [tweet(n) for n in range(300)]
    values = [item.value for item in some if item.value is not None]
    text = b"".join(values).decode(errors="replace")
    assert all(sign in text for sign in ("東京", "данные", "डेटा", "🏳️‍🌈", '"lang":null', '"user":{'))
    assert sum(1 for value in values if b'"user"' not in value) > 100
    assert {item.partition for item in some} == set(range(PARTITIONS))
    assert offsets_of(200_000) == 200_000 + ABORTED + 11 * PARTITIONS
