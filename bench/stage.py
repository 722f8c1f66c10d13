"""Provide what all measurements need: a broker of their own, topics on it, a scratch folder, and the peers."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.meter import cpu_seconds
from bench.peers import Peers, install
from bench.topics import Topic, fill
from kpipe.errors import KpipeError
from resources.dev_broker.broker import LocalBroker

__all__ = ["Stage", "say", "stage"]


def say(text: str) -> None:
    """Print progress to stderr."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


@dataclass(frozen=True)
class Stage:
    """A started broker and a folder.

    Attributes:
        home: holds the broker and what contenders write.
        broker: runs.
        quick: whether small numbers are wanted, to see that everything works.
        keep: whether topics stay for the next time.
    """

    home: Path
    broker: LocalBroker
    quick: bool
    keep: bool

    @cached_property
    def peers(self) -> Peers:
        """The peers; installed at the first access."""
        say("peers: looking whether they are installed")
        return install()

    @property
    def brokers(self) -> str:
        """`host:port`."""
        return str(self.broker.status().brokers)

    def broker_cpu_s(self) -> float:
        """Return the broker's CPU seconds since its start."""
        return cpu_seconds(int(self.broker.status().pid or 0))

    def topic(self, wanted: Topic) -> Topic:
        """Return that topic; write it unless this home has it."""
        notes = self.home / f"topic-{wanted.name}.json"
        if notes.exists():
            there = Topic(**json.loads(notes.read_text()))
            if there == wanted:
                return there
            self.drop(wanted)
        elif self.keep:
            with suppress(KpipeError):  # there is none; or an earlier run was stopped while it wrote one
                self.drop(wanted)
        say(f"topic {wanted.name}: {wanted.records:,} {wanted.shape} in {wanted.partitions} partitions")
        began = time.monotonic()
        made = fill(self.broker, wanted)
        say(f"  {made.value_bytes / 1e6:,.0f} MB in {time.monotonic() - began:.1f} s")
        notes.write_text(json.dumps(asdict(made)))
        return made

    def drop(self, topic: Topic) -> None:
        """Delete a topic, and wait until its name is free again."""
        self.broker.delete_topic(topic.name)
        (self.home / f"topic-{topic.name}.json").unlink(missing_ok=True)
        time.sleep(2)

    def done_with(self, topic: Topic) -> None:
        """Delete a topic to free its disk, unless topics are kept."""
        if not self.keep:
            self.drop(topic)

    def folder(self, name: str) -> Path:
        """Return a new path for the files of one run; it is not created."""
        path = self.home / "scratch" / name.replace(" ", "-")
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(exist_ok=True)
        return path

    def settle(self, *folders: Path) -> None:
        """Delete these folders and wait for the disk, so that the next run is not slowed down by this one."""
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        os.sync()


@contextmanager
def stage(home: Path | None, quick: bool) -> Iterator[Stage]:
    """Yield a stage in that folder, which keeps its topics; without a folder in a temporary one."""
    with tempfile.TemporaryDirectory(prefix="kpipe-bench-", ignore_cleanup_errors=True) as temporary:
        place = (home or Path(temporary)).absolute()
        place.mkdir(parents=True, exist_ok=True)
        broker = LocalBroker(place / "broker")
        try:
            broker.start()
            yield Stage(place, broker, quick, home is not None)
        finally:
            broker.stop()
            shutil.rmtree(place / "scratch", ignore_errors=True)


def result(seconds: float, topic: Topic, **more: Any) -> dict[str, Any]:
    """Return a run in the form of results: rates are computed from the time and the topic."""
    return {
        "seconds": round(seconds, 3),
        "msg_s": round(topic.records / seconds),
        "mb_s": round(topic.value_bytes / seconds / 1e6, 1),
        **more,
    }
