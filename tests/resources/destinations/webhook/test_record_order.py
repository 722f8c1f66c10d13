"""Order and concurrency of a webhook's requests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from kpipe.batch.batch import StagedFile
from resources.destinations.staged_file_check import verify
from resources.destinations.webhook.ordered_rows import windows
from resources.testing.place import batch
from resources.testing.state import begun, proof
from tests.resources.destinations.webhook.batches import in_order, of_records, places
from tests.resources.destinations.webhook_place import WebhookPlace


def test_records_of_a_key_stay_in_order_and_others_go_at_the_same_time(place: WebhookPlace) -> None:
    begun(place)
    chance = random.Random(7)
    keys = {n: [chance.choice([b"a", b"b", b"c", b"d", b"e", None]) for _ in range(40)] for n in (0, 1)}
    lock = random.Random(11)
    answers = [*[""] * 15, "500", "reset", "lost", "cut", "429:0"]
    place.receiver.pause = 0.01
    place.receiver.fault = lambda _: lock.choice(answers)
    destination = place.open(max_records=2, concurrency=3, retry_s=60)
    destination.commit(of_records(place, destination.ledger()[1], keys))
    taken = place.receiver.taken
    assert sorted(places(taken)) == [(n, offset) for n in (0, 1) for offset in range(40)]
    assert in_order(taken, keys)
    assert 1 < place.receiver.most <= 3
    assert len(place.rows()) == 80 and proof(destination).ok


def test_several_files_of_a_partition_in_whatever_order(place: WebhookPlace) -> None:
    """Small ranges share files: rows of a partition may stand behind those of others, and before them."""
    destination = begun(place)
    destination = place.open(max_records=1, concurrency=1)
    base = batch(place, destination.ledger()[1], {0: 4, 1: 6})

    def rows(*spans: tuple[int, int, int]) -> Any:
        return place.staged([
            {"id": o, "text": "x", "_kafka_partition": n, "_kafka_offset": o, "_kafka_timestamp": o}
            for n, start, end in spans for o in range(start, end)
        ])  # fmt: skip

    destination.commit(base.writing(files=(rows((1, 4, 6)), rows((0, 0, 2), (1, 2, 4)), rows((1, 0, 2), (0, 2, 4)))))
    found = places(place.receiver.taken)
    assert [o for n, o in found if n == 0] == [0, 1, 2, 3] and [o for n, o in found if n == 1] == [0, 1, 2, 3, 4, 5]


def test_many_rows_go_through_in_windows(place: WebhookPlace) -> None:
    begun(place)
    destination = place.open(max_records=500, concurrency=2)
    destination.commit(batch(place, destination.ledger()[1], {0: 3000, 1: 1500}))
    found = places(place.receiver.taken)
    assert [o for n, o in found if n == 0] == list(range(3000)) and [o for n, o in found if n == 1] == list(range(1500))
    assert proof(destination).ok


def test_windows_are_limited_in_bytes(place: WebhookPlace) -> None:
    """A batch that an earlier version began has no limit: its windows decided the keys of the requests that were sent."""
    destination = begun(place)
    staged = batch(place, destination.ledger()[1], {0: 300, 1: 20}).only.files
    files = verify(staged, [Path(file.path).parent for file in staged])
    small = [[(block.partition, block.table.num_rows, block.table.nbytes) for block in found] for found in windows(files, 1000)]
    assert sum(rows for found in small for _, rows, _ in found) == 320 and len(small) > 10
    assert max(size for found in small for *_, size in found) <= 1000
    assert [[block.table.num_rows for block in found] for found in windows(files, None)] == [[300, 20]]


def test_pieces_of_a_range_that_lie_in_turns_in_two_files_go_out_in_order(place: WebhookPlace) -> None:
    """Two tasks staged two pieces of a range each, in files that a task shares among its pieces."""
    destination = begun(place)
    ledger = destination.ledger()[1]
    base = batch(place, ledger, {0: 400})

    def rows(*offsets: int) -> StagedFile:
        return place.staged(
            [{"id": n, "text": "t", "_kafka_partition": 0, "_kafka_offset": n, "_kafka_timestamp": n} for n in offsets]
        )

    pieces = (rows(*range(100), *range(200, 300)), rows(*range(100, 200), *range(300, 400)))
    destination.commit(base.writing(files=pieces))
    assert [offset for _, offset in places(place.receiver.taken)] == list(range(400))


def test_a_record_of_any_time_is_sent(place: WebhookPlace) -> None:
    """Python's dates end with the year 9999, Kafka's timestamps do not."""
    begun(place)
    destination = place.open(body='{"at": [${_kafka_partition}, ${_kafka_offset}], "time": ${_kafka_timestamp}}', max_records=1)
    row = {"id": 1, "text": "t", "_kafka_partition": 0, "_kafka_offset": 0, "_kafka_timestamp": (2**63 - 1) // 1000 * 1000}
    destination.commit(batch(place, destination.ledger()[1], {0: 1}).writing(files=(place.staged([row]),)))
    assert [request.json["time"] for request in place.receiver.taken] == ["294247-01-10T04:00:54.775000Z"]
    assert proof(destination).ok
