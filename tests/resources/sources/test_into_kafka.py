"""Files into a topic: rows, dead letters and positions in one Kafka transaction, also of runs that are killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kpipe.failpoints import POINTS
from tests.resources.destinations.kafka_place import read_all
from tests.resources.sources.runs import Bench, kill

pytestmark = pytest.mark.broker
_COMMIT = [point for point in POINTS if point.startswith("commit.")]


def bench(folder: Path, brokers: str, topic: Callable[..., str], **fields: Any) -> tuple[Bench, str]:
    target = topic(3)
    into = {"type": "kafka", "brokers": brokers, "topic": target, "ledger": f"{target}-ledger", **fields.pop("into", {})}
    return Bench(folder, into=into, **fields), target


def ids(brokers: str, topic: str) -> list[int]:
    return sorted(json.loads(message.value())["id"] for message in read_all(brokers, topic))


def test_a_record_has_key_value_and_the_place_that_it_came_from(tmp_path: Path, brokers: str, topic: Any) -> None:
    files, target = bench(tmp_path, brokers, topic, into={"key": ["id"]})
    files.write("a", {"id": 1, "name": "x"}, raw=b"broken\n")
    files.run()
    (message,) = read_all(brokers, target)
    assert (message.key(), json.loads(message.value())) == (b"1", {"id": 1, "name": "x"})
    headers = dict(message.headers())
    assert (headers["kpipe.topic"], headers["kpipe.offset"]) == (f"{files.files}/a".encode(), b"0")
    (letter,) = read_all(brokers, f"{target}.dead-letters")
    headers = dict(letter.headers())
    assert (letter.value(), headers["kpipe.topic"], headers["kpipe.offset"]) == (b"broken", f"{files.files}/a".encode(), b"23")
    assert files.audit().ok, files.audit().problems


def test_records_without_key_of_a_file_are_in_one_partition_and_those_of_files_in_several(
    tmp_path: Path, brokers: str, topic: Any
) -> None:
    files, target = bench(tmp_path, brokers, topic)
    for number in range(60):  # 12 paths of a temporary folder leave out one of three partitions in 2% of all runs
        files.write(f"f{number}", {"id": number}, {"id": number + 100})
    files.run()
    found: dict[bytes, list[tuple[int, int]]] = {}
    for message in read_all(brokers, target):
        place = dict(message.headers())["kpipe.topic"]
        found.setdefault(place, []).append((message.partition(), json.loads(message.value())["id"]))
    assert len({partition for items in found.values() for partition, _ in items}) == 3
    for items in found.values():
        assert len({partition for partition, _ in items}) == 1
        assert items[0][1] < items[1][1]


def test_a_run_that_is_killed_in_its_commit_repeats_and_loses_nothing(tmp_path: Path, brokers: str, topic: Any) -> None:
    files, target = bench(tmp_path, brokers, topic)
    written = 0
    for at, point in enumerate((*_COMMIT, "readback", "publish.before")):
        files.write(f"f{at % 3}", *({"id": written + number} for number in range(3)), raw=b"broken\n")
        written += 3
        assert files.run_until(point, kill), point
    files.run()
    assert ids(brokers, target) == list(range(written))
    result = files.audit()
    assert (result.ok, result.counts.rows, result.counts.dead_letters) == (True, written, len(_COMMIT) + 2), result.problems


def test_two_runs_at_once_write_each_record_once(tmp_path: Path, brokers: str, topic: Any) -> None:
    files, target = bench(tmp_path, brokers, topic)
    files.write("a", *({"id": number} for number in range(5)))
    with pytest.raises(Exception, match="another run committed first"):
        files.run_until("collect.all", lambda: files.run())
    files.write("a", {"id": 5})
    files.run()
    assert ids(brokers, target) == list(range(6))
    assert files.audit().ok
