"""Two topics whose tables have the names `raw_{topic}`, and batches of both, for tests of destinations."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kpipe.batch.batch import Commit, TableWrite
from kpipe.batch.counts import Counts
from kpipe.ledger.ledger import Lane, LaneChange
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import ORIGINAL
from kpipe.topics import TopicId
from resources.testing.keyed import RECORD
from resources.testing.place import COLUMNS, COORDINATES, DEAD_LETTERS, Place, arrow, live, read_step, source
from resources.testing.state import proof

__all__ = ["BLOG", "PRICED", "SHOP", "TABLES", "begun", "commit", "targets"]

SHOP, BLOG = TopicId("cluster-1", "id-shop", "web.shop"), TopicId("cluster-1", "id-blog", "web-blog")
TABLES = {SHOP: "raw_web_shop", BLOG: "raw_web_blog"}
PRICED = Columns.of({"id": "BIGINT", "price": "DOUBLE"})


def begun(destination: Any) -> Any:
    """Begin both topics."""
    changes = tuple(LaneChange(None, Lane(source(0, topic), 0, 0)) for topic in TABLES)
    destination.commit(Commit(uuid.uuid4().hex, "tweets", changes, kind="begin", note="begin"))
    return destination


def commit(
    place: Place, destination: Any, ends: Mapping[TopicId, int], dead: tuple[TopicId, int] | None = None,
    columns: Mapping[TopicId, Columns] | None = None, keyed: bool = False, tables: Mapping[TopicId, str] = TABLES,
    pairs: bool = False,
) -> Commit:  # fmt: skip
    """One range of each topic, into its table: web.shop has `id` and `text`, web-blog `id` and `price`.

    With `pairs` two neighbouring offsets have the same id, and the rows carry their records.
    """
    ledger = destination.ledger()[1]
    steps = {topic: read_step(live(ledger, 0, topic), end) for topic, end in sorted(ends.items())}
    known = {SHOP: COLUMNS, BLOG: PRICED, **(columns or {})}
    writes, letters, records = [], [], {}
    for topic, step in steps.items():
        offsets = [at for at in range(step.range.start, step.range.end) if (topic, at) != dead]
        fields = [*((name, arrow(kind)) for name, kind in known[topic]), *COORDINATES.items(), ("_kafka_topic", pa.string())]
        fields += [(ORIGINAL, RECORD)] if pairs else []
        rows = [
            {
                "id": at // 2 if pairs else at,
                ORIGINAL: {"key": b"k", "value": f"{topic.name} {at}".encode(), "headers": None},
                "_kafka_partition": 0,
                "_kafka_offset": at,
                "_kafka_timestamp": at,
                "_kafka_topic": topic.name,
            }
            for at in offsets
        ]
        files = (place.file(rows, pa.schema(fields)),) if rows else ()
        counts = Counts(rows=len(rows), inserted=0 if keyed else len(rows))
        writes.append(TableWrite(tables[topic], known[topic], files, counts={step.lane.key: counts}))
        aside = len(step.range) - len(rows)
        letters += [place.dead(step.source, dead[1])] if aside and dead is not None else []
        records[step.lane.key] = Counts(messages=len(step.range), dead_letters=aside)
    return Commit(
        uuid.uuid4().hex, "tweets", tuple(step.change for step in steps.values()), steps=tuple(steps.values()),
        tables=tuple(writes), records=records, dead_letters=(place.file(letters, DEAD_LETTERS),) if letters else (),
        ends={step.source: (0, step.end) for step in steps.values()}, multi_topic=True,
        metadata={step.source: {"end_offset": step.end, "rows": 0} for step in steps.values()}, run_id="r", version="v",
    )  # fmt: skip


def targets(destination: Any) -> dict[str, int]:
    found = proof(destination, True)
    assert found.ok, found.problems
    assert all(rows["rows"] == rows["rows_found"] for rows in found.targets.values())
    return {name: rows["rows"] for name, rows in found.targets.items()}
