"""Records that staging leaves out: how long a stager remembers them, and what a deferred stager passes on."""

from __future__ import annotations

import inspect

from kpipe.batch.batch import Batch
from kpipe.ledger.ledger import Lane, Step
from kpipe.topics import PartitionId, TopicId
from resources.spark.driver.deferred_stager import DeferredStager
from resources.spark.driver.set_aside import SetAside
from resources.spark.driver.stager import SparkStager

SOURCE = PartitionId(TopicId("cluster", "id", "topic"), 0)


def batch(id: str, start: int, end: int) -> Batch:
    return Batch(id, "p", (Step(Lane(SOURCE, start, start), end),))


def test_records_of_the_batch_being_committed_outlive_the_staging_of_the_next_one() -> None:
    """The destination names them in several steps: with those of the first step forgotten, the two would alternate for ever."""
    aside, first, second = SetAside(), batch("1", 0, 10), batch("2", 10, 20)
    aside.keep_for(first)
    aside.add_poison(SOURCE, {7: "the program failed"})
    aside.keep_for(second)
    assert aside.refuse({SOURCE: {3: "NULL"}})
    aside.keep_for(first)
    aside.keep_for(second)
    assert aside.refuse({SOURCE: {5: "too long"}})
    aside.keep_for(first)
    assert aside.refused == {SOURCE: {3: "NULL", 5: "too long"}} and aside.poison_records == {SOURCE: {7: "the program failed"}}
    assert not aside.refuse({SOURCE: {3: "NULL", 5: "too long"}}) and not aside.refuse({})


def test_records_of_earlier_batches_are_forgotten() -> None:
    aside = SetAside()
    for at in range(100):
        aside.keep_for(batch(str(at), at * 10, at * 10 + 10))
        aside.refuse({SOURCE: {at * 10 + 1: "NULL"}})
        aside.add_poison(SOURCE, {at * 10 + 2: "failed"})
    assert aside.refused == {SOURCE: {981: "NULL", 991: "NULL"}} and aside.poison_records == {
        SOURCE: {982: "failed", 992: "failed"}
    }


def test_all_parts_of_a_retry_may_be_staged_again() -> None:
    aside = SetAside(batches=None)
    for at in range(5):
        aside.keep_for(batch(str(at), at * 10, at * 10 + 10))
        aside.refuse({SOURCE: {at * 10: "NULL"}})
    assert list(aside.refused[SOURCE]) == [0, 10, 20, 30, 40]


def test_a_deferred_stager_passes_everything_on() -> None:
    """The ingest loop asks by protocol what a stager can do: a missing method would only make it slower, or refuse nothing."""
    known = {name for name, _ in inspect.getmembers(SparkStager, inspect.isfunction) if not name.startswith("_")}
    assert known - {"sampled"} <= {name for name, _ in inspect.getmembers(DeferredStager, inspect.isfunction)}
