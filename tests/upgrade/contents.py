"""What the stores of earlier formats contain: a first part, written once by `write_stores.py`, and a part that tests add.

Every offset gives one row, dead letter or gap, by the same rule in both parts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from kpipe.batch.batch import Commit, Counts, TableWrite
from kpipe.errors import DestinationError
from kpipe.interfaces import Destination, Resuming
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from kpipe.testing.commits import commit_to
from resources.home import Home
from resources.testing.keyed import Write, commit_of
from resources.testing.place import DEAD_LETTERS, Place, begin, live, read_step
from resources.testing.state import positions, proof
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace
from tests.resources.destinations.mysql_place import MySQLPlace
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.destinations.postgres_place import PostgresPlace
from tests.resources.destinations.webhook_place import WebhookPlace
from tests.resources.several import Bench, order

__all__ = ["Contents"]

COLUMNS = Columns.of(
    {"id": "BIGINT", "text": "VARCHAR", "amount": "DECIMAL(18,3)", "order": "VARCHAR", "na\u00efve": "VARCHAR", "doc": "JSON"}
)
HOSTILE = (
    "'; DROP TABLE tweets; --", 'a "quote", a \\ and\ttwo\nlines', "\u2028 na\u00efve \U0001f600 \u202e", "$1 %s {} {{ x }} ?",
    "", None, "NULL", "../../etc/passwd",
)  # fmt: skip
RULE = KeyRule(("id",), "replace", deletes=True)

#: Ends by partition, dead letters and gaps of each batch.
_FIRST: tuple[dict[str, Any], ...] = (
    {"ends": {0: 6, 1: 3}, "dead": [(0, 2), (1, 0)], "gaps": [(1, 1)]},
    {"ends": {0: 9}, "dead": [], "gaps": []},
)
_NEXT: dict[str, Any] = {"ends": {0: 12, 1: 5}, "dead": [(1, 3)], "gaps": [(0, 10)]}


def value(partition: int, offset: int) -> dict[str, Any]:
    """Return the payload of a record."""
    text = HOSTILE[(partition + offset) % len(HOSTILE)]
    return {
        "id": partition * 1000 + offset,
        "text": text,
        "amount": Decimal(offset - 3) / 8,
        "order": f"select {offset}",
        "na\u00efve": text,
        "doc": json.dumps({"k": [offset, text]}, separators=(",", ":")),
    }


def batch(
    place: Place, ledger: Ledger, ends: Mapping[int, int], dead: Collection[tuple[int, int]], gaps: Collection[tuple[int, int]]
) -> Commit:
    """Stage a batch that reads the live lanes up to these ends."""
    steps = tuple(read_step(live(ledger, number), end) for number, end in ends.items())
    files, dead_files, counts = [], [], {}
    for step in steps:
        number, offsets = step.source.partition, range(step.range.start, step.range.end)
        letters = [at for at in offsets if (number, at) in dead]
        kept = [at for at in offsets if (number, at) not in {*dead, *gaps}]
        rows = [
            {**value(number, at), "_kafka_partition": number, "_kafka_offset": at, "_kafka_timestamp": at * 1_000_000}
            for at in kept
        ]
        files.append(place.staged(rows, COLUMNS))
        if letters:
            bad = [place.dead(step.source, at, b"{\xff'; --", f"not JSON: {HOSTILE[0]}") for at in letters]
            dead_files.append(place.file(bad, DEAD_LETTERS))
        counts[step.lane.key] = Counts(
            messages=len(rows) + len(letters), rows=len(rows), dead_letters=len(letters),
            gaps=len(offsets) - len(rows) - len(letters), bytes=10 * len(rows), inserted=len(rows),
        )  # fmt: skip
    name = "-".join(f"{number}.{end}" for number, end in ends.items())
    return commit_to(
        TableWrite(columns=COLUMNS, files=tuple(files)),
        counts,
        id=f"{ledger.pipeline}-{name}",
        pipeline=ledger.pipeline,
        changes=tuple(step.change for step in steps),
        steps=steps,
        dead_letters=tuple(dead_files),
        ends={step.source: (0, step.end + 7) for step in steps},
        metadata={step.source: {"end_offset": step.end, "rows": counts[step.lane.key].rows} for step in steps},
        run_id="run-1",
        version="v1",
        started_ms=1_700_000_000_123,
        seconds=0.5,
        note="it's a note",
    )


def coordinates(batches: Collection[Mapping[str, Any]]) -> set[tuple[int, int]]:
    """Return partition and offset of each row that these batches give, read from the start."""
    found, at = set(), {0: 0, 1: 0}
    for each in batches:
        for number, end in each["ends"].items():
            lost = {*each["dead"], *each["gaps"]}
            found |= {(number, offset) for offset in range(at[number], end) if (number, offset) not in lost}
            at[number] = end
    return found


class Contents:
    """The pipelines of one store: `tweets`, `other`, and where the destination allows it `users` (key) and `shop` (tables).

    Args:
        place: the destination.
        folder: for files that belong to no store.
    """

    def __init__(self, place: Place, folder: Path) -> None:
        self.place, self._folder = place, folder
        self.multi_topic = isinstance(place, (DuckDBPlace, PostgresPlace, MySQLPlace)) and not isinstance(place, WebhookPlace)
        self.keyed = place.keyed and not isinstance(place, DeltaPlace | IcebergPlace)  # lakes had no keys up to format 2
        self.sends = isinstance(place, WebhookPlace)

    def open(self, pipeline: str = "tweets") -> Destination:
        """Open a pipeline's destination."""
        return self.place.open(pipeline, pipeline, RULE) if pipeline == "users" else self.place.open(pipeline, pipeline)

    @property
    def pipelines(self) -> tuple[str, ...]:
        """Names of those that `open` opens."""
        return ("tweets", "other", *(("users",) if self.keyed else ()))

    def write(self) -> None:
        """Write the first part."""
        for pipeline in ("tweets", "other"):
            destination = self.open(pipeline)
            destination.commit(replace(begin(pipeline, [0, 1]), id=f"{pipeline}-begin"))
            for part in _FIRST:
                destination.commit(batch(self.place, destination.ledger()[1], **part))
            destination.published(destination.unpublished(1))
            destination.record_state("error", "stopped: it's \u2028 broken", "RecordRejected")
        if self.keyed:
            users = self.open("users")
            users.commit(begin("users", [0, 1]))
            self._users(users, Write(0, 0, 1, HOSTILE[0], 1), Write(0, 1, 2, HOSTILE[2], 2), Write(1, 0, 3, "c", 3))
            self._users(users, Write(0, 2, 1, HOSTILE[1], 4), Write(0, 3, 2, None))
        if self.multi_topic:
            self._shop().run()
        if self.sends:
            self._begin_to_send()

    def proceed(self) -> None:
        """Add a batch to each pipeline, exactly once: a second run of the same batch is no second batch."""
        for pipeline in ("tweets", "other"):
            destination = self.open(pipeline)
            commit = batch(self.place, destination.ledger()[1], **_NEXT)
            first = destination.commit(commit)
            assert destination.commit(commit).seq == first.seq == 4
        if self.keyed:
            users = self.open("users")
            self._users(users, Write(0, 4, 1, None), Write(0, 5, 2, "again", 5), Write(1, 1, 3, HOSTILE[3], 6))
        if self.multi_topic:
            shop = self._shop()
            shop.topics.produce(0, order(9, 1, 2))
            assert len(shop.run()) == 1
            assert not shop.run()

    def check(self, proceeded: bool = False) -> None:
        """Assert that every pipeline is verified, and contains what was written to it."""
        parts = (*_FIRST, _NEXT) if proceeded else _FIRST
        for pipeline in self.pipelines:
            found = proof(self.open(pipeline))
            assert found.ok, (pipeline, found.problems)
        for pipeline in ("tweets", "other"):
            destination = self.open(pipeline)
            assert positions(destination) == {0: 12 if proceeded else 9, 1: 5 if proceeded else 3}
            assert destination.ledger()[1].seq == (4 if proceeded else 3)
            batches = [row["batch_id"] for row in destination.view("batches_summary")]
            assert batches == [f"{pipeline}-{name}" for name in (*(("0.12-1.5",) if proceeded else ()), "0.9", "0.6-1.3")]
            waiting = [item.batch for item in destination.unpublished()]
            assert waiting == [f"{pipeline}-{name}" for name in ("0.9", *(("0.12-1.5",) if proceeded else ()))]
            errors = destination.view("errors")
            assert sum(row["dead_letter"] for row in errors) == (3 if proceeded else 2)
            assert {row["error_message"] for row in errors if not row["dead_letter"]} == {"stopped: it's \u2028 broken"}
            assert {bytes(row["load_data_line"]) for row in errors if row["dead_letter"]} == {b"{\xff'; --"}
            self._check_rows(pipeline, coordinates(parts))
        if self.keyed:
            users = {row["id"]: (row["text"], row["n"]) for row in self.place.rows("users")}
            before = {1: (HOSTILE[1], 4), 3: ("c", 3)}
            assert users == ({2: ("again", 5), 3: (HOSTILE[3], 6)} if proceeded else before)
        if self.multi_topic:
            shop = self._bench()
            assert shop.proof().ok
            orders = [(1, "it's 1"), (2, "c2")]
            assert shop.table("orders", "id", "customer") == [*orders, *([(9, "c9")] if proceeded else [])]
            assert len(self.place.rows("order_lines")) == (5 if proceeded else 3)

    def _check_rows(self, pipeline: str, expected: set[tuple[int, int]]) -> None:
        if self.sends:  # the table has receipts; values went to the receiver
            rows = DuckDBPlace.rows(self.place, pipeline)
            at = [(row["_kafka_partition"], row["_kafka_offset"]) for row in rows]
            assert len(at) == len(set(at)) and set(at) == expected
            return
        rows = self.place.rows(pipeline)
        found = {(row["_kafka_partition"], row["_kafka_offset"]): row for row in rows}
        assert len(found) == len(rows) and set(found) == expected
        for (number, offset), row in found.items():
            wanted = value(number, offset)
            assert {name: row[name] for name in ("id", "text", "amount", "order")} == {
                name: wanted[name] for name in ("id", "text", "amount", "order")
            }
            assert json.loads(row["doc"]) == json.loads(wanted["doc"])

    def _users(self, destination: Destination, *writes: Write) -> None:
        commit = commit_of(self.place, destination.ledger()[1], writes, RULE)
        destination.commit(replace(commit, pipeline="users"))

    def _bench(self) -> Bench:
        return Bench(self.place, Home.at(self._folder / "home"))

    def _shop(self) -> Bench:
        shop = self._bench()
        shop.topics.produce(0, order(1, 5, 6, customer="it's 1"), None)
        shop.topics.produce(1, order(2, 7))
        return shop

    def _begin_to_send(self) -> None:
        """Leave a batch of which the receiver has taken one request, and refuses to answer for the others."""
        assert isinstance(self.place, WebhookPlace)
        destination = self.place.open("begun", "begun", concurrency=1)
        destination.commit(replace(begin("begun", [0, 1]), id="begun-begin"))
        self.place.receiver.faults, self.place.receiver.fault = [""], lambda _: "503"
        try:
            destination.commit(batch(self.place, destination.ledger()[1], **_FIRST[0]))
        except DestinationError:
            return
        raise AssertionError("the receiver has taken everything")

    def finish_sending(self) -> None:
        """Finish the batch that an earlier version has begun to send, as the next run does."""
        assert isinstance(self.place, WebhookPlace)
        destination = self.place.open("begun", "begun", concurrency=1)
        assert isinstance(destination, Resuming)
        commit = destination.unfinished()
        assert commit is not None and commit.id == "begun-0.6-1.3"
        taken = len(self.place.receiver.taken)
        destination.commit(commit)
        assert destination.unfinished() is None
        assert len(self.place.receiver.taken) > taken and proof(destination).ok
        rows = DuckDBPlace.rows(self.place, "begun")
        assert {(row["_kafka_partition"], row["_kafka_offset"]) for row in rows} == coordinates(_FIRST[:1])
