"""Mirrors the ledger into Dagster: what a commit stored to be shown is shown once, whatever dies in between.

Two systems cannot change together, so the order is fixed and each step can be repeated:

    1. take the home's publishing lock        only one publisher at a time; a crash frees it
    2. read what the ledger says is waiting
    3. leave out what the event log already shows: every event carries the newest commit that it tells of
    4. store the events
    5. mark the commits as published

A crash before 4 shows nothing and marks nothing. One between 4 and 5, or in the middle of 4, leaves commits waiting
that some partitions show already: step 3 of the next publisher leaves out just these.
"""

from __future__ import annotations

import fcntl
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg

from kpipe.interfaces import Destination, Publication
from kpipe.topics import in_order
from kpipe_assets.publishing.events import numbers, tell
from kpipe_assets.publishing.metadata import LAST_SEQ, ROWS, of_further, of_publications, of_table
from resources.home import Home

__all__ = ["Publisher", "materializations"]

# At once; what is left waits for the next time. A thousand commits of 64 partitions are some 20 MB of metadata.
_MOST_COMMITS = 1000


class Publisher:
    """Publishes what one pipeline's ledger has waiting.

    Args:
        instance: Dagster's.
        key: the table's asset key, or that of each of its tables, the first one first.
        destination: where the ledger is.
        home: where the lock file lies.
        pipeline: the pipeline's name.
        topics: where rows come from; with them, the newest event also tells of the table as a whole.
    """

    def __init__(
        self,
        instance: dg.DagsterInstance,
        key: dg.AssetKey | Sequence[dg.AssetKey],
        destination: Destination,
        home: Home,
        pipeline: str,
        topics: Sequence[dg.AssetKey] = (),
    ) -> None:
        self.keys = [key] if isinstance(key, dg.AssetKey) else list(key)
        self._instance, self._destination, self._topics = instance, destination, topics
        self._lock = home.state / f"{pipeline}.publishing"

    @contextmanager
    def waiting(self) -> Iterator[dict[dg.AssetKey, dict[str, dict[str, Any]]]]:
        """Events to store: by asset, metadata by partition key. Leaving without an error marks their commits as published.

        Each tells the rows of the table, so that no plot has a hole. Dagster's catalog shows the columns of a table from its
        newest event, whatever the partition, so the last one has them. Not each: they are a few kB, and events stay for ever.

        Store them inside, each before the next; nobody else publishes meanwhile.
        """
        with self._lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # 1
            publications = list(self._destination.unpublished(_MOST_COMMITS))  # 2
            yield {asset: self._events(at, publications) for at, asset in enumerate(self.keys)}  # 4
            self._destination.published([item.batch for item in publications])  # 5

    def _events(self, at: int, publications: Sequence[Publication]) -> dict[str, dict[str, Any]]:
        """What is to be told of one table."""
        asset = self.keys[at]
        mine = publications if not at else of_further(publications, asset.path[-1])
        shown = self.shown({key for item in mine for key in item.metadata}, asset)  # 3
        events = of_publications([_without_shown(item, shown) for item in mine])
        if events and self._topics:
            table = of_table(self._destination, self._topics, at)
            for event in events.values():
                event[ROWS] = table[ROWS]
            events[max(events, key=in_order)].update(table)
        return events

    def oldest(self) -> int:
        """Sequence number of the oldest commit that waits to be shown; 0 when none does."""
        waiting = self._destination.unpublished(1)
        return waiting[0].seq if waiting else 0

    def shown(self, keys: Collection[str], asset: dg.AssetKey | None = None) -> dict[str, int]:
        """Number of the newest commit that the event log shows of each partition; 0 for none. Of the first table by default."""
        found = numbers(self._instance, asset or self.keys[0], keys, LAST_SEQ)
        return {key: found.get(key, 0) for key in keys}

    def publish(self) -> int:
        """Store events without a run, as a sensor does. Gives their number."""
        with self.waiting() as assets:
            for asset, events in assets.items():
                tell(self._instance, materializations(asset, events))
            return sum(map(len, assets.values()))


def materializations(asset: dg.AssetKey, events: Mapping[str, Mapping[str, Any]]) -> list[dg.AssetMaterialization]:
    """Events of a table by partition, in the order in which they are to be stored."""
    return [dg.AssetMaterialization(asset, partition=key, metadata=events[key]) for key in sorted(events, key=in_order)]


def _without_shown(publication: Publication, shown: Mapping[str, int]) -> Publication:
    left = {key: item for key, item in publication.metadata.items() if publication.seq > shown[key]}
    return Publication(publication.batch, publication.seq, left)
