"""Commit batches to a webhook, and compare what its receiver took."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from kpipe.batch.batch import Commit, Counts, TableWrite
from kpipe.ledger.ledger import Ledger, Step
from kpipe.tables.upsert import ORIGINAL
from kpipe.testing.commits import commit_to
from resources.testing.keyed import RECORD
from resources.testing.place import COLUMNS, COORDINATES, arrow, source
from tests.receiver import Got
from tests.resources.destinations.webhook_place import WebhookPlace

_processes = multiprocessing.get_context("forkserver")


_processes.set_forkserver_preload(["tests.resources.destinations.webhook_place"])


def of_records(place: WebhookPlace, ledger: Ledger, keys: Mapping[int, Sequence[bytes | None]]) -> Commit:
    """A batch of records with these Kafka keys, by partition, from where the ledger stands; whole records beside the rows."""
    steps, files, counts = [], [], {}
    for number, own in keys.items():
        lane = ledger.live(source(number))
        assert lane is not None
        steps.append(step := Step(lane, lane.next + len(own)))
        rows = [
            {
                "id": number * 1_000_000 + offset, "text": f"t{offset}", "_kafka_partition": number, "_kafka_offset": offset,
                "_kafka_timestamp": offset,
                ORIGINAL: {"key": key, "value": f"v{offset}".encode(), "headers": [{"name": "h", "value": b"\x00"}]},
            }
            for offset, key in enumerate(own, lane.next)
        ]  # fmt: skip
        fields = [(name, arrow(kind)) for name, kind in COLUMNS] + [*COORDINATES.items(), (ORIGINAL, RECORD)]
        files.append(place.file(rows, pa.schema(fields)))
        counts[step.lane.key] = Counts(len(rows), len(rows), inserted=len(rows), bytes=10 * len(rows))
    return commit_to(
        TableWrite(columns=COLUMNS, files=tuple(files)), counts,
        id=os.urandom(16).hex(), pipeline="tweets", changes=tuple(step.change for step in steps), steps=tuple(steps),
        ends={step.source: (0, step.end) for step in steps},
        metadata={s.source: {"rows": counts[s.lane.key].rows, "dead_letters": 0, "filtered": 0} for s in steps},
        started_ms=1_700_000_000_123, seconds=0.5,
    )  # fmt: skip


def places(taken: Sequence[Got]) -> list[tuple[int, int]]:
    """Partitions and offsets in the order in which the receiver has taken them."""
    bodies = [one.json if isinstance(one.json, list) else [one.json] for one in taken]
    return [tuple(body["at"]) for some in bodies for body in some]


def in_order(taken: Sequence[Got], keys: Mapping[int, Sequence[bytes | None]]) -> bool:
    """Whether offsets of each Kafka key of each partition came in their order; those without a key count as one."""
    last: dict[tuple[int, bytes | None], int] = {}
    for partition, offset in places(taken):
        key = (partition, keys[partition][offset])
        if last.get(key, -1) >= offset:
            return False
        last[key] = offset
    return True


def more(value: str | int) -> Any:
    """One of a kind that has its turn in `make chaos`."""
    return pytest.param(value, marks=pytest.mark.chaos)
