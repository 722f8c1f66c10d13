"""Minutes of everything at once, on a broker of its own: a steady writer, a nemesis with a seed, the oracle each round.

make chaos                        five minutes, a new seed, which is printed
KPIPE_SEED=7 make chaos           the same choices again (not the same nanoseconds)
KPIPE_SOAK_S=3600 make chaos      an hour
"""

from __future__ import annotations

import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable

import pytest

from resources.dev_broker.broker import LocalBroker
from tests.survival.nemesis import Nemesis, Run, small_disk
from tests.survival.site import Site, kill

SECONDS = float(os.environ.get("KPIPE_SOAK_S") or 300)
A_SECOND = 400


@pytest.mark.chaos
@pytest.mark.minutes(6)
@pytest.mark.spark
def test_soak(
    site: Callable[..., Site],
    running_broker: Callable[..., LocalBroker],
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    seed = int(os.environ.get("KPIPE_SEED") or random.randrange(2**32))
    print(f"\nKPIPE_SEED={seed} ({SECONDS:g} s)", flush=True)
    chance = random.Random(seed)
    broker = running_broker(tmp_path_factory.mktemp("soak-kafka") / "broker", free_port())
    with small_disk(tmp_path_factory.mktemp("soak-disk"), "192m") as disk:
        one = site("soak", str(broker.status().brokers), broker, seed, disk)
        one.define(source={}, batch={"max_offsets_per_partition": 120, "interval_ms": 50, "max_retries": 2})
        one.writer.round(90)
        one.exact()
        nemesis, began, ends = Nemesis(one, broker, disk, chance), time.monotonic(), Counter[str]()
        names: list[str] = []
        while (start := time.monotonic()) < began + SECONDS:
            names = names or chance.sample(sorted(nemesis.faults), len(nemesis.faults))  # each once, then again
            name = names.pop()
            with one.writer.steadily(A_SECOND):
                runs = nemesis.strike(name)
            said = [judged(name, run) for run in runs]
            ends.update(said)
            when = f"KPIPE_SEED={seed}, after {name}"
            assert one.processes() == [], when
            found = one.oracle.problems(ended=False)
            assert found == [], f"{when}: {found}"
            one.go_on_patiently()
            found = one.oracle.problems()
            assert found == [], f"{when} and one more run: {found}"
            rows, now = len(one.oracle.observer.seen), time.monotonic()
            print(f"{start - began:6.1f} s {now - start:5.1f} s  {name:38} {rows:7,} records  {', '.join(said)}", flush=True)
        one.writer.round(90)
        one.exact()
        status, said_last = one.real().end()
        assert status == 0, said_last
        assert one.oracle.problems() == []
        proof = one.kpipe.json("verify", "soak", CANARY="x")[0]
        assert proof["ok"], proof
        truth = one.writer.truth
        print(
            f"exact after {time.monotonic() - began:.0f} s, seed {seed}: {len(truth.committed):,} records committed,"
            f" {len(truth.aborted):,} aborted, {sum(map(len, truth.unknown)):,} unknown; ends of runs: {dict(ends)}"
        )


def judged(name: str, run: Run) -> str:
    """How it ended; an error that it told of must be one that has a name and says what to do."""
    alive = run.poll() is None
    status, said = kill(run) if alive else run.end()
    if alive or status < 0:
        return "killed"
    if status == 0:
        return "done"
    injected = "KPIPE_FAULT: failed at" in said
    assert "Traceback" not in said or injected, f"{name}: {said}"
    named = re.search(r"^(?:kpipe|[A-Z]\w+): (.*)", said, re.MULTILINE)
    assert named or injected, f"{name}: {said}"
    return "injected" if injected else said.strip().splitlines()[-1][:240]
