"""The topics read again from their start, as committed: what really is there, and the views over the ledger."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from kpipe.audit import Recount
from kpipe.batch import Commit, Step
from kpipe.errors import DestinationError
from kpipe.ledger import Lane
from kpipe.offsets import Range
from resources.destinations.duckdb.connection import Connection
from resources.destinations.kafka.cluster import Cluster
from resources.destinations.kafka.journal import State
from resources.destinations.kafka.messages import origin, parsed_letter
from resources.destinations.lake import desk
from resources.destinations.lake.folder import LocalFolder
from resources.destinations.lake.record import Item
from resources.destinations.relational import records, tables
from resources.destinations.relational import recount as counting
from resources.destinations.rows import entry
from resources.kafka.held import Headers

__all__ = ["kept_letters", "lay_letters", "recount"]

_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
_LETTERS = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()), ("value", pa.binary()), ("headers", _HEADERS), ("stage", pa.string()), ("reason", pa.string()),
    ]
)  # fmt: skip
_ROWS = pa.schema([("_kafka_topic", pa.string()), ("_kafka_partition", pa.int32()), ("_kafka_offset", pa.int64())])


def recount(
    folder: Path, cluster: Cluster, table: str, state: State, items: Sequence[Item], letters: Sequence[Mapping[str, Any]]
) -> Recount:
    """Rows of the pipeline in its topic, by the headers that each carries.

    Raises:
        DestinationError: the topic does not keep all that was written, so nothing can be proven by counting.
    """
    pipeline = state.record.pipeline
    with desk.desk(LocalFolder(folder)) as (connection, _):
        tables.COMMITS.insert(connection, desk.DIALECT, [item["commit"] for item in items])
        tables.BATCHES.insert(connection, desk.DIALECT, [row for item in items for row in item["ranges"]])
        lay_letters(connection, items, letters)
        topic = cluster.topic(table)
        held = list(_ROWS.names)
        rows = _ROWS.empty_table()
        if topic is not None:
            ends = cluster.ends(topic)
            starts = [item.start for item in ends]
            gone = [f"{number} starts at {at}" for number, at in enumerate(starts) if at > state.starts.get(number, 0)]
            policy = cluster.settings(table).get("cleanup.policy", "")
            if gone or "compact" in policy:
                why = f"the log of partition {gone[0]}" if gone else f"cleanup.policy is {policy}"
                raise DestinationError(
                    f"topic {table} does not keep all that was written ({why}): rows cannot be recounted",
                    "the ledger's own sums are in `kpipe batches`; to prove rows by counting, the topic must keep them",
                )
            rows = pa.concat_tables([rows, *_rows(cluster, table, pipeline, [item.stable for item in ends], starts)])
        connection.register(table, rows)
        return counting.recount(connection, desk.DIALECT, pipeline, table, held)


def _rows(cluster: Cluster, table: str, pipeline: str, ends: Sequence[int], starts: Sequence[int]) -> Iterator[pa.Table]:
    own = pipeline.encode()
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        for held in cluster.read(table, number, Range(start, end)):
            found = [said for headers in held.headers() if (said := origin(headers or ())).get("kpipe.pipeline") == own]
            rows = [said for said in found if said.get("kpipe.kind") == b"row"]
            columns = [
                [(said["kpipe.topic"] or b"").decode() for said in rows],
                [_whole(said.get("kpipe.partition")) for said in rows],
                [_whole(said.get("kpipe.offset")) for said in rows],
            ]
            yield pa.table(columns, schema=_ROWS)


def _whole(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def kept_letters(cluster: Cluster, topic: str, pipeline: str) -> list[Mapping[str, Any]]:
    """The pipeline's dead letters, in the order of their topic."""
    found: list[Mapping[str, Any]] = []
    there = cluster.topic(topic)
    for number, ends in enumerate(cluster.ends(there)) if there is not None else ():
        for held in cluster.read(topic, number, Range(ends.start, ends.stable)):
            headers: list[Headers | None] = held.headers()
            for key, value, said in zip(held.keys(), held.values, headers, strict=True):
                letter = parsed_letter(key, value, said or ())
                if letter is not None and letter["pipeline"] == pipeline:
                    found.append(letter)
    return found


def lay_letters(connection: Connection, items: Sequence[Item], letters: Sequence[Mapping[str, Any]]) -> None:
    """Dead letters as rows of `kpipe_errors`; those of no known commit are no dead letters."""
    by_batch: dict[str, list[Mapping[str, Any]]] = {}
    for letter in letters:
        by_batch.setdefault(letter["batch"], []).append(letter)
    for item in items:
        mine = by_batch.get(item["commit"]["batch_id"])
        if not mine:
            continue
        ranges = (entry(row) for row in item["ranges"])
        steps = tuple(Step(Lane(r.source, r.range.start, r.range.start, r.range.end), r.range.end) for r in ranges)
        commit = Commit(item["commit"]["batch_id"], item["commit"]["pipeline_name"], (), steps=steps)
        moment = datetime.fromisoformat(item["commit"]["committed"]).timestamp()
        rows = [{name: letter[name] for name in _LETTERS.names} for letter in mine]
        connection.register("kpipe_letters_found", pa.Table.from_pylist(rows, _LETTERS))
        connection.execute(*records.letters(desk.DIALECT, commit, int(moment * 1e6), "kpipe_letters_found"))
        connection.execute(
            f"UPDATE {tables.ERRORS.sql} SET error_unix_timestamp = $1, version = $2, database_name = $3"
            " WHERE batch_id = $4 AND dead_letter",
            [moment, item["commit"]["version"], item["ranges"][0]["database_name"] if item["ranges"] else "", commit.id],
        )
