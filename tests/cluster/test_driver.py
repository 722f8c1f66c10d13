"""The client that drives a batch is lost in its middle; and what another run of its sends to the workers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.cluster import WORKERS, Cluster, wait
from tests.cluster.site import PARTITIONS, PROGRAM, Site, idle

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.chaos]


@pytest.fixture(scope="module")
def driven(site: Callable[..., Site]) -> Site:
    """A pipeline that nobody has run."""
    return site("driven")


def test_drivers_killed_in_mid_batch_one_after_the_other(cluster: Cluster, driven: Site) -> None:
    """Executors, their Python and programs end by themselves, though nobody lets the programs go on. The next run reads again.

    Killed is kpipe's process alone; all of its host's; all of them, and no packet says so to anybody.
    """
    one, client = driven, cluster["client"]
    others = [host for name, host in cluster.network.hosts.items() if name not in ("client", "switch")]
    one.write()
    one.hold()
    for way in ("process", "host", "silently"):
        one.forget()
        one.start("--json")
        wait(lambda: {begun.host for begun in one.told()} >= set(WORKERS), f"{way}: a batch at work")
        assert one.batches() == []
        if way == "silently":
            client.cut(*others)
        assert (client.kill("kpipe_assets.cli") if way == "process" else client.kill()) >= 1
        one.started[-1].wait(60)
        if way == "silently":
            wait(lambda: not any(worker.processes("program.sh") for worker in cluster.workers), "the end of the programs")
            client.mend(*others)
        assert idle(cluster) == [], way
    one.release()
    one.forget()
    one.run()
    one.exact()
    assert {begun.partition for begun in one.told()} == set(range(PARTITIONS)), "a batch that was lost is read again"
    assert idle(cluster) == []


def test_a_changed_program_reaches_the_workers(cluster: Cluster, driven: Site) -> None:
    """Those of the next run: a run at work keeps the program that it began with, which Spark has sent once."""
    one, program = driven, driven.home / "program.sh"

    def edit(word: str) -> None:
        text = PROGRAM.format(folder=one.folder)
        program.write_text(text.replace('$(uname -n)" >>', f'$(uname -n) {word}" >>'))

    def words() -> list[str]:
        lines = [line.split() for line in (one.folder / "told").read_text().splitlines()]
        return [" ".join(line[3:]) for line in lines if line[2] != "client"]

    one.forget()
    edit("second")
    one.write()
    one.start("--follow", "--json")
    one.exact()
    assert words() and set(words()) == {"second"}
    edit("third")
    one.forget()
    one.write()
    one.exact()
    assert words() and set(words()) == {"second"}
    one.stop()
    assert idle(cluster) == []
