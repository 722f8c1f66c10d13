"""Rows of a topic are counted block by block, in a table that can leave memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from kpipe.offsets import Range
from resources.destinations.kafka_sink import recount
from resources.destinations.kafka_sink.cluster import Ends, Topic
from resources.kafka.record_block import RecordBlock


class Cluster:
    """A topic with 30 records of one pipeline in three blocks."""

    def topic(self, name: str) -> Topic:
        return Topic(name, "t-1", 1)

    def settled(self, topic: Topic, wait_s: float) -> list[Ends]:
        return [Ends(0, 30, 30)]

    def settings(self, name: str) -> Mapping[str, str]:
        return {"cleanup.policy": "delete"}

    def read(self, name: str, number: int, span: Range) -> Iterator[RecordBlock]:
        for start in range(span.start, span.end, 10):
            offsets = list(range(start, start + 10))
            own = {"kpipe.kind": b"row", "kpipe.pipeline": b"p", "kpipe.topic": b"in", "kpipe.partition": b"0"}
            headers = [[*own.items(), ("kpipe.offset", b"%d" % at)] for at in offsets]
            yield RecordBlock.of(offsets, [0] * 10, [b"x"] * 10, headers=headers)


def test_each_record_is_counted(tmp_path: Path) -> None:
    committed = recount._Committed("p", "out", None, (), 30, 0)
    found, forgets = recount._recount(tmp_path / "new", Cluster(), committed)  # type: ignore[arg-type]
    assert (sum(found.rows.values()), forgets) == (30, "")
    assert list((tmp_path / "new").iterdir()) == []
