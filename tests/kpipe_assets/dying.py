"""Runs of Dagster that die where a test says: real Kafka, DuckDB and Dagster storage, a real SIGKILL; Spark is a stand-in.

Between a commit and its event Spark has no part, and without its start every point can be tried. Each run is a process
of its own, forked from one that has imported everything already.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from kpipe.definition.pipeline import Pipeline
from kpipe.interfaces import Destination, Stager
from kpipe_assets.assets import table_asset as tables
from kpipe_assets.assets.table_asset import OP_TAG, table_asset
from kpipe_assets.assets.topic_asset import topic_spec
from kpipe_assets.dagster_resources import KafkaResource
from kpipe_assets.dagster_server.instance import open_instance
from resources.destinations import open_destination
from resources.destinations.sql.destination import SqlDestination
from resources.home import Home
from resources.spark.driver.definition_version import ResolvedPipeline
from resources.spark.driver.stager import SparkStager
from tests.survival.small import Context, in_worker

__all__ = ["POINTS", "Destinations", "killed"]

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.kpipe_assets.dying"])


class Spark:
    """The stager, on a stand-in for Spark."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def stager(self, pipeline: Pipeline) -> Stager:
        return SparkStager(ResolvedPipeline.of(pipeline, self._home), self._home, Context)  # type: ignore[arg-type]

    def warm(self) -> None: ...


class Destinations:
    """The real ones of a home."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def open(self, pipeline: Pipeline) -> Destination:
        return open_destination(pipeline, self._home)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _around(
    owner: type, name: str, before: Callable[..., None] = lambda *_: None, after: Callable[..., None] = lambda *_: None
) -> None:
    real = getattr(owner, name)

    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        before(*arguments)
        result = real(self, *arguments, **named)
        after(*arguments)
        return result

    setattr(owner, name, wrapped)


def _at_event(number: int, torn: bool = False) -> None:
    """Die after the n-th event of a partition was stored; torn: in the midst of storing it, in one database of two."""
    stored = [0]

    def count(event: Any) -> None:
        if event.is_dagster_event and event.dagster_event_type == dg.DagsterEventType.ASSET_MATERIALIZATION:
            stored[0] += 1

    def perhaps(*_: Any) -> None:
        if stored[0] == number:
            _die()

    _around(SqliteEventLogStorage, "store_event", before=count, after=lambda *_: None if torn else perhaps())
    if torn:
        _around(SqliteEventLogStorage, "index_transaction", before=perhaps)


#: Every step between the commit of the data and the end of the run, in order, and what arms it.
POINTS: dict[str, Callable[[], None]] = {
    "committed, nothing asked": lambda: _around(SqlDestination, "commit", after=_dies_after_a_batch),
    "asked what waits": lambda: _around(SqlDestination, "unpublished", after=lambda *_: _die()),
    "first event half stored": lambda: _at_event(1, torn=True),
    "one event stored": lambda: _at_event(1),
    "two events stored": lambda: _at_event(2),
    "all events stored": lambda: _at_event(3),
    "about to be marked": lambda: _around(SqlDestination, "published", before=lambda *_: _die()),
    "marked": lambda: _around(SqlDestination, "published", after=lambda *_: _die()),
}


def _dies_after_a_batch(commit: Any) -> None:
    if commit.steps:
        _die()


def killed(home: Home, name: str, point: str, live: bool = False) -> int:
    """Materialize the table in a process that dies at the point ("" for none); its exit status, negative for a signal.

    Args:
        home: with the definition and Dagster's storage.
        name: of the pipeline.
        point: one of `POINTS`.
        live: events come with each batch, not at the end only.
    """
    process = _processes.Process(target=_begin, args=(home.path, name, point, live))
    process.start()
    process.join(600)
    assert process.exitcode is not None, "it does not end"
    return process.exitcode


def _begin(path: Path, name: str, point: str, live: bool) -> None:
    warnings.simplefilter("ignore")  # Dagster's of what is in beta
    home = Home(path)
    pipeline = home.pipeline(name)
    if live:
        tables._EVENT_EVERY_S = 0.0
    with open_instance(home.dagster) as instance, in_worker():
        if point:
            POINTS[point]()
        keys = instance.get_dynamic_partitions(f"kafka/{pipeline.source.topic}")
        dg.materialize(
            [topic_spec(pipeline), table_asset(pipeline, home, "v1")],
            resources={"kafka": KafkaResource(), "spark": Spark(home), "destinations": Destinations(home)},
            instance=instance,
            tags={
                OP_TAG: name,
                "dagster/asset_partition_range_start": keys[0],
                "dagster/asset_partition_range_end": keys[-1],
            },
        )
