"""Publish the ledger's commits to Dagster: each one once, also after a crash.

Ledger and Dagster have no common transaction, so the order is fixed and each step can be repeated:

    1. take the home's publishing lock        one publisher at a time; a crash releases it
    2. read unpublished commits from the ledger
    3. skip commits in the event log: every event contains number and batch id of its newest commit
    4. store the events
    5. mark what was read as published

A crash before step 4 changes nothing. After a crash in step 4, or before step 5, the ledger has unpublished commits that
some partitions in Dagster show already: step 3 of the next publisher skips them.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg

from kpipe.interfaces import Destination, Publication
from kpipe.topics import in_order
from kpipe_assets.publishing.events import publish_events
from kpipe_assets.publishing.metadata import ROWS, of_one, of_publications, of_table
from kpipe_assets.publishing.shown_commits import Shown, shown_commits, without_shown
from kpipe_assets.telemetry.run_log import log_publications
from resources.home import Home

__all__ = ["Publisher", "materializations"]

# Most commits in one step; others follow in the next one. A thousand commits of 64 partitions are some 20 MB of metadata.
_MOST_COMMITS = 1000


class Publisher:
    """A publisher of one pipeline's commits.

    Args:
        instance: Dagster instance.
        key: the table's asset key, or the keys of several tables in the order of the definition.
        destination: contains the ledger.
        home: contains the lock file and the log.
        pipeline: the pipeline's name.
        topics: assets of the topics. If set, the newest event contains metadata of the whole table.
        others: stores the events of other assets for these commits, before they are marked as published.
    """

    def __init__(
        self,
        instance: dg.DagsterInstance,
        key: dg.AssetKey | Sequence[dg.AssetKey],
        destination: Destination,
        home: Home,
        pipeline: str,
        topics: Sequence[dg.AssetKey] = (),
        others: Callable[[Sequence[Publication]], object] = lambda _: None,
    ) -> None:
        self.keys = [key] if isinstance(key, dg.AssetKey) else list(key)
        self._instance, self._destination, self._topics, self._others = instance, destination, topics, others
        self._home, self._pipeline = home, pipeline
        self._lock = home.state / f"{pipeline}.publishing"

    @contextmanager
    def waiting(self) -> Iterator[dict[dg.AssetKey, dict[str, dict[str, Any]]]]:
        """Yield the events to store: by asset, metadata by partition key. A normal exit marks their commits as published.

        Store the events in order inside the context; it has the publishing lock.

        Each event contains the number of rows of the table, so that plots have no gap. Dagster's catalog shows the columns
        in a table's newest event, so only the last event contains them: they are a few kB, and events are never deleted.
        """
        with self._lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # 1
            publications = list(self._destination.unpublished(_MOST_COMMITS))  # 2
            yield {asset: self._events(at, publications) for at, asset in enumerate(self.keys)}  # 4
            self._others(publications)
            self._destination.published(publications)  # 5
            log_publications(self._home, self._pipeline, publications)

    def _events(self, at: int, publications: Sequence[Publication]) -> dict[str, dict[str, Any]]:
        """Build the events of one table."""
        asset = self.keys[at]
        commits = of_one(publications, [key.path[-1] for key in self.keys], asset.path[-1])
        shown = self.shown({key for item in commits for key in item.metadata}, asset)  # 3
        events = of_publications(without_shown(commits, shown))
        if events and self._topics:
            table = of_table(self._destination, self._topics, at)
            for event in events.values():
                event[ROWS] = table[ROWS]
            events[max(events, key=in_order)].update(table)
        return events

    def oldest(self) -> int:
        """Return the sequence number of the oldest unpublished commit, or 0."""
        waiting = self._destination.unpublished(1)
        return waiting[0].seq if waiting else 0

    def shown(self, keys: Collection[str], asset: dg.AssetKey | None = None) -> dict[str, Shown]:
        """Return for each partition the newest commit in the event log. Default: of the first table."""
        return shown_commits(self._instance, asset or self.keys[0], keys)

    def publish(self) -> int:
        """Store events without a run, as a sensor does. Return their number."""
        with self.waiting() as assets:
            for asset, events in assets.items():
                publish_events(self._instance, materializations(asset, events))
            return sum(map(len, assets.values()))


def materializations(asset: dg.AssetKey, events: Mapping[str, Mapping[str, Any]]) -> list[dg.AssetMaterialization]:
    """Build the materializations of a table, in the order in which they must be stored."""
    return [dg.AssetMaterialization(asset, partition=key, metadata=events[key]) for key in sorted(events, key=in_order)]
