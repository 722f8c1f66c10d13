"""The local broker with programs in place of Kafka: what becomes of one that hangs or ends while it starts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kpipe.errors import KpipeError
from resources.dev_broker import broker as broker_module
from resources.dev_broker import kafka_node
from resources.dev_broker.broker import LOG, LocalBroker

TAKEN = "[2026-01-01] ERROR Socket server failed to bind: Address already in use (kafka.Kafka$)\n"


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], LocalBroker]:
    """`broker(code)`: one whose process is that Python code."""
    monkeypatch.setattr(kafka_node, "format_storage", lambda folder: None)
    monkeypatch.setattr(broker_module, "LOG_SECONDS", 0.05)

    def made(code: str) -> LocalBroker:
        monkeypatch.setattr(kafka_node, "command", lambda folder: [sys.executable, "-c", code])
        return LocalBroker(tmp_path / "broker")

    return made


@pytest.mark.parametrize("chosen", [False, True])
def test_a_broker_that_hangs_after_it_found_its_port_taken_is_ended(
    broker: Callable[[str], LocalBroker], chosen: bool, free_port: Callable[[], int], tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    told = f"print(file=open({str(starts)!r}, 'a')); pathlib.Path({LOG!r}).write_text({TAKEN!r})"
    hanging = broker(f"import pathlib, time; {told}; time.sleep(3600)")
    with pytest.raises(KpipeError, match="was taken by another program while the local broker started"):
        hanging.start(free_port() if chosen else None)
    assert not hanging.status().running
    # A chosen port that is free was not the one that was taken: it was the controller's, which is another one each time.
    assert len(starts.read_text().splitlines()) == broker_module.START_ATTEMPTS


def test_the_log_of_the_last_start_does_not_count(broker: Callable[[str], LocalBroker], free_port: Callable[[], int]) -> None:
    ended = broker("raise SystemExit('the disk is full')")
    (ended.folder / LOG).parent.mkdir(parents=True)
    (ended.folder / LOG).write_text(TAKEN)
    with pytest.raises(KpipeError, match=r"ended while starting: exit status 1 \| the disk is full"):
        ended.start(free_port())
    assert (ended.folder / "logs" / "kafka.previous.log").read_text() == TAKEN
