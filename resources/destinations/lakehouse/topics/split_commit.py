"""Split a commit into one for each topic, and combine the commits of a batch again."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from kpipe.batch.batch import Commit, StagedFile
from kpipe.batch.counts import Counts
from kpipe.errors import StagingFailed
from resources.destinations.lakehouse.ledger_file import Item
from resources.object_store.open_file import opened

__all__ = ["combined", "letters_by_topic", "newest_first", "numbered", "split"]

_COUNTS = tuple(vars(Counts()))


def split(commit: Commit, tables: Mapping[str, str], letters: Mapping[str, Sequence[StagedFile]]) -> dict[str, Commit]:
    """Return the part of each topic, by topic in order. A decision without lanes has none.

    Args:
        commit: the whole.
        tables: name of the table of each of its topics.
        letters: files of dead letters of each topic.
    """
    writes = {write.table.lower(): write for write in commit.tables}
    parts = {}
    for topic in topics_of(commit):
        write = writes.get(tables[topic].lower())
        parts[topic] = replace(
            commit,
            changes=tuple(change for change in commit.changes if change.key[0].topic.name == topic),
            steps=tuple(step for step in commit.steps if step.source.topic.name == topic),
            tables=(write,) if write is not None else (),
            records={lane: counts for lane, counts in commit.records.items() if lane[0].topic.name == topic},
            dead_letters=tuple(letters.get(topic, ())),
            ends={source: ends for source, ends in commit.ends.items() if source.topic.name == topic},
            metadata={source: values for source, values in commit.metadata.items() if source.topic.name == topic},
            task_seconds={lane: seconds for lane, seconds in commit.task_seconds.items() if lane[0].topic.name == topic},
        )
    return parts


def topics_of(commit: Commit) -> list[str]:
    """Return the topics whose lanes or ranges are part of a commit, in order."""
    return sorted({change.key[0].topic.name for change in commit.changes} | {step.source.topic.name for step in commit.steps})


def letters_by_topic(files: Sequence[StagedFile]) -> dict[str, list[StagedFile]]:
    """Return the files of dead letters of each topic. Tasks write a file for each table.

    Raises:
        StagingFailed: a file contains dead letters of several topics, or of none.
    """
    found: dict[str, list[StagedFile]] = {}
    for file in files:
        with opened(file.path) as stream, pq.ParquetFile(stream) as source:
            topics = {topic for at in range(source.num_row_groups) for topic in _topics(source, at)}
        if len(topics) != 1 or None in topics:
            raise StagingFailed(f"staged file {file.path!r}: expected dead letters of one topic, found {len(topics)}")
        found.setdefault(topics.pop(), []).append(file)
    return found


def _topics(source: Any, at: int) -> list[Any]:
    found: list[Any] = pc.unique(source.read_row_group(at, columns=["topic"])["topic"]).to_pylist()
    return found


def numbered(item: Item, table: str) -> dict[str, Any]:
    """Return a commit of one table with the pipeline's number of the commit in place of the table's."""
    seq = item["number"]
    return {
        **item,
        "commit": {**item["commit"], "seq": seq},
        "ranges": [{**row, "seq": seq, "target_table": table} for row in item["ranges"]],
    }


def newest_first(histories: Iterable[Iterator[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield the commits of several tables, each newest first, in the order of their numbers."""
    return heapq.merge(*histories, key=lambda item: (-item["commit"]["seq"], item["commit"]["batch_id"]))


def combined(items: Iterable[dict[str, Any]], limit: int | None) -> list[dict[str, Any]]:
    """Return the newest commits with the parts of all tables in one.

    Args:
        items: numbered commits of tables, newest first.
        limit: maximum of commits; None: all.
    """
    found: dict[str, dict[str, Any]] = {}
    for item in items:
        known = found.get(item["commit"]["batch_id"])
        if known is None:
            if limit is not None and len(found) == limit:
                break
            found[item["commit"]["batch_id"]] = {**item, "ranges": list(item["ranges"])}
            continue
        row, more = known["commit"], item["commit"]
        sums = {name: row.get(name, 0) + more.get(name, 0) for name in _COUNTS if name in row}
        known["commit"] = {**row, **sums, "committed": max(str(row["committed"]), str(more["committed"]))}
        known["ranges"] += item["ranges"]
    return list(found.values())
